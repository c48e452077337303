package seccomp

import (
	"fmt"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rule is an answer under conditions, all of which must hold.
type rule struct {
	conds []cond
	ret   uint32
}

// cond compares one 32-bit word of an argument, after the mask.
type cond struct {
	word  int // 2*argument, +1 for its high half
	mask  uint32
	op    op
	value uint32
}

type op int

const (
	equal op = iota
	notEqual
	greater
	greaterEqual
	less
	lessEqual
)

// policy is a profile for one architecture. The first rule that holds answers.
type policy struct {
	rules    map[uint32][]rule
	fallback uint32 // no rule holds
	highest  uint32 // number that the profile names
}

// Policy of Docker's default profile for a process with these capabilities
// ("CAP_CHOWN"), and ours.
func newPolicy(caps []string) (*policy, error) {
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}}}
	profile, err := seccomp.GetDefaultProfile(spec)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	p, err := fromProfile(profile)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	p.keepCoreLimit()
	return p, nil
}

func fromProfile(profile *specs.LinuxSeccomp) (*policy, error) {
	p := &policy{rules: map[uint32][]rule{}}
	var err error
	if p.fallback, err = action(profile.DefaultAction, profile.DefaultErrnoRet); err != nil {
		return nil, err
	}
	for _, s := range profile.Syscalls {
		r := rule{}
		if r.ret, err = action(s.Action, s.ErrnoRet); err != nil {
			return nil, fmt.Errorf("%v: %w", s.Names, err)
		}
		for _, a := range s.Args {
			c, err := condition(a)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", s.Names, err)
			}
			r.conds = append(r.conds, c)
		}
		for _, name := range s.Names {
			nr, ok := numbers[name]
			if !ok {
				continue // of another architecture, or newer than the table: it stays refused
			}
			p.rules[nr] = append(p.rules[nr], r)
			p.highest = max(p.highest, nr)
		}
	}
	return p, nil
}

func action(a specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	switch a {
	case specs.ActAllow:
		return unix.SECCOMP_RET_ALLOW, nil
	case specs.ActErrno:
		if errno == nil {
			return returnErrno(uint32(unix.EPERM)), nil
		}
		if *errno > 4095 {
			return 0, fmt.Errorf("error number %d", *errno)
		}
		return returnErrno(uint32(*errno)), nil
	case specs.ActKillProcess:
		return unix.SECCOMP_RET_KILL_PROCESS, nil
	}
	return 0, fmt.Errorf("unknown action %q", a)
}

func returnErrno(errno uint32) uint32 { return unix.SECCOMP_RET_ERRNO | errno }

func condition(a specs.LinuxSeccompArg) (cond, error) {
	ops := map[specs.LinuxSeccompOperator]op{
		specs.OpEqualTo: equal, specs.OpNotEqual: notEqual,
		specs.OpGreaterThan: greater, specs.OpGreaterEqual: greaterEqual,
		specs.OpLessThan: less, specs.OpLessEqual: lessEqual,
	}
	if a.Index > 5 || a.Value > 1<<32-1 || a.ValueTwo > 1<<32-1 {
		return cond{}, fmt.Errorf("argument %d against %#x, %#x is not an int", a.Index, a.Value, a.ValueTwo)
	}
	c := cond{word: 2 * int(a.Index), mask: ^uint32(0), value: uint32(a.Value)}
	if a.Op == specs.OpMaskedEqual {
		c.mask, c.value = uint32(a.Value), uint32(a.ValueTwo)
		return c, nil
	}
	o, ok := ops[a.Op]
	if !ok {
		return cond{}, fmt.Errorf("unknown operator %q", a.Op)
	}
	c.op = o
	return c, nil
}

// keepCoreLimit answers a change of RLIMIT_CORE with success and does not carry it
// out: programs that turn off their core dumps treat a refusal as fatal.
func (p *policy) keepCoreLimit() {
	const nothing = unix.SECCOMP_RET_ERRNO // error 0
	core := func(arg int) cond { return cond{word: 2 * arg, mask: ^uint32(0), value: unix.RLIMIT_CORE} }
	p.first("setrlimit", rule{[]cond{core(0)}, nothing})
	for half := range 2 { // of the pointer to the new limit: both, it is no int
		set := cond{word: 2*2 + half, mask: ^uint32(0), op: notEqual}
		p.first("prlimit64", rule{[]cond{core(1), set}, nothing})
	}
}

func (p *policy) first(name string, r rule) {
	if nr, ok := numbers[name]; ok {
		p.rules[nr] = append([]rule{r}, p.rules[nr]...)
	}
}
