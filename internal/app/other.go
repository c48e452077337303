//go:build !linux

package app

import (
	"context"
	"io"
	"os"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
)

func needLinux(command string) error {
	return &sos.Error{Code: sos.CodeUnsupported,
		Message: command + " needs Linux: sandboxes are made of Linux namespaces",
		Fix:     "run the server on a Linux machine and reach it with --server http://… or SOS_SERVER"}
}

// Serve runs a server, which this system cannot.
func Serve(context.Context, config.Config, io.Writer, <-chan os.Signal) error {
	return needLinux("sos serve")
}

// Down ends what a data directory has running, which on this system is nothing.
func Down(context.Context, config.Config, bool) (DownReport, error) {
	return DownReport{}, needLinux("sos down")
}
