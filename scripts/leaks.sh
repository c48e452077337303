#!/bin/sh
# Says what an instance has left on this host; exit code 1 when there is anything.
#
#   scripts/leaks.sh INSTANCE DATA_DIR
set -eu
[ $# -eq 2 ] || { echo "usage: $0 INSTANCE DATA_DIR" >&2; exit 2; }
inst=$1 data=$2
left=0
report() { # what, lines
	[ -z "$2" ] || { left=1; printf 'left: %s\n%s\n' "$1" "$2" >&2; }
}
report mounts "$(grep -hF -e "sos-$inst" -e "$data/" -e "/run/sos/$inst" /proc/self/mountinfo || true)"
report cgroups "$(find /sys/fs/cgroup -type d -name "sos-$inst" 2>/dev/null || true)"
report "run directory" "$(ls -d "/run/sos/$inst" 2>/dev/null || true)"
report "id ranges" "$(grep -lF "$data/" /run/sos/ids/* 2>/dev/null || true)"
report "network namespaces" "$(find /run/netns -name "sos-$inst*" 2>/dev/null || true)"
for p in /proc/[0-9]*; do
	pid=${p#/proc/}
	[ "$pid" != $$ ] || continue
	if grep -qsF "sos-$inst" "$p/cgroup" ||
		tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -qF -e "$data/" -e "/run/sos/$inst"; then
		# a zombie has ended; its parent has only not looked yet
		[ "$(sed 's/.*) //' "$p/stat" 2>/dev/null | cut -c1)" = Z ] || report process "$pid $(tr '\0' ' ' 2>/dev/null <"$p/cmdline")"
	fi
done
exit $left
