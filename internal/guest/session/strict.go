package session

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Under set -e the builtin that reads the text must itself not fail where bash
// would have gone on ("a && b", "! c"), and it must not stand in a list either,
// which would switch -e off inside. The text then ends with a line that reports
// its status on bash's own copy of its first stderr and succeeds. A text that is
// not complete cannot have that line (a syntax error ends a shell under set -e
// anyway), nor one under set -v, which would show it.

// strictLine is that line.
func strictLine(nonce string) string {
	return "((0x" + nonce + ",1*$?/0,$-)) 2>&255 || 2>&2\n"
}

// strictCd changes the directory under set -e: a failure is the status of the
// command, not the end of the shell.
func strictCd(word, nonce string) string {
	return `\builtin cd -- ` + word + " || ((0x" + nonce + ",1*$?/0,$-)) 2>&255 || \\return 0; "
}

// mayStrict: the text may switch -e on. A wrong yes costs a few milliseconds, a
// wrong no can cost the shell.
func mayStrict(text string) bool {
	return strings.Contains(text, "errexit") || sets(text, 'e') || reads(text)
}

// mayShow: the text may switch -v on.
func mayShow(text string) bool { return strings.Contains(text, "verbose") || sets(text, 'v') }

// sets finds "set" with an option word that has the letter.
func sets(text string, letter byte) bool {
	for _, rest := range after(text, "set") {
		if i := strings.IndexAny(rest, "\n;&|"); i >= 0 {
			rest = rest[:i]
		}
		for _, w := range strings.Fields(rest) {
			if (w[0] == '-' || w[0] == '"' || w[0] == '\'') && strings.IndexByte(w, letter) >= 0 {
				return true
			}
		}
	}
	return false
}

// reads finds a command that reads another file, which may set anything.
func reads(text string) bool {
	if len(after(text, "source")) > 0 {
		return true
	}
	for i := 0; ; i++ {
		j := strings.IndexByte(text[i:], '.')
		if j < 0 {
			return false
		}
		if i += j; i+1 >= len(text) || text[i+1] != ' ' && text[i+1] != '\t' {
			continue
		}
		before := strings.TrimRight(text[:i], " \t\\")
		if before == "" || strings.IndexByte("\n;&|({`!", before[len(before)-1]) >= 0 {
			return true
		}
	}
}

// after gives what follows each place where word stands by itself in front of a
// blank.
func after(text, word string) (rests []string) {
	for i := 0; ; {
		j := strings.Index(text[i:], word)
		if j < 0 {
			return rests
		}
		j += i
		i = j + len(word)
		if i >= len(text) || text[i] != ' ' && text[i] != '\t' {
			continue
		}
		if j == 0 || strings.IndexByte(" \t\n;&|({`\\'\"!", text[j-1]) >= 0 {
			rests = append(rests, text[i:])
		}
	}
}

// complete: another bash, which only parses, has nothing to say about the text.
func (s *Shell) complete(text string) bool {
	if strings.HasSuffix(text, `\`) || s.dir.put("check", []byte(text+"\n")) != nil {
		return false
	}
	defer s.dir.remove("check")
	var p [2]int
	if unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return false
	}
	defer closeAll(p[0])
	child, err := s.cfg.Host.Fork(Fork{
		Path: s.bash, Argv: []string{"bash", "-n", "-O", "extglob", s.dir.path + "/check"},
		Env: []string{"LC_ALL=C.UTF-8"}, Cwd: "/", User: s.cfg.Spec.User, Files: [3]int{s.null, p[1], p[1]},
	})
	closeAll(p[1])
	if err != nil {
		return false
	}
	t := time.NewTimer(parseLimit)
	defer t.Stop()
	select {
	case <-child.Done:
	case <-t.C:
		unix.Kill(child.Pid, unix.SIGKILL)
		<-child.Done
		return false
	}
	var b [1]byte
	n, _ := unix.Read(p[0], b[:])
	return n <= 0 && child.Status().Exited() && child.Status().ExitStatus() == 0
}

// parseLimit bounds the parsing of a text by another bash.
const parseLimit = 5 * time.Second
