package session

import (
	"strconv"
	"strings"

	"github.com/seaofsimulation/sos/internal/guest"
)

// Control lines are what bash reads on descriptor 0. Each begins with a blank,
// which keeps it out of a history that the user turned on, and each is a line of
// its own, because an interrupt or an expansion error throws away the rest of
// its line only. They use one name, the builtin ".", behind a backslash, which
// defeats an alias; text of the user is never part of one.
//
//	)                                   H  after a syntax error
//	\. D/rc && 2>&2                     R  gives $? its last value
//	\. D/cmd <in >D/oN 2>&1             C  the text
//	((0xNONCE,$?/0,$-)) || 2>&2         S  the status
//
// H works round a memory fault of bash 5.2: an unterminated "$(" leaves its
// stack of quotes one below empty, the next quote in any text is written in
// front of the heap block, and the shell may die of it. A further syntax error
// resets the stack. It is sent after a status of 2, after a text that may have
// had such an error inside (eval, another file), and where we bring quotes of our
// own (variables, directory).
// Under set -e a syntax error ends the shell, so there it is left out.
const (
	lineH = " )\n"
	posix = "Q" // in flags: posix mode
)

// statusLine makes bash print an error of its own that holds $? and $-: no
// builtin, function, alias or variable of the user can be in its way, and it has
// no quote. It leaves $? at 0 and is spared by -e and ERR. Asked again, it
// answers by 255, bash's own copy of its first stderr, in case a trap of the
// user has moved it.
func statusLine(nonce string, again bool) string {
	by := ""
	if again {
		by = " 2>&255"
	}
	return " ((0x" + nonce + ",$?/0,$-${POSIXLY_CORRECT+" + posix + "}))" + by + " || 2>&2\n"
}

// compose writes the files of a command and gives its control lines.
func (s *Shell) compose(c guest.SessionCommand, nonce string) (lines string, err error) {
	strict := strings.Contains(s.flags, "e")
	probe, words := assignments(c.Env)
	quoted := words != ""
	if (s.last == 2 || s.risky || quoted || c.Cwd != "") && !strict {
		lines = lineH
	}
	first := ""
	if c.Cwd != "" {
		if first = `\builtin cd -- ` + cdWord(c.Cwd) + ` || \return; `; strict {
			first = strictCd(cdWord(c.Cwd), nonce)
		}
	}
	if s.last != 0 || lines != "" {
		if err := s.dir.put("rc", []byte("return "+strconv.Itoa(s.last)+"\n")); err != nil {
			return "", err
		}
		r := `\. ` + s.dir.path + "/rc && 2>&2"
		if first != "" || quoted {
			first += r + "; " // the probe or cd would change $? again
		} else {
			lines += " " + r + "\n"
		}
	}
	text := make([]byte, 0, len(first)+len(c.Text)+64)
	text = append(append(append(text, first...), c.Text...), '\n')
	if (strict || mayStrict(c.Text)) && !strings.Contains(s.flags, "v") && !mayShow(c.Text) && s.complete(c.Text) {
		text = append(text, strictLine(nonce)...)
	}
	if err := s.dir.put("cmd", text); err != nil {
		return "", err
	}
	stdin := "/dev/null"
	if len(c.Stdin) > 0 {
		stdin = s.dir.path + "/" + s.stdinName()
		if err := s.dir.put(s.stdinName(), c.Stdin); err != nil {
			return "", err
		}
	}
	s.risky = strings.Contains(c.Text, "eval") || reads(c.Text)
	dot := `\. `
	if quoted && strings.Contains(s.flags, posix) {
		dot = `\command . ` // in posix mode variables in front of "." would stay
	}
	lines += " " + probe + words + dot + s.dir.path + "/cmd <" + stdin + " >" + s.dir.path + "/" + s.fifoName() + " 2>&1\n"
	return lines + statusLine(nonce, false), nil
}
