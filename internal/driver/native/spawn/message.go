package spawn

import (
	"encoding/json"
	"fmt"
	"net"
	"syscall"
)

// Operations.
const (
	OpHello  = "hello"
	OpCreate = "create"
	OpList   = "list"
	OpWait   = "wait"
	OpKill   = "kill"
	OpForget = "forget"
	OpRemove = "remove"
	OpQuit   = "quit"
)

// Request is one call. Seq is chosen by the client and comes back in the Reply.
type Request struct {
	Seq    uint64  `json:"seq"`
	Op     string  `json:"op"`
	ID     string  `json:"id,omitempty"`
	Create *Create `json:"create,omitempty"`
}

// Reply answers a Request; the field of its operation is set, or Error. The reply
// to a create carries the pidfd.
type Reply struct {
	Seq     uint64   `json:"seq"`
	Error   *Error   `json:"error,omitempty"`
	Hello   *Hello   `json:"hello,omitempty"`
	Created *Created `json:"created,omitempty"`
	Guests  []Guest  `json:"guests,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
}

// Send writes one message, with a descriptor unless fd is negative.
func Send(c *net.UnixConn, v any, fd int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("spawn: encode: %w", err)
	}
	if len(b) > MaxMessage {
		return fmt.Errorf("spawn: a message of %d bytes; %d are possible", len(b), MaxMessage)
	}
	var oob []byte
	if fd >= 0 {
		oob = syscall.UnixRights(fd)
	}
	if _, _, err := c.WriteMsgUnix(b, oob, nil); err != nil {
		return fmt.Errorf("spawn: send: %w", err)
	}
	return nil
}

// Receive reads one message into v, using buf (MaxMessage bytes and one more). It
// gives the descriptor that came along, or -1; more than one are closed.
func Receive(c *net.UnixConn, buf []byte, v any) (fd int, err error) {
	oob := make([]byte, syscall.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return -1, fmt.Errorf("spawn: receive: %w", err)
	}
	fd = takeFD(oob[:oobn])
	if n == 0 {
		closeFD(fd)
		return -1, fmt.Errorf("spawn: receive: %w", net.ErrClosed)
	}
	if flags&syscall.MSG_TRUNC != 0 {
		closeFD(fd)
		return -1, fmt.Errorf("spawn: a message of more than %d bytes", len(buf))
	}
	if err := json.Unmarshal(buf[:n], v); err != nil {
		closeFD(fd)
		return -1, fmt.Errorf("spawn: decode: %w", err)
	}
	return fd, nil
}

func takeFD(oob []byte) int {
	first := -1
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	for _, m := range msgs {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if first < 0 {
				first = fd
				continue
			}
			closeFD(fd)
		}
	}
	return first
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = syscall.Close(fd)
	}
}
