package server

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seaofsimulation/sos/internal/guest"
)

func TestParseConfig(t *testing.T) {
	c, ok := ParseConfig("listen=3;join=4,5,6;oom=7;dir=/dev/.sos;new=x")
	if !ok || c.Listen != 3 || !slices.Equal(c.Join, []int{4, 5, 6}) || c.OOM != 7 || c.Dir != "/dev/.sos" {
		t.Errorf("%+v", c)
	}
	if c, ok := ParseConfig("listen=3"); !ok || c.OOM != -1 || c.Join != nil {
		t.Errorf("%+v", c)
	}
	for _, bad := range []string{"", "listen=", "listen=0", "listen=x", "join=4", "listen=99999999999"} {
		if c, ok := ParseConfig(bad); ok {
			t.Errorf("%q: %+v", bad, c)
		}
	}
}

func TestUsers(t *testing.T) {
	passwd := []byte("root:x:0:0:root:/root:/bin/sh\nbroken\n:::::::\nann:x:1000:100:Ann,,,:/home/ann:/bin/sh\n" +
		"big:x:4294967295:1::/:\nneg:x:-1:1::/:\nrel:x:7:7::home:\n1000:x:5:5::/num:\nlast:x:9:9::/last:/bin/sh")
	group := []byte("root:x:0:\nusers:x:100:\nwheel:x:10:root,ann\nbad\ndocker:x:20:bob,ann\nannx:x:30:annx\nnum:x:40:1000\n")
	for spec, want := range map[string]account{
		"":           {uid: 0, gid: 0, groups: []uint32{0, 10}, name: "root", home: "/root"},
		"root":       {uid: 0, gid: 0, groups: []uint32{0, 10}, name: "root", home: "/root"},
		"ann":        {uid: 1000, gid: 100, groups: []uint32{100, 10, 20}, name: "ann", home: "/home/ann"},
		"ann:docker": {uid: 1000, gid: 20, name: "ann", home: "/home/ann"},
		"ann:77":     {uid: 1000, gid: 77, name: "ann", home: "/home/ann"},
		"12:34":      {uid: 12, gid: 34, home: "/"},
		"12":         {uid: 12, gid: 0, groups: []uint32{0}, home: "/"},
		"rel":        {uid: 7, gid: 7, groups: []uint32{7}, name: "rel", home: "/"},
		"last":       {uid: 9, gid: 9, groups: []uint32{9}, name: "last", home: "/last"},
		"0:0":        {uid: 0, gid: 0, name: "root", home: "/root"},
		":docker":    {uid: 0, gid: 20, name: "root", home: "/root"},
		"1000":       {uid: 1000, gid: 100, groups: []uint32{100, 10, 20}, name: "ann", home: "/home/ann"},
	} {
		got, err := find(spec, passwd, group)
		if err != nil || got.uid != want.uid || got.gid != want.gid || got.name != want.name || got.home != want.home ||
			!slices.Equal(got.groups, want.groups) {
			t.Errorf("%q: %+v %v, want %+v", spec, got, err, want)
		}
	}
	for _, bad := range []string{"nobody2", "big", "neg", "broken", "4294967295", "-1", "99999999999", "ann:none", "ann:", "a\nb"} {
		if a, err := find(bad, passwd, group); err == nil {
			t.Errorf("%q: %+v", bad, a)
		}
	}
	if a, err := find("", nil, nil); err != nil || a.uid != 0 || a.home != "/root" {
		t.Errorf("without files: %+v %v", a, err)
	}
}

func FuzzUsers(f *testing.F) {
	f.Add("ann:wheel", []byte("ann:x:1:1::/:\n"), []byte("wheel:x:1:ann\n"))
	f.Fuzz(func(t *testing.T, spec string, passwd, group []byte) {
		a, err := find(spec, passwd, group)
		if err == nil && (a.uid == 1<<32-1 || a.gid == 1<<32-1 || len(a.groups) > maxGroups) {
			t.Errorf("%+v", a)
		}
	})
}

func TestParseStat(t *testing.T) {
	line := "12 (a) S 9 (x) R 1 5 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n"
	s, ok := parseStat(12, []byte(line))
	if !ok || s.ppid != 1 || s.session != 7 || s.start != 4711 || s.state != 'R' {
		t.Errorf("%+v %v", s, ok)
	}
	for _, bad := range []string{"", "12 (a", "12 (a) S 1", "12 (a) S x y z 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"} {
		if s, ok := parseStat(12, []byte(bad)); ok {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

func TestParseOOM(t *testing.T) {
	for text, want := range map[string]int64{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":               3,
		"low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 5\n": 1,
		"": 0, "oom_kill x\n": 0, "oom 7\n": 0,
	} {
		if got := parseOOM([]byte(text)); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// TestRing against a plain slice, through all sizes.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring{buf: make([]byte, minRing)}
		var all []byte
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				n := rapid.IntRange(0, len(r.buf)-r.used()).Draw(t, "add")
				p := bytes.Repeat([]byte{byte(len(all))}, n)
				for i := range p {
					p[i] += byte(i * 7)
				}
				r.add(p)
				all = append(all, p...)
			case 1:
				r.base += int64(rapid.IntRange(0, r.used()).Draw(t, "ack"))
			case 2:
				if len(r.buf) < 64<<10 {
					r.resize(4 * len(r.buf))
				}
			}
			if r.end != int64(len(all)) {
				t.Fatalf("end %d, want %d", r.end, len(all))
			}
			got := make([]byte, r.used())
			if len(got) > 0 {
				r.copyTo(got, r.base)
			}
			if !bytes.Equal(got, all[r.base:]) {
				t.Fatalf("content differs in [%d, %d)", r.base, r.end)
			}
		}
	})
	for n, want := range map[int]int{0: 4 << 10, 4096: 4 << 10, 4097: 16 << 10, 1 << 20: 1 << 20, 9 << 20: guest.MaxWindow} {
		if got := fits(n); got != want {
			t.Errorf("fits(%d) = %d", n, got)
		}
	}
}
