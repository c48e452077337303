package seccomp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	mobyseccomp "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func compiled(t *testing.T) ([]bpf.Instruction, *bpf.VM) {
	t.Helper()
	prog, err := Compile(caps)
	if err != nil {
		t.Fatal(err)
	}
	ins := raw(t, prog)
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	return ins, vm
}

func profile(t *testing.T) *specs.LinuxSeccomp {
	t.Helper()
	p, err := mobyseccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{
		Capabilities: &specs.LinuxCapabilities{Bounding: caps}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestListing keeps the program as it is: a new version of the profile is a change
// to be looked at.
func TestListing(t *testing.T) {
	ins, _ := compiled(t)
	var b bytes.Buffer
	for i, in := range ins {
		fmt.Fprintf(&b, "%3d %v\n", i, in)
	}
	name := "testdata/" + runtime.GOARCH + ".golden"
	if *update {
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Fatalf("the filter is not that of %s; look at the difference, then run with -update", name)
	}
	t.Logf("%d instructions", len(ins))
}

// TestSameAsProfile compares the program with the profile for every number and for
// arguments around everything that the profile compares with.
func TestSameAsProfile(t *testing.T) {
	_, vm := compiled(t)
	p := profile(t)
	names := map[uint32]string{}
	highest := uint32(0)
	for name, nr := range numbers {
		names[nr] = name
	}
	values := []uint64{0, 1, 2, 0xffffffff, 1 << 32, 1<<32 + 1, 1<<63 + 8}
	for _, s := range p.Syscalls {
		for _, name := range s.Names {
			highest = max(highest, numbers[name])
		}
		for _, a := range s.Args {
			values = append(values, a.Value, a.Value-1, a.Value+1, a.Value|1<<32, a.Value&(a.Value-1), a.Value<<1)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for nr := range uint32(1024) {
		if names[nr] == "setrlimit" || names[nr] == "prlimit64" {
			continue // TestCoreLimit
		}
		for range 40 {
			values = append(values[:len(values):len(values)], r.Uint64())
		}
		for _, v := range values {
			args := [6]uint64{v, r.Uint64(), v, r.Uint64(), v, r.Uint64()}
			want := evaluate(p, names[nr], args)
			if nr > highest {
				want = 0x00050000 | uint32(unix.ENOSYS)
			}
			if got := run(t, vm, call{auditArch, nr, args}); got != want {
				t.Fatalf("%d (%s) of %#x: %#x, want %#x", nr, names[nr], args, got, want)
			}
		}
		values = values[:len(values)-40]
	}
}

func TestKnownCalls(t *testing.T) {
	_, vm := compiled(t)
	allow, eperm := uint32(0x7fff0000), uint32(0x00050001)
	enosys := uint32(0x00050000) | uint32(unix.ENOSYS)
	for _, c := range []struct {
		name string
		call call
		want uint32
	}{
		{"read", call{auditArch, unix.SYS_READ, [6]uint64{}}, allow},
		{"execveat", call{auditArch, unix.SYS_EXECVEAT, [6]uint64{}}, allow},
		{"clone3", call{auditArch, unix.SYS_CLONE3, [6]uint64{}}, enosys},
		{"clone of a thread", call{auditArch, unix.SYS_CLONE, [6]uint64{0x3d0f00}}, allow},
		{"clone of a user namespace", call{auditArch, unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER}}, eperm},
		{"the same with high bits", call{auditArch, unix.SYS_CLONE, [6]uint64{1<<40 | unix.CLONE_NEWUSER}}, eperm},
		{"unshare", call{auditArch, unix.SYS_UNSHARE, [6]uint64{}}, eperm},
		{"mount", call{auditArch, unix.SYS_MOUNT, [6]uint64{}}, eperm},
		{"fsopen", call{auditArch, unix.SYS_FSOPEN, [6]uint64{}}, eperm},
		{"bpf", call{auditArch, unix.SYS_BPF, [6]uint64{}}, eperm},
		{"keyctl", call{auditArch, unix.SYS_KEYCTL, [6]uint64{}}, eperm},
		{"io_uring_setup", call{auditArch, unix.SYS_IO_URING_SETUP, [6]uint64{}}, eperm},
		{"userfaultfd", call{auditArch, unix.SYS_USERFAULTFD, [6]uint64{}}, eperm},
		{"socket of AF_INET", call{auditArch, unix.SYS_SOCKET, [6]uint64{unix.AF_INET}}, allow},
		{"socket of AF_VSOCK", call{auditArch, unix.SYS_SOCKET, [6]uint64{unix.AF_VSOCK}}, eperm},
		{"socket of AF_VSOCK with high bits", call{auditArch, unix.SYS_SOCKET, [6]uint64{1<<32 | unix.AF_VSOCK}}, eperm},
		{"socket of AF_ALG", call{auditArch, unix.SYS_SOCKET, [6]uint64{unix.AF_ALG}}, eperm},
		{"a number to come", call{auditArch, 900, [6]uint64{}}, enosys},
		{"x32", call{auditArch, 0x40000000 + unix.SYS_READ, [6]uint64{}}, eperm},
		{"minus one", call{auditArch, ^uint32(0), [6]uint64{}}, eperm},
		{"i386", call{unix.AUDIT_ARCH_I386, unix.SYS_READ, [6]uint64{}}, 0x80000000},
	} {
		if got := run(t, vm, c.call); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

func TestCoreLimit(t *testing.T) {
	_, vm := compiled(t)
	allow, nothing := uint32(0x7fff0000), uint32(0x00050000)
	for _, c := range []struct {
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{unix.SYS_SETRLIMIT, [6]uint64{unix.RLIMIT_CORE, 1}, nothing},
		{unix.SYS_SETRLIMIT, [6]uint64{unix.RLIMIT_NOFILE, 1}, allow},
		{unix.SYS_PRLIMIT64, [6]uint64{0, unix.RLIMIT_CORE, 0x7fff0000}, nothing},
		{unix.SYS_PRLIMIT64, [6]uint64{0, unix.RLIMIT_CORE, 0x100000000}, nothing},
		{unix.SYS_PRLIMIT64, [6]uint64{0, 1<<32 | unix.RLIMIT_CORE, 1}, nothing},
		{unix.SYS_PRLIMIT64, [6]uint64{0, unix.RLIMIT_CORE, 0, 1}, allow},
		{unix.SYS_PRLIMIT64, [6]uint64{0, unix.RLIMIT_AS, 1}, allow},
	} {
		if got := run(t, vm, call{auditArch, c.nr, c.args}); got != c.want {
			t.Errorf("%d of %#x: %#x, want %#x", c.nr, c.args, got, c.want)
		}
	}
}

func TestUnknownIsAnError(t *testing.T) {
	allow := specs.ActAllow
	for name, s := range map[string]specs.LinuxSyscall{
		"operator": {Names: []string{"read"}, Action: allow, Args: []specs.LinuxSeccompArg{{Op: "SCMP_CMP_ODD"}}},
		"action":   {Names: []string{"read"}, Action: "SCMP_ACT_NOTIFY"},
		"wide":     {Names: []string{"read"}, Action: allow, Args: []specs.LinuxSeccompArg{{Op: specs.OpEqualTo, Value: 1 << 32}}},
		"index":    {Names: []string{"read"}, Action: allow, Args: []specs.LinuxSeccompArg{{Op: specs.OpEqualTo, Index: 6}}},
	} {
		_, err := fromProfile(&specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{s}})
		if err == nil || !strings.Contains(err.Error(), "read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOperators holds every operator, and rules with several conditions, against
// what they say.
func TestOperators(t *testing.T) {
	holds := map[op]func(a, b uint32) bool{
		equal: func(a, b uint32) bool { return a == b }, notEqual: func(a, b uint32) bool { return a != b },
		greater: func(a, b uint32) bool { return a > b }, greaterEqual: func(a, b uint32) bool { return a >= b },
		less: func(a, b uint32) bool { return a < b }, lessEqual: func(a, b uint32) bool { return a <= b },
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var rules []rule
		for i := range 1 + r.IntN(4) {
			one := rule{ret: returnErrno(uint32(10 + i))}
			for range 1 + r.IntN(3) {
				one.conds = append(one.conds, cond{word: r.IntN(4), mask: []uint32{^uint32(0), 3, 6}[r.IntN(3)],
					op: op(r.IntN(6)), value: r.Uint32N(5)})
			}
			rules = append(rules, one)
		}
		p := &policy{rules: map[uint32][]rule{5: rules}, fallback: 1, highest: 5}
		prog, err := p.compile()
		if err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(raw(t, prog))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			args := [6]uint64{uint64(r.Uint32N(6)) | uint64(r.Uint32N(6))<<32, uint64(r.Uint32N(6)) | uint64(r.Uint32N(6))<<32}
			want := uint32(1)
			for _, one := range rules {
				ok := true
				for _, c := range one.conds {
					word := uint32(args[c.word/2] >> (32 * (c.word % 2)))
					ok = ok && holds[c.op](word&c.mask, c.value)
				}
				if ok {
					want = one.ret
					break
				}
			}
			if got := run(t, vm, call{auditArch, 5, args}); got != want {
				t.Fatalf("%+v of %#x: %#x, want %#x", rules, args, got, want)
			}
		}
	}
}
