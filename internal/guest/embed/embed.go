// Package embed holds the guest binaries that were built into this one.
package embed

import (
	"embed"
	"fmt"
)

// bin has sos-guest-GOARCH for each architecture that make build was run for.
// Its .keep lets a fresh clone compile.
//
//go:embed all:bin
var bin embed.FS

// Guest is the guest's static binary for goarch ("amd64", "arm64"). An error says
// that this build has none and what to do.
func Guest(goarch string) ([]byte, error) {
	b, err := bin.ReadFile("bin/sos-guest-" + goarch)
	if err != nil {
		return nil, fmt.Errorf("built without the guest for %s: run make build", goarch)
	}
	return b, nil
}
