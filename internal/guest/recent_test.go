package guest

import (
	"strconv"
	"testing"
)

func TestRecent(t *testing.T) {
	var r Recent
	if r.Has("0") {
		t.Error("an empty one knows something")
	}
	for i := range 3 * recentSize {
		id := strconv.Itoa(i)
		r.Add(id)
		r.Add(id)
		if !r.Has(id) {
			t.Fatalf("%s is forgotten at once", id)
		}
	}
	for i := range 3 * recentSize {
		if got, want := r.Has(strconv.Itoa(i)), i >= 2*recentSize; got != want {
			t.Fatalf("%d: %v", i, got)
		}
	}
	if len(r.ids) != recentSize || len(r.list) != recentSize {
		t.Errorf("%d ids", len(r.ids))
	}
}
