// Package testutil has what tests of several rooms need.
package testutil

import (
	"os"
	"strconv"
	"testing"
)

// Scale multiplies a loop count by SOS_TEST_SCALE (default 1), at least 1.
func Scale(n int) int {
	f, err := strconv.ParseFloat(os.Getenv("SOS_TEST_SCALE"), 64)
	if err != nil || f <= 0 {
		return n
	}
	return max(1, int(float64(n)*f))
}

// Full ends the test here unless the long tests were asked for (SOS_TEST_FULL=1,
// which make test-full sets).
func Full(t testing.TB) {
	t.Helper()
	if os.Getenv("SOS_TEST_FULL") == "" {
		t.Skip("runs in make test-full only")
	}
}
