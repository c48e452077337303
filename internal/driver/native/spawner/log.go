package spawner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// The guest's stderr is a named pipe that the guest itself also holds open for
// reading: it never breaks, so a guest outlives the spawner, and it never blocks
// (O_NONBLOCK), so what nobody reads is lost beyond the pipe's size. The spawner, or
// the next one, copies it to files of bounded size.
const (
	logPipe   = "log.pipe"
	logMax    = 64 << 10 // of log; log.1 is as long at most
	lastWords = 4 << 10
)

// makeLog makes the pipe and gives the guest's end.
func makeLog(runDir string) (int, error) {
	path := filepath.Join(runDir, logPipe)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return -1, fmt.Errorf("make the guest's log: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the guest's log: %w", err)
	}
	return fd, nil
}

// logPump copies a guest's pipe to its log.
type logPump struct {
	pipe *os.File
	dir  string
	done chan struct{}

	mu   sync.Mutex
	size int
	tail []byte
}

// pumpLog starts copying; the end of the guest ends it.
func pumpLog(runDir string) (*logPump, error) {
	f, err := os.OpenFile(filepath.Join(runDir, logPipe), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the guest's log: %w", err)
	}
	l := &logPump{pipe: f, dir: runDir, done: make(chan struct{})}
	if info, err := os.Stat(filepath.Join(runDir, spawn.LogFile)); err == nil {
		l.size = int(info.Size())
	}
	go l.run()
	return l, nil
}

func (l *logPump) run() {
	defer close(l.done)
	buf := make([]byte, 16<<10)
	for {
		n, err := l.pipe.Read(buf)
		if n > 0 {
			l.write(buf[:n])
		}
		if err != nil {
			return
		}
		if n == len(buf) {
			time.Sleep(10 * time.Millisecond) // a flood does not cost more than this
		}
	}
}

func (l *logPump) write(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, b...)
	l.tail = l.tail[max(0, len(l.tail)-lastWords):]
	name := filepath.Join(l.dir, spawn.LogFile)
	if l.size+len(b) > logMax {
		if err := os.Rename(name, name+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return // the run directory is gone or full; the tail is kept
		}
		l.size = 0
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	n, _ := f.Write(b)
	l.size += n
}

// finish waits for the rest of a guest that has ended and gives its last words.
func (l *logPump) finish() string {
	if l == nil {
		return ""
	}
	// Its end is the end of the pipe, unless something still holds a copy.
	_ = l.pipe.SetReadDeadline(time.Now().Add(time.Second))
	<-l.done
	_ = l.pipe.Close()
	_ = os.Remove(filepath.Join(l.dir, logPipe))
	return string(l.tail)
}

// stop ends the copying and leaves the pipe to the next spawner.
func (l *logPump) stop() {
	if l == nil {
		return
	}
	_ = l.pipe.SetReadDeadline(time.Unix(1, 0))
	<-l.done
	_ = l.pipe.Close()
}
