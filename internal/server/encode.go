package server

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/seaofsimulation/sos"
)

const hexDigits = "0123456789abcdef"

// appendString appends s as a JSON string, as the first system writes it: only
// what JSON demands is escaped, so < and é stay; bytes that are no UTF-8 become
// U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// appendStrings appends an array of strings.
func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// appendSeconds appends a float that always shows its point, as the first
// system's timestamps do.
func appendSeconds(b []byte, sec float64) []byte {
	b = strconv.AppendFloat(b, sec, 'f', -1, 64)
	if sec == math.Trunc(sec) {
		b = append(b, '.', '0')
	}
	return b
}

func appendKey(b []byte, name string) []byte {
	return append(append(append(b, ',', '"'), name...), '"', ':')
}

func appendFlag(b []byte, name string, set bool) []byte {
	if !set {
		return b
	}
	return append(appendKey(b, name), "true"...)
}

// appendExecResult appends the answer to exec: the seed's three keys in its
// order, then ours where they say something.
func appendExecResult(b []byte, r *sos.ExecResult, full bool, warn []string) []byte {
	b = append(b, `{"exit_code":`...)
	b = strconv.AppendInt(b, int64(r.ExitCode), 10)
	b = append(b, `,"exited":`...)
	b = strconv.AppendBool(b, r.Exited)
	b = append(b, `,"output":`...)
	b = appendString(b, r.Output)
	// Where the code tells it already (128+n) the first system's form says no more.
	if r.Reason != "" && r.Reason != sos.EndExit && (full || r.Reason != sos.EndSignal) {
		b = appendString(appendKey(b, "reason"), string(r.Reason))
	}
	if r.Message != "" {
		b = appendString(appendKey(b, "message"), r.Message)
	}
	b = appendFlag(b, "timed_out", r.TimedOut)
	b = appendFlag(b, "oom_killed", r.OOMKilled)
	b = appendFlag(b, "survivors", r.Survivors)
	b = appendFlag(b, "session_restarted", r.SessionRestarted)
	if r.Truncated {
		b = appendFlag(b, "truncated", true)
		b = strconv.AppendInt(appendKey(b, "output_bytes"), r.OutputBytes, 10)
	}
	if full {
		b = appendFlag(b, "default_timeout", r.DefaultTimeout)
	}
	if len(warn) > 0 {
		b = appendStrings(appendKey(b, "warnings"), warn)
	}
	return append(b, '}')
}

// appendRow appends a line of the list in the first system's shape, in which the
// set-up commands are one string; what it does not have stands behind, where it
// says something.
func appendRow(b []byte, s *sos.Sandbox) []byte {
	b = appendString(append(b, `{"id":`...), s.ID)
	b = appendString(appendKey(b, "image"), s.Image)
	b = appendString(appendKey(b, "setup_commands"), joinSetup(s.SetupCommands))
	b = appendString(appendKey(b, "status"), string(s.Status))
	b = strconv.AppendInt(appendKey(b, "session_command_count"), int64(s.SessionCommandCount), 10)
	b = appendKey(b, "last_standalone_exit_code")
	if s.LastStandaloneExitCode == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(*s.LastStandaloneExitCode), 10)
	}
	if s.Name != "" {
		b = appendString(appendKey(b, "name"), s.Name)
	}
	if s.Reason != "" {
		b = appendString(appendKey(b, "reason"), string(s.Reason))
	}
	if s.Message != "" {
		b = appendString(appendKey(b, "message"), s.Message)
	}
	if s.QueuePosition > 0 {
		b = strconv.AppendInt(appendKey(b, "queue_position"), int64(s.QueuePosition), 10)
	}
	return append(b, '}')
}

// appendEntry appends one command of a trajectory, keys sorted as the seed's.
func appendEntry(b []byte, e *sos.TrajectoryEntry) []byte {
	b = appendString(append(b, `{"command":`...), e.Process.Command)
	b = strconv.AppendInt(append(b, `,"index":`...), int64(e.Index), 10)
	if e.HasResult {
		b = append(b, `,"result":{"exit_code":`...)
		if c := e.Process.ExitCode; c != nil {
			b = strconv.AppendInt(b, int64(*c), 10)
		} else {
			b = append(b, "-1"...)
		}
		b = appendString(append(b, `,"output":`...), e.Output)
		if r := e.Process.Reason; r != "" && r != sos.EndExit && r != sos.EndSignal {
			b = appendString(appendKey(b, "reason"), string(r))
		}
		b = append(b, '}')
	}
	return appendSeconds(append(b, `,"timestamp":`...), time.Duration(e.Process.SinceStart).Seconds())
}
