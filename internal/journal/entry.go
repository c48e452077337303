package journal

import (
	"encoding/binary"
	"time"

	"github.com/seaofsimulation/sos"
)

// Entry is one piece of output as it arrived.
type Entry struct {
	Time    time.Time
	Process string
	Stream  sos.Stream
	Offset  int64
	Length  int64
	Skipped bool // counted, not kept

	where uint8 // inline, apart, skipped or note
}

// Where the bytes of an entry are.
const (
	inline  = iota // behind the entry, in the log
	apart          // in the stream's own file
	skipped        // nowhere
	note           // behind the entry, but no output: what is known of the process
)

// An entry begins with 28 bytes, little-endian: "SJ" (2), where (1), stream (1),
// length of the id (1), zero (3), time in nanoseconds since 1970 (8), offset (8),
// length (4). The id follows, then the bytes of an inline entry or a note.
const (
	headerSize = 28
	maxID      = 64
	maxEntry   = 1 << 30 // the longest piece that one entry can tell of
)

// streamCodes are the streams by their number in an entry.
var streamCodes = [...]sos.Stream{sos.StreamOut, sos.StreamStdout, sos.StreamStderr}

func streamCode(s sos.Stream) (int, bool) {
	for i, name := range streamCodes {
		if name == s {
			return i, true
		}
	}
	return 0, false
}

// append writes all but the bytes of the entry.
func (e Entry) append(b []byte) []byte {
	code, _ := streamCode(e.Stream)
	b = append(b, 'S', 'J', e.where, byte(code), byte(len(e.Process)), 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Time.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Offset))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Length))
	return append(b, e.Process...)
}

// behind is how many bytes follow the entry in the log.
func (e Entry) behind() int64 {
	if e.where == inline || e.where == note {
		return e.Length
	}
	return 0
}

// parseEntry reads an entry from the beginning of b and gives the bytes that it
// takes there, its own bytes not counted; 0: b does not begin with a whole, sound
// entry.
func parseEntry(b []byte) (e Entry, size int) {
	if len(b) < headerSize || b[0] != 'S' || b[1] != 'J' || b[2] > note || int(b[3]) >= len(streamCodes) {
		return e, 0
	}
	size = headerSize + int(b[4])
	if len(b) < size || checkID(string(b[headerSize:size])) != nil {
		return e, 0
	}
	e = Entry{
		Time:    time.Unix(0, int64(binary.LittleEndian.Uint64(b[8:]))).UTC(),
		Process: string(b[headerSize:size]),
		Stream:  streamCodes[b[3]],
		Offset:  int64(binary.LittleEndian.Uint64(b[16:])),
		Length:  int64(binary.LittleEndian.Uint32(b[24:])),
		Skipped: b[2] == skipped,
		where:   b[2],
	}
	if e.Offset < 0 || e.Offset > 1<<62 || e.Length <= 0 || e.Length > maxEntry {
		return e, 0
	}
	return e, size
}
