package seccomp

import (
	"encoding/binary"
	"flag"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var caps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

func raw(t *testing.T, prog []unix.SockFilter) []bpf.Instruction {
	t.Helper()
	var r []bpf.RawInstruction
	for _, i := range prog {
		r = append(r, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	ins, ok := bpf.Disassemble(r)
	if !ok {
		t.Fatal("there are instructions that nobody knows")
	}
	return ins
}

type call struct {
	arch, nr uint32
	args     [6]uint64
}

// run interprets the program; the VM loads big-endian words where the kernel loads
// native ones.
func run(t *testing.T, vm *bpf.VM, c call) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[0:], c.nr)
	binary.BigEndian.PutUint32(data[4:], c.arch)
	for i, a := range c.args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
	}
	ret, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(ret)
}

// evaluate is the profile read as its authors wrote it, by name, and not by the
// code under test.
func evaluate(p *specs.LinuxSeccomp, name string, args [6]uint64) uint32 {
	ret := func(a specs.LinuxSeccompAction, errno *uint) uint32 {
		if a == specs.ActAllow {
			return 0x7fff0000
		}
		n := uint32(1)
		if errno != nil {
			n = uint32(*errno)
		}
		return 0x00050000 | n
	}
	for _, s := range p.Syscalls {
		if !slices.Contains(s.Names, name) {
			continue
		}
		all := true
		for _, a := range s.Args {
			v := args[a.Index] & 0xffffffff
			var ok bool
			switch a.Op {
			case "SCMP_CMP_EQ":
				ok = v == a.Value
			case "SCMP_CMP_LT":
				ok = v < a.Value
			case "SCMP_CMP_MASKED_EQ":
				ok = v&a.Value == a.ValueTwo
			default:
				panic("operator " + a.Op)
			}
			all = all && ok
		}
		if all {
			return ret(s.Action, s.ErrnoRet)
		}
	}
	return ret(p.DefaultAction, p.DefaultErrnoRet)
}
