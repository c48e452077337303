package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/seaofsimulation/sos"
)

// bodyShape is what a body of the first system may hold. The names are in the
// order in which an array gives them: the seed's own first, then ours.
type bodyShape struct {
	names    []string
	required int // that many names must be there
	seed     int // that many may be given by an array
}

var (
	createShape = bodyShape{names: []string{"image", "setup_commands", "name", "cpu", "memory", "disk", "pids",
		"env", "workdir", "user", "labels", "timeout", "start_timeout"}, required: 1, seed: 2}
	execShape = bodyShape{names: []string{"command", "standalone", "session", "timeout", "env", "cwd", "user",
		"stdin", "stdin_base64"}, required: 1, seed: 2}
	stopShape = bodyShape{names: []string{"remove", "grace"}, seed: 1}
)

// decode reads a body of the given shape: an object, or an array of the seed's
// fields in their order. set must read the value of the named field. Fields that
// the shape does not know are skipped and returned; text after the value is
// ignored.
func (s *scanner) decode(shape *bodyShape, set func(name string) error) (unknown []string, err error) {
	var seen uint32
	switch c := s.space(); {
	case c == '{':
		err = s.object(0, func(name string) error {
			i := slices.Index(shape.names, name)
			if i < 0 {
				unknown = append(unknown, name)
				return s.skip(1)
			}
			if seen&(1<<i) != 0 {
				return s.data("", "duplicate field `"+name+"`")
			}
			seen |= 1 << i
			return set(name)
		})
	case c == '[':
		err = s.array(0, func(i int) error {
			if i >= shape.seed {
				return s.data("", fmt.Sprintf("invalid length, expected an array of at most %d fields", shape.seed))
			}
			seen |= 1 << i
			return set(shape.names[i])
		})
	default:
		kind, err := s.value(0)
		if err != nil {
			return nil, err
		}
		return nil, s.data("", "invalid type: "+kind+", expected an object")
	}
	if err != nil {
		return nil, err
	}
	for i, name := range shape.names[:shape.required] {
		if seen&(1<<i) == 0 {
			return nil, s.data("", "missing field `"+name+"`")
		}
	}
	return unknown, nil
}

func decodeCreate(body []byte) (spec sos.SandboxSpec, unknown []string, err error) {
	s := &scanner{buf: body}
	spec.SetupCommands = []string{}
	unknown, err = s.decode(&createShape, func(name string) error {
		switch name {
		case "image":
			return s.text(name, &spec.Image)
		case "setup_commands":
			return s.texts(name, &spec.SetupCommands)
		case "name":
			return s.optional(name, &spec.Name)
		case "cpu":
			return s.optional(name, &spec.CPU)
		case "memory":
			return s.optional(name, &spec.Memory)
		case "disk":
			return s.optional(name, &spec.Disk)
		case "pids":
			return s.optional(name, &spec.PIDs)
		case "env":
			return s.optional(name, &spec.Env)
		case "workdir":
			return s.optional(name, &spec.Workdir)
		case "user":
			return s.user(name, &spec.User)
		case "labels":
			return s.optional(name, &spec.Labels)
		case "timeout":
			return s.optional(name, &spec.Timeout)
		default:
			return s.optional(name, &spec.StartTimeout)
		}
	})
	return spec, unknown, err
}

func decodeExec(body []byte) (r sos.ExecRequest, unknown []string, err error) {
	s := &scanner{buf: body}
	unknown, err = s.decode(&execShape, func(name string) error {
		switch name {
		case "command":
			return s.text(name, &r.Command)
		case "standalone":
			return s.boolean(name, &r.Standalone)
		case "session":
			return s.optional(name, &r.Session)
		case "timeout":
			return s.optional(name, &r.Timeout)
		case "env":
			return s.optional(name, &r.Env)
		case "cwd":
			return s.optional(name, &r.Cwd)
		case "user":
			return s.user(name, &r.User)
		default:
			return s.stdin(name, &r.Stdin)
		}
	})
	return r, unknown, err
}

func decodeStop(body []byte) (r sos.StopRequest, unknown []string, err error) {
	s := &scanner{buf: body}
	unknown, err = s.decode(&stopShape, func(name string) error {
		if name == "remove" {
			return s.boolean(name, &r.Remove)
		}
		return s.optional(name, &r.Grace)
	})
	return r, unknown, err
}

// text reads a required string.
func (s *scanner) text(path string, into *string) (err error) {
	if s.space() == '"' {
		*into, err = s.str()
		return err
	}
	return s.mismatch(path, "a string")
}

// texts reads a required array of strings.
func (s *scanner) texts(path string, into *[]string) error {
	if s.space() != '[' {
		return s.mismatch(path, "a sequence")
	}
	return s.array(1, func(i int) error {
		var v string
		if err := s.text(fmt.Sprintf("%s[%d]", path, i), &v); err != nil {
			return err
		}
		*into = append(*into, v)
		return nil
	})
}

// boolean reads true, false or null, which is false.
func (s *scanner) boolean(path string, into *bool) error {
	switch s.space() {
	case 't':
		*into = true
		return s.word("true")
	case 'f', 'n':
		_, err := s.value(0)
		return err
	}
	return s.mismatch(path, "a boolean")
}

func (s *scanner) mismatch(path, expected string) error {
	kind, err := s.value(0)
	if err != nil {
		return err
	}
	return s.data(path, "invalid type: "+kind+", expected "+expected)
}

// optional reads a field that the first system does not have; null is as if it
// were not there.
func (s *scanner) optional(path string, into any) error {
	raw, err := s.raw()
	if err != nil {
		return err
	}
	if string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return s.data(path, "invalid value: "+jsonReason(err))
	}
	return nil
}

// user reads the name of a user. A blank one is refused, so that it never means
// root by accident.
func (s *scanner) user(path string, into *string) error {
	if err := s.optional(path, into); err != nil {
		return err
	}
	if raw := s.buf[:s.pos]; *into == "" && raw[len(raw)-1] == '"' {
		return s.data(path, "invalid value: the user is empty; leave the field out for the default user")
	}
	return nil
}

// stdin reads the input of a command, as text or in base64.
func (s *scanner) stdin(path string, into *[]byte) error {
	var v *string
	if err := s.optional(path, &v); err != nil || v == nil {
		return err
	}
	if *into != nil {
		return s.data("", "only one of `stdin` and `stdin_base64` may be given")
	}
	if path == "stdin" {
		*into = append([]byte{}, *v...)
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*v)
	if err != nil {
		return s.data(path, "invalid value: not base64")
	}
	*into = append([]byte{}, b...)
	return nil
}

// warnings names the fields that a body had and that mean nothing here.
func warnings(unknown []string) []string {
	var out []string
	for _, name := range unknown[:min(len(unknown), maxUnknown)] {
		out = append(out, "unknown field "+quoteShort(name)+" was ignored")
	}
	return out
}

// maxUnknown bounds how many unknown fields a reply names.
const maxUnknown = 20

var errBodyTooLarge = &failure{status: http.StatusRequestEntityTooLarge, code: sos.CodeTooLarge,
	text: "Failed to buffer the request body: length limit exceeded"}
