package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/seaofsimulation/sos"
)

const (
	second = time.Second
	hour   = time.Hour
)

// EnvPrefix begins the variable of every flag of `sos serve`. It is not "SOS_"
// alone, because Kubernetes puts SOS_PORT into pods beside a service named sos.
const EnvPrefix = "SOS_SERVE_"

// Bind makes the flags of `sos serve`; parsing them writes into c, whose present
// values are the defaults.
func Bind(fs *pflag.FlagSet, c *Config) {
	fs.IntVarP(&c.Port, "port", "p", c.Port, "`port` on 127.0.0.1 and ::1; 0: a free one")
	fs.IntVarP(&c.MaxSandboxes, "max-sandboxes", "m", c.MaxSandboxes, "`number` of sandboxes that run at once; further starts queue")
	fs.Var((*duration)(&c.Timeout), "timeout", "longest life of a running sandbox (`duration`: 600, 90m, 24h; 0: none); it is then stopped, files kept")
	fs.Var((*duration)(&c.ExecTimeout), "exec-timeout", "longest run of a command that names none (`duration`; 0: none)")
	fs.Var((*duration)(&c.StartTimeout), "start-timeout", "longest wait of a start for its turn (`duration`; 0: none)")
	fs.Var((*duration)(&c.StopGrace), "stop-grace", "`duration` between TERM and KILL when a sandbox stops")
	fs.StringSliceVar(&c.Listen, "listen", c.Listen, "further `address`: host:port or unix:///path (repeatable)")
	fs.BoolVar(&c.NoTCP, "no-tcp", c.NoTCP, "do not listen on loopback TCP, only on the Unix socket and --listen")
	fs.BoolVar(&c.Insecure, "insecure", c.Insecure, "allow --listen on addresses that others can reach")
	fs.StringSliceVar(&c.Hosts, "host", c.Hosts, "`name` that clients may call this server by, beside localhost and addresses (repeatable)")
	BindDataDir(fs, c)
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`level` of the log: debug, info, warn or error")
}

// BindDataDir makes the flags that say where a server keeps its things; other
// commands than serve need them too.
func BindDataDir(fs *pflag.FlagSet, c *Config) {
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "`directory` of records, images and files of sandboxes")
	fs.StringVar(&c.RunDir, "run-dir", c.RunDir, "`directory` of sockets and pids")
}

// EnvName is the variable of a flag: "max-sandboxes" has SOS_SERVE_MAX_SANDBOXES.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnv sets every flag that was not given from its variable. An empty variable
// counts as not set.
func FromEnv(fs *pflag.FlagSet, getenv func(string) string) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		v := getenv(EnvName(f.Name))
		if f.Changed || v == "" {
			return
		}
		if err := fs.Set(f.Name, v); err != nil {
			errs = append(errs, fmt.Errorf("variable %s: %w", EnvName(f.Name), errors.Unwrap(err)))
		}
	})
	return errors.Join(errs...)
}

// duration makes a sos.Duration a flag: a plain number is seconds.
type duration sos.Duration

func (d *duration) String() string { return Text(sos.Duration(*d)) }
func (d *duration) Type() string   { return "duration" }
func (d *duration) Set(s string) error {
	v, err := sos.ParseDuration(s)
	if err != nil {
		return err
	}
	*d = duration(v)
	return nil
}

// Text writes a duration as people do: "24h", not "24h0m0s".
func Text(d sos.Duration) string {
	b, err := d.MarshalJSON()
	if err != nil {
		return d.String()
	}
	return strings.Trim(string(b), `"`)
}
