package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seaofsimulation/sos"
)

func TestListenLoopback(t *testing.T) {
	l, err := Listen(t.Context(), ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	port := l[0].Addr().(*net.TCPAddr).Port
	for _, x := range l {
		a := x.Addr().(*net.TCPAddr)
		if !a.IP.IsLoopback() || a.Port != port {
			t.Errorf("listens on %v", a)
		}
		defer x.Close()
	}
	if _, err := Listen(t.Context(), ListenConfig{Port: port}); sos.ErrorCode(err) != sos.CodeUnavailable || !strings.Contains(err.(*sos.Error).Fix, "--port") {
		t.Errorf("a port in use: %v", err)
	}
}

func TestNoIPv6(t *testing.T) {
	for _, errno := range []error{syscall.EAFNOSUPPORT, syscall.EADDRNOTAVAIL} {
		if !noIPv6(&net.OpError{Op: "listen", Err: os.NewSyscallError("socket", errno)}) {
			t.Errorf("%v", errno)
		}
	}
	if noIPv6(syscall.EADDRINUSE) {
		t.Error("a port in use is not the lack of IPv6")
	}
}

func TestListenBeyondLoopback(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:80", "example.org:80"} {
		_, err := Listen(t.Context(), ListenConfig{NoTCP: true, Addrs: []string{addr}})
		if sos.ErrorCode(err) != sos.CodeInvalid || !strings.Contains(err.(*sos.Error).Fix, "--insecure") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, err := Listen(t.Context(), ListenConfig{NoTCP: true, Addrs: []string{"3000"}}); sos.ErrorCode(err) != sos.CodeInvalid {
		t.Errorf("no address: %v", err)
	}
	l, err := Listen(t.Context(), ListenConfig{NoTCP: true, Insecure: true, Addrs: []string{"0.0.0.0:0"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = l[0].Close()
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := Listen(t.Context(), ListenConfig{NoTCP: true, Unix: path})
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if _, err := Listen(t.Context(), ListenConfig{NoTCP: true, Addrs: []string{"unix://" + path}}); sos.ErrorCode(err) != sos.CodeConflict {
		t.Errorf("a living server: %v", err)
	}
	l[0].(*net.UnixListener).SetUnlinkOnClose(false) // as a killed server leaves it
	_ = l[0].Close()
	if l, err = Listen(t.Context(), ListenConfig{NoTCP: true, Unix: path}); err != nil {
		t.Fatalf("a dead server's socket: %v", err)
	}
	_ = l[0].Close()
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), ListenConfig{NoTCP: true, Unix: path}); sos.ErrorCode(err) != sos.CodeConflict {
		t.Errorf("a file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "data" {
		t.Error("the file is gone")
	}
	if _, err := Listen(context.Background(), ListenConfig{NoTCP: true, Unix: "/" + strings.Repeat("x", 120)}); sos.ErrorCode(err) != sos.CodeInvalid {
		t.Errorf("too long: %v", err)
	}
}
