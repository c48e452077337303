// Package image is the store of unpacked images: it pulls them from registries,
// imports them from archives, and gives each layer as a directory that overlay
// mounts can take as a lower one.
//
// Layout below Config.Dir (0700: layers hold set-uid programs of foreign systems,
// which no user of the host may reach):
//
//	layers/<chain id>/fs          the unpacked layer, owners as in the image
//	layers/<chain id>/layer.json  its diff id and size
//	blobs/<digest>                manifests and configurations, as they came
//	images/<digest>.json          one record per image
//	names.json                    name → digest
//	ingest/                       work in progress and rubbish; emptied by Open
//
// Everything is made in ingest/, verified, synced and then renamed into place:
// what can be seen is whole. A layer is named by its chain id, the hash of itself
// and all layers below it, because how it is unpacked depends on those.
//
// One process owns the directory (the data directory is locked); within it any
// number of goroutines may use a Store.
package image
