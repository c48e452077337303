// Package config holds the one configuration of the server. A value comes from,
// in rising order: the default, the environment (SOS_SERVE_*), the flag.
package config

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/seaofsimulation/sos"
)

// Config is everything that can be chosen about a server.
type Config struct {
	Port     int      // of the loopback listeners (127.0.0.1 and ::1); 0: a free one
	Listen   []string // further addresses: "host:port" or "unix:///path"
	NoTCP    bool     // no loopback listeners, only the Unix socket and Listen
	Insecure bool     // allow addresses that are not loopback although nothing checks who calls
	Hosts    []string // names beside localhost and addresses that clients may call the server by

	MaxSandboxes int          // sandboxes that may run at once; further starts queue
	Timeout      sos.Duration // longest life of a running sandbox that names none; 0: no end
	ExecTimeout  sos.Duration // longest run of a command that names none; 0: no end
	StartTimeout sos.Duration // longest wait for admission of a start that names none; 0: no end
	StopGrace    sos.Duration // between TERM and KILL when a sandbox stops

	DataDir  string // everything that must survive: records, images, files of sandboxes
	RunDir   string // sockets and pids; each instance has a directory of its own in it
	LogLevel string // debug, info, warn or error

	// Not flags:
	Version, Commit string    // of this build
	LogTo           io.Writer // where the log goes; nil: stderr
}

// Default is the configuration of `sos serve` without flags and variables.
func Default() Config {
	return Config{
		Port:         3000,
		MaxSandboxes: 10,
		Timeout:      sos.Duration(24 * hour),
		StartTimeout: sos.Duration(hour),
		StopGrace:    sos.Duration(5 * second),
		DataDir:      "/var/lib/sos",
		RunDir:       "/run/sos",
		LogLevel:     "info",
	}
}

// Check says what is wrong with the values, or nil.
func (c Config) Check() error {
	switch {
	case c.Port < 0 || c.Port > 65535:
		return invalid("use a port from 1 to 65535, or 0 for a free one", "--port %d is not a port", c.Port)
	case c.MaxSandboxes < 1:
		return invalid("use a number from 1 up", "--max-sandboxes %d lets no sandbox run", c.MaxSandboxes)
	case c.DataDir == "":
		return invalid("name a directory, for example /var/lib/sos", "--data-dir is empty")
	case c.StopGrace < 0:
		return invalid("use 0 or more", "--stop-grace is negative")
	}
	if _, err := c.Level(); err != nil {
		return err
	}
	for _, l := range c.Listen {
		if err := checkListen(l, c.Insecure); err != nil {
			return err
		}
	}
	return nil
}

// Level is LogLevel as slog has it.
func (c Config) Level() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, invalid("use debug, info, warn or error", "--log-level %q is not a level", c.LogLevel)
	}
	return l, nil
}

func checkListen(addr string, insecure bool) error {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			return invalid("write unix:///run/sos.sock", "--listen %s: the path of a socket must be absolute", addr)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return invalid("write host:port, [ipv6]:port or unix:///path", "--listen %s is not an address", addr)
	}
	ip := net.ParseIP(host)
	if insecure || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return invalid("listen on loopback and forward to it (ssh -L), or add --insecure where the network is trusted",
		"--listen %s is refused: whoever reaches that address could run commands here, for nothing checks who calls", addr)
}

func invalid(fix, format string, args ...any) error {
	return &sos.Error{Code: sos.CodeInvalid, Message: fmt.Sprintf(format, args...), Fix: fix}
}
