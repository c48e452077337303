package native

import (
	"testing"
)

func TestProbesOnThisHost(t *testing.T) {
	dir := t.TempDir()
	var r report
	thisHost(dir).check(&r)
	for _, c := range r.checks {
		t.Logf("%-18s %v %s (%s)", c.Name, c.OK, c.Message, c.Fix)
		if !c.OK {
			t.Errorf("check %s fails: %s", c.Name, c.Message)
		}
	}
}
