// Package native starts sandboxes straight on Linux: namespaces, an overlay
// root, cgroups and seccomp, without a daemon or another runtime.
//
// The driver in the server only prepares files and talks to the spawner, a small
// process that clones the sandboxes and is the parent of their guests. Server,
// spawner and guests can each die and be started again: what there is, is found
// from the data directory, the run directory and the cgroups of the instance.
// Layout and names are in layout.go.
package native
