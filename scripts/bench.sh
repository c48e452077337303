#!/bin/sh
# Compares with the Docker Engine where dockerd is installed, else says so.
set -eu
cd "$(dirname "$0")/.."
image=$(scripts/image.sh)
exec go run ./test/bench -sos bin/sos -image "$image" -runs "${RUNS:-30}"
