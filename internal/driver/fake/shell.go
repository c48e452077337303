package fake

import (
	"strconv"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// shell is the state of the scripted shell.
type shell struct {
	cwd   string
	vars  map[string]string
	saved map[string]*string // variables that oneCommand set: what they were
}

func newShell(cwd string, env []string) *shell {
	sh := &shell{cwd: cwd, vars: map[string]string{}}
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			sh.vars[k] = v
		}
	}
	return sh
}

// oneCommand sets what is for the next text only, except the directory, which
// stays as after a cd.
func (sh *shell) oneCommand(env map[string]string, cwd string) {
	sh.saved = map[string]*string{}
	for _, k := range sortedKeys(env) {
		sh.saved[k] = nil
		if old, ok := sh.vars[k]; ok {
			sh.saved[k] = &old
		}
		sh.vars[k] = env[k]
	}
	if cwd != "" {
		sh.cwd = cwd
	}
}

func (sh *shell) restore() {
	for k, old := range sh.saved {
		delete(sh.vars, k)
		if old != nil {
			sh.vars[k] = *old
		}
	}
	sh.saved = nil
}

// task is what one text runs with.
type task struct {
	g     *guest
	p     *proc
	stdin []byte
	redir string // FILE of "> FILE", for the statement that runs
	held  strings.Builder
}

// stdout writes to the stream of the process, or to the redirection.
func (t *task) stdout(s string) {
	if t.redir != "" {
		t.held.WriteString(s)
		return
	}
	t.emit(sos.StreamStdout, s)
}

func (t *task) stderr(s string) { t.emit(sos.StreamStderr, s) }

func (t *task) emit(stream sos.Stream, s string) {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	if !t.p.split {
		stream = sos.StreamOut
	}
	t.p.streams[stream] = append(t.p.streams[stream], s...)
	t.g.pump(t.p)
}

// pass waits while the sandbox is frozen; false when the process was ended.
func (t *task) pass() bool {
	select {
	case <-t.g.gate():
	case <-t.p.ctx.Done():
	}
	return t.p.ctx.Err() == nil
}

// run runs the statements of a text. exited: the text said exit.
func (sh *shell) run(t *task, text string) (code int, exited bool) {
	for _, st := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '&' || r == '\n' }) {
		if !t.pass() {
			return 0, false
		}
		st, file, _ := strings.Cut(st, ">")
		t.redir = strings.TrimSpace(file)
		words := sh.words(st)
		if len(words) == 0 {
			continue
		}
		if code, exited = sh.statement(t, words); exited {
			return code, true
		}
		if t.redir != "" {
			t.g.files.write(sh.cwd, t.redir, t.held.String())
			t.held.Reset()
		}
	}
	return code, false
}

// words splits a statement, puts variables in and takes quotes away.
func (sh *shell) words(st string) []string {
	words := strings.Fields(st)
	for i, w := range words {
		if name, ok := strings.CutPrefix(strings.Trim(w, `"`), "$"); ok {
			words[i] = sh.vars[name]
			continue
		}
		words[i] = strings.Trim(w, `'"`)
	}
	return words
}

func (sh *shell) statement(t *task, w []string) (code int, exited bool) {
	arg := ""
	if len(w) > 1 {
		arg = w[1]
	}
	number, _ := strconv.Atoi(arg)
	switch w[0] {
	case "echo":
		t.stdout(join(w[1:]) + "\n")
	case "cat":
		return sh.cat(t, arg), false
	case "exit":
		return number & 0xff, true
	case "sleep":
		sec, _ := strconv.ParseFloat(arg, 64)
		sleep(t.p.ctx, time.Duration(sec*float64(time.Second)))
		t.pass()
	case "hang":
		<-t.p.ctx.Done()
	case "true", "trap", "wait":
	case "false":
		return 1, false
	case "fail":
		t.stderr("fail: as asked for\n")
		return 1, false
	case "spam":
		t.stdout(strings.Repeat("x", number))
	case "printf":
		n, _ := strconv.Atoi(strings.Trim(arg, "%d"))
		t.stdout(strings.Repeat("0", n))
	case "cd":
		sh.cwd = abs(sh.cwd, arg)
	case "pwd":
		t.stdout(sh.cwd + "\n")
	case "oom":
		t.g.outOfMemory(t.p)
	case "crash":
		t.g.kill(driver.Exit{Known: true, Code: 2, Message: "the guest crashed as asked for"})
	default:
		return sh.other(t, w)
	}
	return 0, false
}

func (sh *shell) cat(t *task, file string) int {
	if file == "" {
		t.stdout(string(t.stdin))
		return 0
	}
	s, ok := t.g.files.read(sh.cwd, file)
	if !ok {
		t.stderr("cat: " + file + ": No such file or directory\n")
		return 1
	}
	t.stdout(s)
	return 0
}

// other is an assignment or an unknown command.
func (sh *shell) other(t *task, w []string) (int, bool) {
	if k, v, ok := strings.Cut(w[0], "="); ok && len(w) == 1 {
		sh.vars[k] = strings.Trim(v, `'"`)
		return 0, false
	}
	t.stderr("sh: " + w[0] + ": command not found\n")
	return 127, false
}

func (g *guest) outOfMemory(p *proc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ooms++
	g.stopProc(p, sos.EndOOM, 9)
}

func join(words []string) string { return strings.Join(words, " ") }

func signalName(n int) string {
	switch n {
	case 2:
		return "SIGINT"
	case 9:
		return "SIGKILL"
	case 15:
		return "SIGTERM"
	}
	return "SIG" + strconv.Itoa(n)
}
