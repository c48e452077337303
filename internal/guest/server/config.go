package server

import (
	"strconv"
	"strings"
)

// Config is what whoever started the guest tells it.
type Config struct {
	Listen int    // descriptor of a listening unix socket
	Join   []int  // descriptors of cgroup files that every child writes "0" to before exec
	OOM    int    // descriptor of memory.oom_control or memory.events; -1: none
	Dir    string // a small tmpfs of the guest's own, for sessions; empty: none
	Build  string
}

// ParseConfig reads the value of SOS_GUEST: "listen=3;join=4,5;oom=7;dir=/dev/.sos".
// What it does not know it passes over. False: there is no proper listen.
func ParseConfig(s string) (Config, bool) {
	c := Config{Listen: -1, OOM: -1}
	for field := range strings.SplitSeq(s, ";") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "listen":
			c.Listen = fd(value)
		case "oom":
			c.OOM = fd(value)
		case "dir":
			c.Dir = value
		case "join":
			for v := range strings.SplitSeq(value, ",") {
				if n := fd(v); n >= 0 {
					c.Join = append(c.Join, n)
				}
			}
		}
	}
	return c, c.Listen >= 0
}

func fd(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 3 || n > 1<<20 {
		return -1
	}
	return n
}
