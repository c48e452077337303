#!/bin/sh
# Runs every fuzz target of the module for FUZZTIME each. What it finds is not made
# smaller for long: the time is for finding.
set -eu
cd "$(dirname "$0")/.."
time=${FUZZTIME:-20s}
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
	pkg=$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x "$pkg" </dev/null
	done
done
