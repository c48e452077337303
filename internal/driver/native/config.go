package native

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seaofsimulation/sos/internal/guest/embed"
)

// Config says where the driver works. DataDir and Instance are needed.
type Config struct {
	DataDir  string // absolute; held by this process alone (its lock is the caller's)
	RunDir   string // of the instance, on the host's disk or a tmpfs; default /run/sos/<instance>
	Instance string // 8 lower-case base32 characters, in every name on the host
	Log      *slog.Logger

	// SpawnerPath and GuestPath name static binaries that take the place of those
	// built in, for tests and development.
	SpawnerPath, GuestPath string
	// IDsDir holds the claims of id ranges of all instances of the host; default
	// DefaultIDsDir.
	IDsDir string
}

func (c Config) withDefaults() (Config, error) {
	if !filepath.IsAbs(c.DataDir) {
		return c, fmt.Errorf("native driver: data directory %q is not an absolute path", c.DataDir)
	}
	c.DataDir = filepath.Clean(c.DataDir)
	if c.Instance == "" {
		return c, fmt.Errorf("native driver: no instance name for %s", c.DataDir)
	}
	if c.RunDir == "" {
		c.RunDir = DefaultRunDir(c.Instance)
	}
	if c.IDsDir == "" {
		c.IDsDir = DefaultIDsDir
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// spawner and guest are the bytes of the programs.
func (c Config) spawner() ([]byte, error) {
	if c.SpawnerPath != "" {
		return os.ReadFile(c.SpawnerPath)
	}
	return embeddedSpawner()
}

func (c Config) guest() ([]byte, error) {
	if c.GuestPath != "" {
		return os.ReadFile(c.GuestPath)
	}
	return embed.Guest(runtime.GOARCH)
}
