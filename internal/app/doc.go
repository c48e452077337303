// Package app is the composition root: it makes the parts of a server from a
// configuration, joins them, runs them and ends them. It holds no logic of its
// own beyond order.
package app

import "errors"

// ErrSecondInterrupt: a second interrupt came while sandboxes were being stopped.
var ErrSecondInterrupt = errors.New("left at once; sandboxes that were not stopped yet go on running")

// DownReport says what Down did.
type DownReport struct {
	DataDir  string `json:"data_dir"`
	Instance string `json:"instance"`
	Stopped  int    `json:"stopped"` // sandboxes that ran
}
