package servicetest

import (
	"strings"

	"github.com/seaofsimulation/sos"
)

// realShell holds where real programs run.
func realShell(s *suite) {
	if !s.Real {
		return
	}
	id := s.started()
	s.want(id, "# only a comment", "", 0)
	s.want(id, "echo 'Hello, World!' && cd not-exists", "Hello, World!\nbash: cd: not-exists: No such file or directory", 1)
	s.want(id, "echo $?", "1", 0)
	s.want(id, "false | true", "", 1)
	s.want(id, "echo out; echo err >&2", "out\nerr", 0)
	s.want(id, `printf '\033[31mred\033[0m\ttab\r\n'`, "red\ttab", 0)
	s.want(id, `printf 'h\303\251llo \377\376'`, "héllo \ufffd\ufffd", 0)
	s.want(id, `printf 'a\bb\0c\007d'`, "abcd", 0)
	if got := s.exec(id, "echo 'abc"); got.ExitCode != 2 || !strings.HasPrefix(got.Output, "bash: ") || !strings.HasSuffix(got.Output, "unexpected EOF while looking for matching `''") {
		s.Errorf("an open quote gave %+v", got)
	}
	s.want(id, "cat", "", 0)
	s.want(id, "for i in 1 2 3; do\n  echo \"Number: $i\"\ndone", "Number: 1\nNumber: 2\nNumber: 3", 0)
	s.want(id, "echo "+strings.Repeat("x", 1<<20)+" | wc -c", "1048577", 0)
	s.want(id, "echo $LANG; printenv TERM", "C.UTF-8", 1)
	alone := func(command, output string, code int) {
		s.Helper()
		got := s.do(id, sos.ExecRequest{Command: command, Standalone: true})
		if got.Output != output || got.ExitCode != code {
			s.Errorf("%q gave %q with %d, want %q with %d", command, got.Output, got.ExitCode, output, code)
		}
	}
	alone(`printf 'a\tb\r\033[31mc\n'`, "a\tb\r\x1b[31mc\n", 0)
	alone(`printf '\377a\0b'`, "\ufffda\x00b", 0)
	alone("false | true", "", 0)
	alone("echo err >&2; exit 4", "err\n", 4)
	alone("echo $HOME; id -un", "/root\nroot\n", 0)
	alone("kill -9 $$", "", 137)
	alone("sleep 300 & echo started", "started\n", 0)
	got := s.do(id, sos.ExecRequest{Command: "head -c 3000000 /dev/zero | tr '\\0' x", Standalone: true})
	if len(got.Output) != 3000000 || got.Truncated {
		s.Errorf("%d bytes came back", len(got.Output))
	}
	_, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true", Standalone: true, Cwd: "/nope"})
	s.fails("a missing directory", err, sos.CodeSpawnFailed, "")
	if !strings.Contains(sos.ErrorMessage(err), "/nope") {
		s.Errorf("the message is %q", sos.ErrorMessage(err))
	}
	_, err = s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true", Standalone: true, User: "nobody2"})
	s.fails("an unknown user", err, sos.CodeSpawnFailed, "")
	if got := s.do(id, sos.ExecRequest{Command: "kill -9 $$"}); !got.Exited || got.ExitCode != 137 || got.Reason != sos.EndSignal {
		s.Errorf("kill -9 $$ gave %+v", got)
	}
}
