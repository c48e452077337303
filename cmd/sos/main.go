// Command sos is the server of SoS and its command line.
package main

import (
	"os"
	"runtime/debug"

	"github.com/seaofsimulation/sos/internal/cli"
)

// Set by the linker (see Makefile).
var version, commit string

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.System(), build()))
}

// build falls back to what the Go tool records of a plain `go build`.
func build() cli.Build {
	b := cli.Build{Version: version, Commit: commit}
	info, ok := debug.ReadBuildInfo()
	if b.Version == "" {
		b.Version = "0.1.0-dev"
	}
	if b.Commit != "" || !ok {
		return b
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value[:min(12, len(s.Value))]
		}
	}
	return b
}
