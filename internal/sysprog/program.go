package sysprog

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Slots is the number of result slots of a program. The last ones are used by
// [Program.Files].
const Slots = 64

// Program is a list of system calls for one child. Build it, Fork it once,
// Release it. It is not safe for concurrent use.
type Program struct {
	steps []*Step
	list  []step // what the child walks over
	keep  []any  // memory that the arguments point to
	slots *[Slots]uintptr
	exec  bool
	used  bool
	err   error // first mistake made while building
	page  *page
	clone *cloneArgs
}

// step is the form that the child reads: no strings, no slices.
type step struct {
	nr      uintptr
	args    [6]uintptr
	ignore  [4]syscall.Errno
	slotted uint8 // bit i: args[i] is a slot number
	save    int8  // slot, or -1
	when    uint8 // always, then, otherwise
}

const (
	always uint8 = iota
	then
	otherwise
)

// Step is one system call of a program.
type Step struct {
	step
	name string
	p    *Program
}

// New gives an empty program.
func New() *Program {
	return &Program{slots: new([Slots]uintptr)}
}

// Call appends a system call. The name is what errors say: "mount proc".
func (p *Program) Call(name string, nr uintptr, args ...uintptr) *Step {
	s := &Step{name: name, p: p}
	s.nr, s.save = nr, -1
	if len(args) > len(s.args) {
		p.fail(fmt.Errorf("%s: %d arguments", name, len(args)))
		args = nil
	}
	copy(s.args[:], args)
	if p.exec {
		p.fail(fmt.Errorf("%s: a step after the exec", name))
	}
	p.steps = append(p.steps, s)
	return s
}

// Ptr gives the address of b for an argument. b must not change until the
// program is released.
func (p *Program) Ptr(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	p.keep = append(p.keep, &b[0])
	return uintptr(unsafe.Pointer(&b[0]))
}

// Str gives the address of s as a C string.
func (p *Program) Str(s string) uintptr {
	b, err := syscall.ByteSliceFromString(s)
	if err != nil {
		p.fail(fmt.Errorf("a NUL byte in %q", s))
		return 0
	}
	return p.Ptr(b)
}

// Ignore lets the program go on when the call fails with one of these (at most
// four).
func (s *Step) Ignore(errnos ...syscall.Errno) *Step {
	if copy(s.ignore[:], errnos) < len(errnos) {
		s.p.fail(fmt.Errorf("%s: too many errors to ignore", s.name))
	}
	return s
}

// Save keeps the result in a slot. The result of a failure that is ignored is
// all ones (-1).
func (s *Step) Save(slot int) *Step {
	if slot < 0 || slot >= Slots {
		s.p.fail(fmt.Errorf("%s: no slot %d", s.name, slot))
		return s
	}
	s.save = int8(slot)
	return s
}

// Use takes argument number arg (from 0) from a slot when the step runs.
func (s *Step) Use(arg, slot int) *Step {
	if arg < 0 || arg >= len(s.args) || slot < 0 || slot >= Slots {
		s.p.fail(fmt.Errorf("%s: no argument %d or slot %d", s.name, arg, slot))
		return s
	}
	s.args[arg] = uintptr(slot)
	s.slotted |= 1 << arg
	return s
}

// Then makes the step run only if the last step that is neither Then nor Else
// succeeded.
func (s *Step) Then() *Step { s.when = then; return s }

// Else makes the step run only if the last step that is neither Then nor Else
// failed with an error that it ignores.
func (s *Step) Else() *Step { s.when = otherwise; return s }

func (p *Program) fail(err error) {
	if p.err == nil {
		p.err = fmt.Errorf("sysprog: %w", err)
	}
}

// Result gives what a step saved in a slot. It may be asked for while the child is
// alive and shares our memory (see [ForkOptions]), once the child has said by other
// means that it is beyond that step.
func (p *Program) Result(slot int) uintptr { return atomic.LoadUintptr(&p.slots[slot]) }

// Keep holds v, whose address is an argument, until the program is released. v must
// be a pointer.
func (p *Program) Keep(v any) { p.keep = append(p.keep, v) }
