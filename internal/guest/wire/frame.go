package wire

import (
	"encoding/binary"

	"github.com/seaofsimulation/sos/internal/guest"
)

// header is the length that precedes a frame.
const header = 4

// MaxOutput is the most data that a guest puts into one Output frame: large
// enough to be fast, small enough that no stream holds the connection for long.
const MaxOutput = 256 << 10

// Frame is one frame as read. Body belongs to the reader and is valid until its
// next call.
type Frame struct {
	Type Type
	Call uint64
	Body []byte
}

// Append adds the frame of m to b; a message over guest.MaxFrame as More frames
// and its own.
func Append(b []byte, call uint64, m Message) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.Type()))
	b = binary.AppendUvarint(b, call)
	body := len(b)
	c := coder{b: b}
	m.fields(&c)
	b = c.b
	if len(b)-start-header <= guest.MaxFrame {
		binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-header))
		return b
	}
	return appendLong(b[:start], call, m.Type(), append([]byte(nil), b[body:]...))
}

func appendLong(b []byte, call uint64, t Type, body []byte) []byte {
	const part = guest.MaxFrame - 16 // room for type and call id
	for len(body) > part {
		b = appendFrame(b, call, typeMore, body[:part])
		body = body[part:]
	}
	return appendFrame(b, call, t, body)
}

func appendFrame(b []byte, call uint64, t Type, body []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(t))
	b = binary.AppendUvarint(b, call)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-header))
	return b
}

// AppendOutput begins an Output frame with room for n bytes of data and returns
// the room as well: the sender copies into it straight from its buffer.
func AppendOutput(b []byte, id string, m Output, n int) (frame, room []byte) {
	start := len(b)
	m.ID, m.Data = id, nil
	b = append(b, 0, 0, 0, 0, byte(TypeOutput), 0)
	c := coder{b: b}
	c.string(&m.ID, MaxID)
	c.stream(&m.Stream)
	c.int63(&m.Offset)
	b = binary.AppendUvarint(c.b, uint64(n))
	data := len(b)
	if cap(b)-data < n {
		grown := make([]byte, data, data+n)
		copy(grown, b)
		b = grown
	}
	b = b[:data+n]
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-header))
	return b, b[data:]
}

// Decode reads the message of a frame. Only Output.Data shares memory with it.
func Decode(f Frame) (Message, error) {
	m := empty(f.Type)
	if m == nil {
		return nil, ErrType
	}
	c := coder{b: f.Body, dec: true}
	m.fields(&c)
	if c.err != nil {
		return nil, c.err
	}
	return m, nil
}

func empty(t Type) Message {
	switch t {
	case TypeHello:
		return &Hello{}
	case TypeStart:
		return &Start{}
	case TypeOpenSession:
		return &OpenSession{}
	case TypeRunSession:
		return &RunSession{}
	case TypeInterrupt:
		return &Interrupt{}
	case TypeCloseSession:
		return &CloseSession{}
	case TypeSignal:
		return &Signal{}
	case TypeCancel:
		return &Cancel{}
	case TypeAck:
		return &Ack{}
	case TypeResume:
		return &Resume{}
	case TypeRelease:
		return &Release{}
	case TypeShutdown:
		return &Shutdown{}
	case TypePing:
		return &Ping{}
	}
	return emptyAnswer(t)
}

func emptyAnswer(t Type) Message {
	switch t {
	case TypeHelloReply:
		return &HelloReply{}
	case TypeHeld:
		return &Held{}
	case TypeReply:
		return &Reply{}
	case TypeStarted:
		return &Started{}
	case TypeOutput:
		return &Output{}
	case TypeExited:
		return &Exited{}
	case TypeDrained:
		return &Drained{}
	case TypeSessionEnded:
		return &SessionEnded{}
	case TypePong:
		return &Pong{}
	case TypeSuperseded:
		return &Superseded{}
	}
	return nil
}
