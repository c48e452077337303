package embed

import (
	"strings"
	"testing"
)

func TestUnknownArchitecture(t *testing.T) {
	b, err := Guest("pdp11")
	if err == nil || !strings.Contains(err.Error(), "run make build") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
