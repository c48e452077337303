package client

import (
	"strings"
	"time"
	"unicode"

	"github.com/seaofsimulation/sos"
)

// proc is a process that the guest may tell of. Its fields but call are the
// reader's.
type proc struct {
	call     uint64 // that starts it, in flight or answered; under Client.mu
	since    time.Time
	expected map[sos.Stream]int64 // what comes next
	started  bool
	exited   bool
}

// know gives the process of an id, new if need be. Called under c.mu.
func (c *Client) know(id string) *proc {
	p := c.procs[id]
	if p == nil {
		p = &proc{since: time.Now(), expected: map[sos.Stream]int64{}}
		c.procs[id] = p
	}
	return p
}

// lookup is nil for what the guest has no business with.
func (c *Client) lookup(id string) *proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.procs[id]
}

// clamp makes a guest's time one that can be: not in the future, not before the
// host asked for it. The clocks of guest and host are one, so it changes nothing
// that is honest.
func (p *proc) clamp(at time.Time) time.Time {
	now := time.Now().UTC()
	floor := p.since
	if floor.IsZero() { // of an earlier server: any time that can be one
		floor = now.AddDate(-10, 0, 0)
	}
	if at.After(now) {
		return now
	}
	if at.Before(floor) {
		return floor.UTC()
	}
	return at
}

// cleanExit makes a guest's claim presentable; false when it is none.
func cleanExit(e sos.Exit) (sos.Exit, bool) {
	if e.Reason == "" || !known(e.Signal) {
		return e, false
	}
	e.Message = cleanText(e.Message)
	return e, true
}

// known says whether a signal's name looks like one.
func known(signal string) bool {
	if signal == "" {
		return true
	}
	rest, ok := strings.CutPrefix(signal, "SIG")
	return ok && rest != "" && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+") == ""
}

// cleanText takes out of a guest's sentence what could play tricks on a terminal.
func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
