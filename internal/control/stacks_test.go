package control

import (
	"runtime"
	"strings"
)

// stacks counts the goroutines that run code of this package or of the guest's
// client, other than tests.
func stacks() (n int) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		for _, mark := range []string{"control.(*life)", "control.(*Plane)", "control.(*group)", "client.(*Client)", "client.(*link)"} {
			if strings.Contains(g, mark) {
				n++
				break
			}
		}
	}
	return n
}
