// sos-guest is process 1 of every sandbox. Whoever starts it says in SOS_GUEST
// which descriptors it was given: see server.ParseConfig.
package main

import (
	"os"

	"github.com/seaofsimulation/sos/internal/guest/server"
)

// build is set by the linker.
var build = "dev"

func main() {
	cfg, ok := server.ParseConfig(os.Getenv("SOS_GUEST"))
	if !ok {
		fail("SOS_GUEST does not name a listening socket: this program is started by sos, not by hand")
	}
	cfg.Build = build
	if err := server.Serve(cfg); err != nil {
		fail(err.Error())
	}
}

func fail(why string) {
	os.Stderr.WriteString("sos-guest: " + why + "\n")
	os.Exit(1)
}
