#!/bin/sh
# Builds a small Debian bookworm root filesystem as a tar, from Debian packages
# only: no container registry, no container engine. Needs root and mmdebstrap.
#
#   ./build.sh OUT.tar
#   sos image import OUT.tar --name debian:bookworm
set -eu

suite=bookworm
include=procps,ca-certificates

[ $# -eq 1 ] || { echo "usage: $0 OUT.tar" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "$0: root is needed: mmdebstrap makes files of other owners" >&2; exit 1; }
command -v mmdebstrap >/dev/null || {
	echo "$0: mmdebstrap is needed: apt-get update && apt-get install -y mmdebstrap" >&2; exit 1; }

out=$1
part=$out.part
trap 'rm -f "$part"' EXIT

# Documentation and translations are a third of a minimal system that nobody in
# a sandbox reads; licences stay. The list of packages goes too: apt-get update
# brings it back.
mmdebstrap --quiet --mode=root --variant=minbase --format=tar \
	--include="$include" \
	--aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/info/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-include=/usr/share/locale/locale.alias' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--customize-hook='mkdir -p "$1/workspace"' \
	--customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
	"$suite" "$part"

# The name appears only when the file is whole.
mv "$part" "$out"
trap - EXIT
