package config

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seaofsimulation/sos"
)

func parse(t *testing.T, env map[string]string, args ...string) (Config, error) {
	t.Helper()
	c := Default()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	Bind(fs, &c)
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if err := FromEnv(fs, func(k string) string { return env[k] }); err != nil {
		return c, err
	}
	return c, c.Check()
}

func TestPrecedence(t *testing.T) {
	env := map[string]string{
		"SOS_SERVE_PORT": "4000", "SOS_SERVE_MAX_SANDBOXES": "7", "SOS_SERVE_TIMEOUT": "600",
		"SOS_SERVE_LISTEN": "127.0.0.2:9,unix:///x", "SOS_SERVE_DATA_DIR": "", "SOS_PORT": "tcp://10.0.0.1:80",
	}
	c, err := parse(t, env, "-m", "3", "--exec-timeout", "90s")
	if err != nil {
		t.Fatal(err)
	}
	if c.Port != 4000 {
		t.Errorf("port %d: the variable stands above the default", c.Port)
	}
	if c.MaxSandboxes != 3 {
		t.Errorf("max sandboxes %d: the flag stands above the variable", c.MaxSandboxes)
	}
	if c.Timeout != sos.Duration(10*time.Minute) || c.ExecTimeout != sos.Duration(90*time.Second) {
		t.Errorf("timeouts %v, %v: a plain number is seconds", c.Timeout, c.ExecTimeout)
	}
	if len(c.Listen) != 2 || c.DataDir != "/var/lib/sos" {
		t.Errorf("listen %q, data dir %q", c.Listen, c.DataDir)
	}
}

func TestEveryFlagHasItsVariable(t *testing.T) {
	c := Default()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	Bind(fs, &c)
	fs.VisitAll(func(f *pflag.Flag) {
		value := map[string]string{"int": "77", "bool": "true", "duration": "77s", "string": "warn", "stringSlice": "unix:///77"}[f.Value.Type()]
		want := map[string]string{"stringSlice": "[unix:///77]", "duration": "1m17s"}[f.Value.Type()]
		if want == "" {
			want = value
		}
		if err := FromEnv(fs, func(k string) string {
			if k == EnvName(f.Name) {
				return value
			}
			return ""
		}); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if got := f.Value.String(); got != want {
			t.Errorf("%s: %s=%q gave %q", f.Name, EnvName(f.Name), value, got)
		}
	})
}

func TestBadValues(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, []string{"--port", "70000"}, "not a port"},
		{nil, []string{"-m", "0"}, "lets no sandbox run"},
		{nil, []string{"--timeout", "soon"}, `"soon" is not a duration`},
		{nil, []string{"--timeout", "-5"}, `"-5" is not a duration`},
		{nil, []string{"--listen", "0.0.0.0:80"}, "is refused"},
		{nil, []string{"--listen", "[::]:80"}, "is refused"},
		{nil, []string{"--listen", "example.org:80"}, "is refused"},
		{nil, []string{"--listen", "80"}, "not an address"},
		{nil, []string{"--listen", "unix://x"}, "must be absolute"},
		{nil, []string{"--log-level", "loud"}, "not a level"},
		{nil, []string{"--data-dir", ""}, "is empty"},
		{map[string]string{"SOS_SERVE_PORT": "tcp"}, nil, "SOS_SERVE_PORT"},
		{map[string]string{"SOS_SERVE_TIMEOUT": "x"}, nil, `SOS_SERVE_TIMEOUT: "x" is not a duration`},
	} {
		if _, err := parse(t, tc.env, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v %v: got %v, want %q", tc.env, tc.args, err, tc.want)
		}
	}
	for _, ok := range [][]string{
		{"--listen", "0.0.0.0:80", "--insecure"}, {"--listen", "127.0.0.9:80"}, {"--listen", "[::1]:80"},
		{"--listen", "localhost:80"}, {"--timeout", "0"},
	} {
		if _, err := parse(t, nil, ok...); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
}
