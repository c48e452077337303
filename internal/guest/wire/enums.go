package wire

import "github.com/seaofsimulation/sos"

// The words of the vocabulary that go as numbers. The position is the number:
// append only.
var (
	streams = []sos.Stream{"", sos.StreamOut, sos.StreamStdout, sos.StreamStderr}
	reasons = []sos.EndReason{"", sos.EndExit, sos.EndSignal, sos.EndTimeout, sos.EndOOM,
		sos.EndCancelled, sos.EndDiskLimit, sos.EndSandboxStopped, sos.EndSpawnFailed,
		sos.EndNotRun, sos.EndShellBroken}
	codes = []sos.Code{"", sos.CodeInvalid, sos.CodeNotFound, sos.CodeNotStarted,
		sos.CodeSessionExited, sos.CodeConflict, sos.CodeSpawnFailed, sos.CodeSandboxStopped,
		sos.CodeTimeout, sos.CodeTooLarge, sos.CodeUnavailable, sos.CodeUnsupported,
		sos.CodeCanceled, sos.CodeInternal}
)

// enum writes the position of v in words, or reads it; an unknown word goes as
// fallback.
func enum[T ~string](c *coder, v *T, words []T, fallback T) {
	var n uint64
	if !c.dec {
		n = index(words, *v, fallback)
	}
	c.uint(&n)
	if !c.dec {
		return
	}
	*v = ""
	if n >= uint64(len(words)) {
		c.fail(ErrValue)
		return
	}
	*v = words[n]
}

func index[T ~string](words []T, v, fallback T) uint64 {
	other := 0
	for i, w := range words {
		if w == v {
			return uint64(i)
		}
		if w == fallback {
			other = i
		}
	}
	return uint64(other)
}

func (c *coder) stream(v *sos.Stream) {
	enum(c, v, streams, "")
	if c.dec && c.err == nil && *v == "" {
		c.fail(ErrValue)
	}
}

func (c *coder) reason(v *sos.EndReason) { enum(c, v, reasons, "") }
func (c *coder) code(v *sos.Code)        { enum(c, v, codes, sos.CodeInternal) }

func (c *coder) offsets(v *map[sos.Stream]int64) {
	if !c.dec {
		n := len(*v)
		c.count(n, len(streams))
		for _, s := range streams { // a fixed order: equal messages have equal frames
			if off, ok := (*v)[s]; ok {
				c.stream(&s)
				c.int63(&off)
			}
		}
		return
	}
	n := c.count(0, len(streams)-1)
	*v = nil
	if n > 0 {
		*v = make(map[sos.Stream]int64, n)
	}
	for range n {
		var s sos.Stream
		var off int64
		c.stream(&s)
		c.int63(&off)
		if c.err != nil {
			return
		}
		(*v)[s] = off
	}
}

func (c *coder) exit(e *sos.Exit) {
	has := e.ExitCode != nil
	c.bool(&has)
	var code int
	if has && !c.dec {
		code = *e.ExitCode
	}
	c.int(&code)
	if c.dec {
		e.ExitCode = nil
		if has {
			e.ExitCode = &code
		}
		if code > 255 {
			c.fail(ErrValue)
		}
	}
	c.string(&e.Signal, 16)
	c.reason(&e.Reason)
	c.string(&e.Message, MaxMessage)
	c.bool(&e.OOMKilled)
	c.bool(&e.ShellEnded)
	c.bool(&e.Survivors)
}
