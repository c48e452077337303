package fake

import (
	"path"
	"sync"
)

// files is the writable layer of a sandbox.
type files struct {
	mu sync.Mutex
	m  map[string]string
}

func newFiles() *files { return &files{m: map[string]string{}} }

func (f *files) read(dir, name string) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.m[abs(dir, name)]
	return s, ok
}

func (f *files) write(dir, name, content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.m[abs(dir, name)] = content
}

func (f *files) size() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.m {
		n += int64(len(s))
	}
	return n
}

func abs(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join("/", dir, name)
}
