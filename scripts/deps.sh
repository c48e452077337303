#!/bin/sh
# Installs what the demo and the tests need besides Go. Quiet when it is there.
set -eu
missing=
command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
command -v bash >/dev/null || missing="$missing bash"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
	echo "these programs are needed:$missing; install them with the package manager of this system" >&2
	exit 1
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list
{ apt-get update && apt-get install -y --no-install-recommends $missing; } >/dev/null 2>&1 || {
	echo "apt-get could not install$missing; run as root: apt-get update && apt-get install -y$missing" >&2
	exit 1
}
