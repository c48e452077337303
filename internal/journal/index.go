package journal

import (
	"encoding/binary"
	"time"

	"github.com/seaofsimulation/sos"
)

// Entry is one piece of output as it arrived.
type Entry struct {
	Time    time.Time
	Stream  sos.Stream
	Offset  int64
	Length  int64
	Skipped bool // counted, not kept
}

// An entry takes 24 bytes, little-endian: time in nanoseconds since 1970 (8),
// offset (8), length (4), stream (1), flags (1), zero (2).
const entrySize = 24

const flagSkipped = 1

// maxEntry is the longest piece that one entry can tell of.
const maxEntry = 1 << 30

// streamCodes are the streams by their number in the index.
var streamCodes = []sos.Stream{sos.StreamOut, sos.StreamStdout, sos.StreamStderr}

func streamCode(s sos.Stream) (byte, bool) {
	for i, name := range streamCodes {
		if name == s {
			return byte(i), true
		}
	}
	return 0, false
}

func (e Entry) append(b []byte) []byte {
	code, _ := streamCode(e.Stream)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Time.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Offset))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Length))
	flags := byte(0)
	if e.Skipped {
		flags = flagSkipped
	}
	return append(b, code, flags, 0, 0)
}

// parseEntry reads an entry; false: b does not begin with a sound one.
func parseEntry(b []byte) (e Entry, ok bool) {
	if len(b) < entrySize || int(b[20]) >= len(streamCodes) || b[21] > flagSkipped {
		return e, false
	}
	e = Entry{
		Time:    time.Unix(0, int64(binary.LittleEndian.Uint64(b))).UTC(),
		Offset:  int64(binary.LittleEndian.Uint64(b[8:])),
		Length:  int64(binary.LittleEndian.Uint32(b[16:])),
		Stream:  streamCodes[b[20]],
		Skipped: b[21] == flagSkipped,
	}
	return e, e.Offset >= 0 && e.Length > 0 && e.Length <= maxEntry && e.Offset <= 1<<62
}
