package journal

import (
	"fmt"

	"github.com/seaofsimulation/sos"
)

// maxNote is the longest note.
const maxNote = 16 << 20

// Note writes down what is known of the process, in whatever form the caller
// likes; the last note counts. It costs an append to the log and survives, like
// output, the death of our processes: with it a caller can tell of a process
// before slower records of it are written.
func (r *Record) Note(data []byte) error {
	if len(data) == 0 || len(data) > maxNote {
		return sos.Errorf(sos.CodeTooLarge, "a note of %d bytes", len(data))
	}
	e := Entry{Time: r.b.j.opt.Now(), Process: r.id, Stream: streamCodes[0], Length: int64(len(data)), where: note}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if err := r.b.write(e, data); err != nil {
		return fmt.Errorf("journal of %s %s: %w", r.b.sandbox, r.id, err)
	}
	return nil
}

// Notes gives the last note of each process of a sandbox that has one.
func (j *Journal) Notes(sandbox string) (map[string][]byte, error) {
	b, err := j.box(sandbox, sandbox)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	notes := map[string][]byte{}
	for id, p := range b.procs {
		if p.note.length == 0 || b.log == nil {
			continue
		}
		data := make([]byte, p.note.length)
		if _, err := b.log.ReadAt(data, p.note.pos); err != nil {
			return nil, fmt.Errorf("journal of %s %s: %w", sandbox, id, err)
		}
		notes[id] = data
	}
	return notes, nil
}
