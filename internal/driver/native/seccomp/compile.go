package seccomp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// Compile gives the filter for a process with these capabilities ("CAP_CHOWN").
func Compile(caps []string) ([]unix.SockFilter, error) {
	p, err := newPolicy(caps)
	if err != nil {
		return nil, err
	}
	return p.compile()
}

// interval is numbers from `from` up to the next interval with the same rules.
type interval struct {
	from  uint32
	rules []rule // the last one has no conditions
}

func (p *policy) compile() ([]unix.SockFilter, error) {
	prog := []unix.SockFilter{
		stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offArch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		stmt(unix.BPF_RET, unix.SECCOMP_RET_KILL_PROCESS),
		stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offNumber),
	}
	tree, err := search(p.intervals())
	if err != nil {
		return nil, err
	}
	prog = append(prog, tree...)
	if len(prog) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("seccomp filter of %d instructions", len(prog))
	}
	return prog, nil
}

// intervals covers all numbers, neighbours with the same answer in one.
func (p *policy) intervals() []interval {
	var all []interval
	add := func(from uint32, rules []rule) {
		if n := len(all); n > 0 && sameAnswer(all[n-1].rules, rules) {
			return
		}
		all = append(all, interval{from, rules})
	}
	for nr := range p.highest + 1 {
		add(nr, p.answer(nr))
	}
	add(p.highest+1, []rule{{ret: returnErrno(uint32(unix.ENOSYS))}})
	add(foreignFrom, []rule{{ret: p.fallback}})
	return all
}

// answer gives the rules of a number, up to the first one without conditions.
func (p *policy) answer(nr uint32) []rule {
	rules := p.rules[nr]
	if i := slices.IndexFunc(rules, func(r rule) bool { return len(r.conds) == 0 }); i >= 0 {
		return rules[:i+1]
	}
	return append(slices.Clone(rules), rule{ret: p.fallback})
}

func sameAnswer(a, b []rule) bool {
	return len(a) == 1 && len(b) == 1 && a[0].ret == b[0].ret
}

// search gives code that finds the interval of the number in the accumulator.
func search(all []interval) ([]unix.SockFilter, error) {
	if len(all) == 1 {
		return leaf(all[0].rules)
	}
	mid := len(all) / 2
	low, err := search(all[:mid])
	if err != nil {
		return nil, err
	}
	high, err := search(all[mid:])
	if err != nil {
		return nil, err
	}
	var code []unix.SockFilter
	if len(low) <= math.MaxUint8 {
		code = append(code, jump(unix.BPF_JGE, all[mid].from, uint8(len(low)), 0))
	} else {
		code = append(code, jump(unix.BPF_JGE, all[mid].from, 0, 1),
			stmt(unix.BPF_JMP|unix.BPF_JA, uint32(len(low))))
	}
	return append(append(code, low...), high...), nil
}

// leaf gives code that tries rules in order.
func leaf(rules []rule) ([]unix.SockFilter, error) {
	var code []unix.SockFilter
	loaded := -1 // word that the accumulator holds unmasked
	for _, r := range rules {
		var misses []int // jumps to the next rule
		for _, c := range r.conds {
			if c.word != loaded {
				code = append(code, stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, uint32(offArgs+4*c.word)))
				loaded = c.word
			}
			if c.mask != ^uint32(0) {
				code = append(code, stmt(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, c.mask))
				loaded = -1
			}
			j, err := c.test()
			if err != nil {
				return nil, err
			}
			misses = append(misses, len(code))
			code = append(code, j)
		}
		if len(r.conds) > 1 {
			loaded = -1 // the next rule is reached from several jumps
		}
		code = append(code, stmt(unix.BPF_RET, r.ret))
		for _, at := range misses {
			miss := len(code) - at - 1
			if miss > math.MaxUint8 {
				return nil, errors.New("seccomp rule too long")
			}
			// test leaves 1 in the branch that misses.
			if code[at].Jt == 1 {
				code[at].Jt = uint8(miss)
			} else {
				code[at].Jf = uint8(miss)
			}
		}
	}
	return code, nil
}

// test gives the jump of a condition: 1 in the branch that is taken when it does
// not hold, 0 in the other.
func (c cond) test() (unix.SockFilter, error) {
	switch c.op {
	case equal:
		return jump(unix.BPF_JEQ, c.value, 0, 1), nil
	case notEqual:
		return jump(unix.BPF_JEQ, c.value, 1, 0), nil
	case greater:
		return jump(unix.BPF_JGT, c.value, 0, 1), nil
	case greaterEqual:
		return jump(unix.BPF_JGE, c.value, 0, 1), nil
	case less:
		return jump(unix.BPF_JGE, c.value, 1, 0), nil
	case lessEqual:
		return jump(unix.BPF_JGT, c.value, 1, 0), nil
	}
	return unix.SockFilter{}, fmt.Errorf("unknown operator %d", c.op)
}

func stmt(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, Jt: yes, Jf: no, K: k}
}
