package app

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// syncBuffer is a console that can be waited on.
type syncBuffer struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *syncBuffer) wait(t *testing.T, want string) {
	t.Helper()
	limit := time.After(time.Minute)
	for !strings.Contains(b.String(), want) {
		select {
		case <-b.changed:
		case <-limit:
			t.Fatalf("%q does not come: %s", want, b.String())
		}
	}
}
