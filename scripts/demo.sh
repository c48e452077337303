#!/usr/bin/env bash
# Runs the complete workflow of the README with the real CLI, server and
# sandboxes: shows each command with its output, checks each result, cleans up,
# and fails when anything differs or is left over.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/bin:$PATH
[ "$(id -u)" -eq 0 ] || { echo "make demo needs root: sandboxes are made by root (sudo make demo)" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/sos-demo.XXXXXX")
data=$work/data
server=

finish() {
	local code=$?
	trap - EXIT
	if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
		kill -TERM "$server" && wait "$server" || true
	fi
	[ ! -e "$data" ] || sos down --data-dir "$data" --purge -q || code=1
	if [ "$code" -ne 0 ]; then
		echo "demo: FAILED" >&2
		[ ! -s "$work/log" ] || sed 's/^/  server: /' "$work/log" >&2
	fi
	rm -rf --one-file-system "$work"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() { echo "demo: $*" >&2; exit 1; }
say() { printf '\n# %s\n' "$*"; }

# run LINE [EXPECTED]: shows and runs a line as it stands in the README.
run() {
	printf '$ %s\n' "$1"
	local out code=0
	out=$(eval "$1") || code=$?
	[ -z "$out" ] || printf '%s\n' "$out"
	[ "$code" -eq 0 ] || fail "exit code $code of: $1"
	[ $# -lt 2 ] || [ "$out" = "$2" ] || fail "expected:
$2"
}

say "Terminal 1: Start the server"
printf '$ sos serve --port 0 --data-dir %s\n' "$data"
sos serve --port 0 --data-dir "$data" 2>"$work/log" &
server=$!
for _ in $(seq 300); do
	SOS_SERVER=$(sed -n 's/^sos is ready on \(http:[^ ,]*\).*/\1/p' "$work/log")
	[ -z "$SOS_SERVER" ] || break
	kill -0 "$server" 2>/dev/null || fail "the server has ended"
	sleep 0.1
done
[ -n "$SOS_SERVER" ] || fail "the server is not ready after 30 seconds"
export SOS_SERVER
cat "$work/log"

say "The image: from its registry, else built from Debian's packages"
if timeout 30 sos image pull ubuntu:latest 2>/dev/null; then
	:
else
	echo "no registry answers"
	tar=$(scripts/image.sh)
	run "sos image import '$tar' --name ubuntu:latest"
fi

say "Terminal 2: Use the client"
say "Create a sandbox"
printf '$ %s\n' 'ID=$(sos sandbox create --image ubuntu:latest | grep "Sandbox created" | cut -d'"' '"' -f5)'
ID=$(sos sandbox create --image ubuntu:latest | grep "Sandbox created" | cut -d' ' -f5)
echo "  ID is $ID"
[[ $ID =~ ^sb-[a-z2-7]{16}$ ]] || fail "that is no id"

say "Start the sandbox"
run 'sos sandbox start $ID' "Starting sandbox: $ID
Sandbox $ID started successfully
  Use 'sos sandbox exec $ID <command>' to run commands"

say "Execute commands (session is persistent)"
run 'sos sandbox exec $ID "cd /tmp"' "Executing command in sandbox $ID: cd /tmp"
run 'sos sandbox exec $ID "echo \$PWD"  # Should output: /tmp' "Executing command in sandbox $ID: echo \$PWD
/tmp"
run 'sos sandbox exec $ID "echo '"'Hello World'"' > test.txt"' "Executing command in sandbox $ID: echo 'Hello World' > test.txt"

say "-s or --standalone runs the command outside the session"
run 'sos sandbox exec -s $ID "cat /tmp/test.txt"' "Executing command in sandbox $ID: cat /tmp/test.txt
Hello World"

say "Clean up"
run 'sos sandbox stop $ID' "Stopping sandbox: $ID
Sandbox $ID stopped
  Use 'sos sandbox trajectory $ID' to view command history"

say "What it has recorded"
run 'sos sandbox trajectory -f $ID' "Viewing trajectory for sandbox: $ID
\$ cd /tmp
\$ echo \$PWD
/tmp
\$ echo 'Hello World' > test.txt"

say "The end of the server"
inst=$(cat "$data/instance")
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" -eq 0 ] || fail "exit code $code of the server"
tail -n 1 "$work/log"
run "sos down --data-dir $data --purge"
[ ! -e "$data" ] || fail "$data is still there"
scripts/leaks.sh "$inst" "$data" || fail "something is left"
echo "nothing is left of instance $inst"
printf '\ndemo: all as expected\n'
