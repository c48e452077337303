package native

import (
	"embed"
	"fmt"
	"runtime"
)

// bin holds the spawner of this build, put there by make build; a build without
// it holds .keep only.
//
//go:embed all:bin
var bin embed.FS

// embeddedSpawner is the spawner's static binary for this machine.
func embeddedSpawner() ([]byte, error) {
	b, err := bin.ReadFile("bin/sos-spawner-" + runtime.GOARCH)
	if err != nil {
		return nil, fmt.Errorf("built without the spawner for %s: run make build", runtime.GOARCH)
	}
	return b, nil
}
