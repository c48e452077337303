#!/bin/sh
# Builds the Debian variant of agent-tools as a tar: Debian trixie with its
# Python 3.13, and Node 22 from the npm registry. No container registry and no
# container engine is needed; root, mmdebstrap and npm or curl are.
#
#   ./build.sh OUT.tar
#   sos image import OUT.tar --name nodus/agent-tools
set -eu

suite=trixie
node_version=22.23.5
npm_version=10.9.9
npm_registry=${NPM_CONFIG_REGISTRY:-https://registry.npmjs.org}
include=bash,ca-certificates,curl,git,procps,less,file,unzip,xz-utils,openssh-client,\
jq,ripgrep,build-essential,pkg-config,python3,python3-dev,python3-pip,python3-venv

[ $# -eq 1 ] || { echo "usage: $0 OUT.tar" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "$0: root is needed: mmdebstrap makes files of other owners" >&2; exit 1; }
command -v mmdebstrap >/dev/null || {
	echo "$0: mmdebstrap is needed: apt-get update && apt-get install -y mmdebstrap" >&2; exit 1; }

case $(dpkg --print-architecture) in
amd64) node_arch=x64 ;;
arm64) node_arch=arm64 ;;
*) echo "$0: there is no Node package for $(dpkg --print-architecture)" >&2; exit 1 ;;
esac

out=$1
part=$out.part
work=$(mktemp -d)
trap 'rm -rf "$part" "$work"' EXIT

# fetch NAME VERSION puts the package NAME into $work/NAME. npm checks what it
# fetched against the registry's integrity value; with curl, TLS is the check.
fetch() {
	mkdir -p "$work/$1"
	if command -v npm >/dev/null; then
		(cd "$work" && npm pack --silent "$1@$2" >/dev/null)
	else
		curl -fsSL --retry 3 -o "$work/$1-$2.tgz" "$npm_registry/$1/-/$1-$2.tgz"
	fi
	tar -xzf "$work/$1-$2.tgz" -C "$work/$1" --strip-components=1 --no-same-owner
}
fetch "node-linux-$node_arch" "$node_version"
fetch npm "$npm_version"

# What the image gets besides packages.
tree=$work/tree
mkdir -p "$tree/usr/local/bin" "$tree/usr/local/lib/node_modules" "$tree/workspace"
install -m 755 "$work/node-linux-$node_arch/bin/node" "$tree/usr/local/bin/node"
cp -R "$work/npm" "$tree/usr/local/lib/node_modules/npm"
chmod 755 "$tree/usr/local/lib/node_modules/npm/bin/"*.js
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$tree/usr/local/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$tree/usr/local/bin/npx"
ln -s /usr/bin/python3 "$tree/usr/local/bin/python"
# Everything in a sandbox is root's by default; pip need not warn of it.
mkdir -p "$tree/etc"
printf '[global]\nroot-user-action = ignore\n' >"$tree/etc/pip.conf"
chmod -R go=u,go-w "$tree"
tar -C "$tree" --owner=0 --group=0 --numeric-owner -cf "$work/tree.tar" .

# Debian marks its Python as managed by apt (PEP 668) and pip then refuses to
# install. In a throw-away sandbox pip may: the marker goes, and stays away when
# the package is upgraded.
mmdebstrap --quiet --mode=root --variant=minbase --format=tar \
	--include="$include" \
	--aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/info/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-include=/usr/share/locale/locale.alias' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--dpkgopt='path-exclude=/usr/lib/python3*/EXTERNALLY-MANAGED' \
	--customize-hook="tar-in $work/tree.tar /" \
	--customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' \
	--customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
	--customize-hook='for p in python pip node npm git; do chroot "$1" "$p" --version >&2 || exit 1; done' \
	"$suite" "$part"

mv "$part" "$out"
trap - EXIT
rm -rf "$work"
