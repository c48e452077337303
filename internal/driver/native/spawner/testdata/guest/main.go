// The guest of the tests: one connection to its socket is one shell text, of which
// it sends back the output. "exit n" ends it, "crash" makes it panic.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	var join []*os.File
	for _, fact := range strings.Split(os.Getenv("SOS_GUEST"), ";") {
		if list, ok := strings.CutPrefix(fact, "join="); ok {
			for _, n := range strings.Split(list, ",") {
				fd, _ := strconv.Atoi(n)
				join = append(join, os.NewFile(uintptr(fd), "join"))
			}
		}
	}
	for fd := 3; fd < 16; fd++ {
		syscall.CloseOnExec(fd)
	}
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go serve(c, join)
	}
}

func serve(c net.Conn, join []*os.File) {
	defer c.Close()
	b, _ := io.ReadAll(c)
	text := string(b)
	if n, ok := strings.CutPrefix(text, "exit "); ok {
		code, _ := strconv.Atoi(n)
		os.Exit(code)
	}
	if text == "crash" {
		panic("these are my last words")
	}
	prefix := ""
	for i := range join {
		prefix += fmt.Sprintf("echo 0 >&%d; exec %d>&-; ", 3+i, 3+i)
	}
	cmd := exec.Command("/bin/bash", "-c", prefix+text)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = join
	cmd.Stdout, cmd.Stderr = c, c
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(c, "[%v]", err)
	}
}
