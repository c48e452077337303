#!/bin/sh
# Checks what a stranger meets: a fresh clone builds with nothing but Go, also for
# other systems; two clones in different places give the same bytes; the demo runs
# twice.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CGO_ENABLED=0
git clone -q "$root" "$dir/clone"
cd "$dir/clone"
go build ./...
GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/sos
GOOS=linux GOARCH=arm64 go vet ./...
for cmd in sos sos-guest sos-spawner; do
	GOARCH=arm64 go build -o /dev/null "./cmd/$cmd"
done
[ -z "$(gofmt -l .)" ] || { echo "not formatted: $(gofmt -l .)" >&2; exit 1; }
make -s build
git clone -q . "$dir/else/where"
make -s -C "$dir/else/where" build
for f in bin/sos internal/guest/embed/bin/* internal/driver/native/bin/*; do
	cmp "$f" "$dir/else/where/$f"
done
SOS_IMAGE_CACHE=$root/.cache make -s demo
SOS_IMAGE_CACHE=$root/.cache make -s demo
