package cli

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

// progress is one line on a terminal that is rewritten a few times a second;
// elsewhere it shows nothing.
type progress struct {
	a    *cli
	on   bool
	mu   sync.Mutex
	next time.Time
	open bool
}

func (a *cli) progress(f *format) *progress {
	return &progress{a: a, on: a.ErrTTY && !f.quiet}
}

func (p *progress) show(s sos.Progress) {
	text := s.Stage
	if s.Layer != "" {
		text += " " + shortDigest(s.Layer)
	}
	if s.Total > 0 {
		text += fmt.Sprintf(" %s of %s", bytesText(s.Current), bytesText(s.Total))
	} else if s.Current > 0 {
		text += " " + bytesText(s.Current)
	}
	if s.Message != "" {
		text += " " + plain(s.Message)
	}
	p.write(text)
}

func (p *progress) write(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.on || now.Before(p.next) {
		return
	}
	p.next = now.Add(100 * time.Millisecond)
	p.open = true
	fmt.Fprintf(p.a.Err, "\r\x1b[K%.100s", text)
}

func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		fmt.Fprint(p.a.Err, "\r\x1b[K")
	}
	p.on = false
}

// reader shows how much of an upload is done.
func (p *progress) reader(r io.Reader, total int64) io.Reader {
	if !p.on {
		return r
	}
	return &countingReader{p: p, r: r, total: total}
}

type countingReader struct {
	p           *progress
	r           io.Reader
	done, total int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.done += int64(n)
	c.p.show(sos.Progress{Stage: "send", Current: c.done, Total: c.total})
	return n, err
}

// tarDirectory streams a directory (an OCI layout) as a tar. The writer ends when
// the reader is closed.
func tarDirectory(path string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		err := t.AddFS(os.DirFS(path))
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}
