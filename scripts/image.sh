#!/bin/sh
# Prints the path of a tar of a Debian root filesystem and builds it where it is
# not there yet: the image of the demo and of the benchmark.
set -eu
cd "$(dirname "$0")/.."
cache=${SOS_IMAGE_CACHE:-$PWD/.cache}
mkdir -p "$cache"
tar=$cache/debian.tar
if [ ! -s "$tar" ]; then
	echo "building a Debian image from its packages (half a minute, once)" >&2
	images/debian/build.sh "$tar" >&2
fi
echo "$tar"
