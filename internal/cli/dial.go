package cli

import (
	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/client"
)

// dial makes a client of the server at a URL; nothing is connected yet.
func dial(url string) (sos.Service, error) {
	return client.New(client.Config{URL: url, UserAgent: "sos-cli"}), nil
}
