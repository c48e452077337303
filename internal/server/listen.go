package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seaofsimulation/sos"
)

// ListenConfig says where to listen. With nothing set nothing is listened on.
type ListenConfig struct {
	// Port listens on 127.0.0.1 and, where the host has IPv6, on ::1; 0 picks one
	// port that is free on both. NoTCP leaves both out.
	Port  int
	NoTCP bool
	// Addrs are further addresses: "0.0.0.0:3000", "unix:///path". Those beyond
	// loopback are refused without Insecure, because nobody is asked who he is.
	Addrs    []string
	Insecure bool
	// Unix is the path of a socket, made with mode 0660; empty: none.
	Unix string
}

// Listen opens all listeners or none.
func Listen(ctx context.Context, cfg ListenConfig) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			listeners = nil
		}
	}()
	var tcp, unix []string
	for _, addr := range cfg.Addrs {
		if path, ok := strings.CutPrefix(addr, "unix://"); ok {
			unix = append(unix, path)
			continue
		}
		if err := checkAddr(addr, cfg.Insecure); err != nil {
			return nil, err
		}
		tcp = append(tcp, addr)
	}
	if cfg.Unix != "" {
		unix = append(unix, cfg.Unix)
	}
	if !cfg.NoTCP {
		if listeners, err = loopback(ctx, cfg.Port); err != nil {
			return listeners, err
		}
	}
	var lc net.ListenConfig
	for _, addr := range tcp {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return listeners, listenError(addr, err)
		}
		listeners = append(listeners, l)
	}
	for _, path := range unix {
		l, err := listenUnix(ctx, path)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func checkAddr(addr string, insecure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return &sos.Error{Code: sos.CodeInvalid, Message: fmt.Sprintf("%q is not an address to listen on", addr),
			Fix: `use host:port, for example "127.0.0.1:3000" or "[::1]:3000"`}
	}
	ip, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && ip.IsLoopback() || insecure {
		return nil
	}
	return &sos.Error{Code: sos.CodeInvalid, Message: "refusing to listen on " + addr + ": this server asks nobody for credentials, so whoever reaches it may use it",
		Fix: "keep to loopback and use an SSH tunnel or a proxy that asks for credentials; --insecure listens there all the same"}
}

// loopback listens on both loopback addresses with one port. A host without IPv6
// has only the first.
func loopback(ctx context.Context, port int) ([]net.Listener, error) {
	var lc net.ListenConfig
	var err error
	for range 10 { // a port that is free on the one may be taken on the other
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		v4, err4 := lc.Listen(ctx, "tcp4", addr)
		if err4 != nil {
			return nil, listenError(addr, err4)
		}
		addr = net.JoinHostPort("::1", strconv.Itoa(v4.Addr().(*net.TCPAddr).Port))
		v6, err6 := lc.Listen(ctx, "tcp6", addr)
		switch {
		case err6 == nil:
			return []net.Listener{v4, v6}, nil
		case noIPv6(err6):
			return []net.Listener{v4}, nil
		}
		_ = v4.Close()
		err = listenError(addr, err6)
		if port != 0 {
			break
		}
	}
	return nil, err
}

func noIPv6(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.ENETUNREACH)
}

func listenError(addr string, err error) error {
	e := &sos.Error{Code: sos.CodeUnavailable, Message: fmt.Sprintf("cannot listen on %s: %v", addr, reason(err)), Cause: err}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Fix = "another program has the port: choose one with --port (0 picks a free one)"
	case errors.Is(err, syscall.EACCES):
		e.Fix = "ports below 1024 need root or CAP_NET_BIND_SERVICE"
	}
	return e
}

func reason(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// maxSocketPath is what fits into a socket address.
const maxSocketPath = 107

// listenUnix makes the socket for root and its group. A socket that a dead
// server left is replaced; a living server's is not.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, &sos.Error{Code: sos.CodeInvalid, Message: fmt.Sprintf("socket path %s is longer than %d bytes", path, maxSocketPath),
			Fix: "choose a shorter one"}
	}
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode()&fs.ModeSocket == 0 {
			return nil, &sos.Error{Code: sos.CodeConflict, Message: path + " exists and is not a socket", Fix: "remove it or choose another path"}
		}
		dialer := net.Dialer{Timeout: time.Second}
		if c, err := dialer.DialContext(ctx, "unix", path); err == nil {
			_ = c.Close()
			return nil, &sos.Error{Code: sos.CodeConflict, Message: "another server listens on " + path, Fix: "stop it, or choose another path"}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, sos.Errorf(sos.CodeUnavailable, "remove the stale socket %s: %w", path, err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, listenError(path, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		_ = l.Close()
		return nil, sos.Errorf(sos.CodeUnavailable, "set the mode of %s: %w", path, err)
	}
	return l, nil
}
