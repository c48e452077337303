#!/bin/sh
# Runs every fuzz target of the module for FUZZTIME each. What it finds is not made
# smaller for long: the time is for finding.
set -eu
cd "$(dirname "$0")/.."
time=${FUZZTIME:-20s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # package, target
	echo "== $1 $2"
	if go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 1x "$1" >"$log" 2>&1 </dev/null; then
		tail -n 2 "$log"
	# Go takes a call that the end of the time cuts off for a failure (without an input).
	elif grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
		tail -n 2 "$log" | head -n 1
	else
		cat "$log"
		return 1
	fi
}

grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		fuzz "$(dirname "$file")" "$target"
	done
done
