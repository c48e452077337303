package session

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// word names an end as the table does.
func word(e sos.Exit) string {
	switch {
	case e.ShellEnded && (e.Reason == sos.EndExit || e.Reason == sos.EndSignal):
		return "shell_ended"
	case e.ShellEnded && e.Reason == sos.EndTimeout:
		return "timeout_killed"
	case e.Reason == sos.EndShellBroken:
		return "broken"
	}
	return string(e.Reason)
}

// try runs one step and says what is wrong with its result.
func try(s *Shell, tmp string, st step) string {
	var out record
	r := s.Run(guest.SessionCommand{Text: strings.ReplaceAll(st.cmd, "/tmp/sl.", tmp+"/sl."),
		Stdin: []byte(st.stdin), Timeout: max(st.limit, 300*time.Millisecond)}, &out, func() {})
	closeAll(r.Rest)
	code := -1
	if r.Exit.ExitCode != nil {
		code = *r.Exit.ExitCode
	}
	why := st.why
	if why == "" {
		why = "exit"
	}
	good := slices.Contains(strings.Split(why, "|"), word(r.Exit)) && (st.code == anyCode || st.code == code)
	if re, is := strings.CutPrefix(st.out, "~"); is {
		good = good && regexp.MustCompile("(?s)"+re).MatchString(out.String())
	} else {
		good = good && out.String() == st.out
	}
	if good {
		return ""
	}
	return fmt.Sprintf("%.70q gave %s with %.200q, want %s %d %.100q", st.cmd, show(r.Exit), out.String(), why, st.code, st.out)
}

// TestCases runs each case of the table in a session of its own. Most of their
// time is waiting, so more of them run at once than there are processors.
func TestCases(t *testing.T) {
	if len(cases) != 154 {
		t.Fatalf("%d cases", len(cases))
	}
	queue := make(chan tcase)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for c := range queue {
				t.Run(c.name, func(t *testing.T) { table(t, c.steps) })
			}
		})
	}
	for _, c := range cases {
		queue <- c
	}
	close(queue)
	wg.Wait()
}

func table(t *testing.T, steps []step) {
	s, tmp := open(t), t.TempDir()
	for _, st := range steps {
		if st.limit == 0 {
			st.limit = limit
		}
		if why := try(s, tmp, st); why != "" {
			t.Fatal(why)
		}
	}
}
