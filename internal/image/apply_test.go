package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

func TestHostileArchives(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.Mkdir(canary, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(canary+"/secret", []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("d/", 1000) + "x"
	tests := []struct {
		name   string
		layers [][]file
		says   string // "" when it is taken, harmlessly
	}{
		{"dot dot", [][]file{{reg("../../../../tmp/x", "x")}}, "leads out"},
		{"dot dot inside", [][]file{{dir("a"), reg("a/../../x", "x")}}, "leads out"},
		{"absolute", [][]file{{reg(canary+"/secret", "x")}}, ""},
		{"through an absolute symlink", [][]file{{link("l", canary), reg("l/secret", "x")}}, ""},
		{"through a relative symlink", [][]file{{link("l", strings.Repeat("../", 20)+canary), reg("l/secret", "x")}}, ""},
		{"onto a symlink", [][]file{{link("l", canary+"/secret"), reg("l", "x")}}, ""},
		{"directory onto a symlink", [][]file{{link("l", canary), dir("l"), reg("l/secret", "x")}}, ""},
		{"symlink of a lower layer", [][]file{{link("l", canary)}, {reg("l/secret", "x")}}, ""},
		{"symlink of a lower layer, whiteout", [][]file{{link("l", canary)}, {reg("l/.wh.secret", "")}}, ""},
		{"symlink of a lower layer, opaque", [][]file{{link("l", canary)}, {reg("l/.wh..wh..opq", "")}}, ""},
		{"hard link out", [][]file{{hard("h", "../../../../etc/passwd")}}, "hard link to"},
		{"hard link to an absolute name", [][]file{{hard("h", canary+"/secret"), reg("h", "x")}}, "hard link to"},
		{"hard link through a symlink", [][]file{{link("l", canary), hard("h", "l/secret")}}, "hard link to"},
		{"hard link to a symlink, then written", [][]file{{link("l", canary+"/secret"), hard("h", "l"), reg("h", "x")}}, ""},
		{"hard link to a directory", [][]file{{dir("d"), hard("h", "d")}}, "hard link to"},
		{"symlink loop", [][]file{{link("a", "b"), link("b", "a"), reg("a/x", "x")}}, "too many symbolic links"},
		{"through a file", [][]file{{reg("f", "x"), reg("f/x", "x")}}, "not a directory"},
		{"character device", [][]file{{file{tar.Header{Name: "mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}, ""}}}, "device node"},
		{"whiteout look-alike", [][]file{{reg("f", "x")}, {file{tar.Header{Name: "f", Typeflag: tar.TypeChar}, ""}}}, "device node"},
		{"block device", [][]file{{file{tar.Header{Name: "a/sda", Typeflag: tar.TypeBlock, Devmajor: 8}, ""}}}, "device node"},
		{"devices in /dev", [][]file{{dir("dev"), file{tar.Header{Name: "dev/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}, ""}}}, ""},
		{"unknown type", [][]file{{file{tar.Header{Name: "x", Typeflag: 'Z'}, ""}}}, "type"},
		{"owner", [][]file{{reg("f", "x").with(func(h *tar.Header) { h.Uid = 65536 })}}, "65536"},
		{"group", [][]file{{reg("f", "x").with(func(h *tar.Header) { h.Gid = 1 << 30 })}}, "65535"},
		{"long part", [][]file{{reg(strings.Repeat("n", 300), "x")}}, "too long"},
		{"long path", [][]file{{reg(strings.Repeat("dir/", 490)+strings.Repeat(strings.Repeat("n", 250)+"/", 9)+"x", "x")}}, "too long"},
		{"deep path", [][]file{{reg(long, "x")}}, "500 directories deep"},
		{"deep path through symlinks", [][]file{{dir(strings.Repeat("d/", 400)), link("l", strings.Repeat("d/", 400)), reg("l/"+strings.Repeat("d/", 400)+"x", "x")}}, "500 directories deep"},
		{"whiteout of the parent", [][]file{{reg("f", "x")}, {reg(".wh...", "")}}, "whiteout of nothing"},
		{"empty whiteout", [][]file{{reg("f", "x")}, {reg(".wh.", "")}}, "whiteout of nothing"},
		{"root is a file", [][]file{{reg("./", "x").with(func(h *tar.Header) { h.Name = "." })}}, "root"},
		{"empty symlink", [][]file{{link("l", "")}}, "link to nothing"},
		{"overlay attributes", [][]file{{dir("d").with(func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.redirect": "/etc", "SCHILY.xattr.user.overlay.opaque": "y"}
		})}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, makeTar(t, l...))
			}
			dirs, err := apply(t, layers...)
			switch {
			case tt.says == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tt.says != "":
				wantCode(t, err, sos.CodeImageFailed, tt.says, tt.layers[len(tt.layers)-1][len(tt.layers[len(tt.layers)-1])-1].Name[:1])
			}
			b, err := os.ReadFile(canary + "/secret")
			if err != nil || string(b) != "untouched" {
				t.Fatalf("canary: %q, %v", b, err)
			}
			if list, _ := os.ReadDir(canary); len(list) != 1 {
				t.Fatalf("canary directory has %d files", len(list))
			}
			for _, d := range dirs {
				var buf [16]byte
				if _, err := unix.Lgetxattr(d+"/d", "trusted.overlay.redirect", buf[:]); err == nil {
					t.Error("an overlay attribute came through")
				}
				if _, err := os.Lstat(d + "/dev/mem"); err == nil {
					t.Error("a device came through")
				}
			}
		})
	}
}

func TestApplyKeepsEverything(t *testing.T) {
	caps := string([]byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // cap_net_bind_service=ep of revision 2
	when := time.Unix(1234567890, 123456789)
	name := strings.Repeat("long-", 23) + "name"
	zeros := string(make([]byte, 1<<20)) + "end"
	dirs, err := apply(t, makeTar(t,
		dir("./").with(func(h *tar.Header) { h.Mode = 0o711; h.ModTime = when }),
		dir("./etc/"),
		dir("./etc/d").with(func(h *tar.Header) { h.Uid, h.Gid, h.Mode, h.ModTime = 7, 8, 0o1770, when }),
		reg("./etc/d/"+name, "body").with(func(h *tar.Header) {
			h.Uid, h.Gid, h.Mode, h.ModTime, h.Format = 65535, 65534, 0o4755, when, tar.FormatPAX
			h.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "y", "SCHILY.xattr.security.capability": caps, "SCHILY.xattr.security.selinux": "z"}
		}),
		hard("./etc/h", "./etc/d/"+name),
		link("./etc/l", "../nowhere").with(func(h *tar.Header) { h.Uid = 5; h.ModTime = when; h.Format = tar.FormatPAX }),
		file{tar.Header{Name: "./pipe", Typeflag: tar.TypeFifo, Mode: 0o620, Gid: 5}, ""},
		reg("./gnu/"+name+name, "g").with(func(h *tar.Header) { h.Format = tar.FormatGNU }),
		reg("./sparse", zeros),
		reg("./twice", "first, and longer"), reg("./twice", "second"),
		reg("./kind", "x"), dir("./kind"), reg("./kind/in", "x"),
		dir("./other"), reg("./other/in", "x"), reg("./other", "now a file"),
		reg("implicit/parent/f", "x"),
	))
	if err != nil {
		t.Fatal(err)
	}
	root := dirs[0]
	stat := func(p string) unix.Stat_t {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, p), &st); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		return st
	}
	check := func(p string, mode uint32, uid, gid uint32) {
		t.Helper()
		if st := stat(p); st.Mode != mode || st.Uid != uid || st.Gid != gid {
			t.Errorf("%s: mode %o owner %d:%d, want %o %d:%d", p, st.Mode, st.Uid, st.Gid, mode, uid, gid)
		}
	}
	check("", unix.S_IFDIR|0o711, 0, 0)
	check("etc/d", unix.S_IFDIR|0o1770, 7, 8)
	check("etc/d/"+name, unix.S_IFREG|0o4755, 65535, 65534)
	check("etc/l", unix.S_IFLNK|0o777, 5, 0)
	check("pipe", unix.S_IFIFO|0o620, 0, 5)
	check("implicit/parent", unix.S_IFDIR|0o755, 0, 0)
	for _, p := range []string{"etc/d", "etc/d/" + name, "etc/l"} {
		if st := stat(p); st.Mtim.Sec != when.Unix() {
			t.Errorf("%s: time %v, want %v", p, st.Mtim, when)
		}
	}
	if st := stat("etc/d/" + name); st.Mtim.Nsec != 123456789 || st.Ino != stat("etc/h").Ino {
		t.Errorf("time %v, inode %d and %d", st.Mtim, st.Ino, stat("etc/h").Ino)
	}
	buf := make([]byte, 64)
	n, err := unix.Lgetxattr(root+"/etc/h", "security.capability", buf)
	if err != nil || string(buf[:n]) != caps {
		t.Errorf("capability %x, %v; want %x", buf[:max(n, 0)], err, caps)
	}
	if _, err := unix.Lgetxattr(root+"/etc/h", "user.x", buf); err != nil {
		t.Errorf("user.x: %v", err)
	}
	if _, err := unix.Lgetxattr(root+"/etc/h", "security.selinux", buf); err == nil {
		t.Error("security.selinux came through")
	}
	if b, _ := os.ReadFile(root + "/sparse"); string(b) != zeros {
		t.Error("sparse file differs")
	}
	if st := stat("sparse"); st.Blocks*512 > 512<<10 {
		t.Errorf("sparse file takes %d bytes", st.Blocks*512)
	}
	for p, want := range map[string]string{"twice": "second", "kind/in": "x", "other": "now a file", "gnu/" + name + name: "g"} {
		if b, err := os.ReadFile(filepath.Join(root, p)); string(b) != want {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
}

// TestLayersMergeAsDocker mounts what was unpacked and looks at the result.
func TestLayersMergeAsDocker(t *testing.T) {
	dirs, err := apply(t,
		makeTar(t,
			dir("usr").with(func(h *tar.Header) { h.Mode, h.Uid = 0o700, 42 }), dir("usr/bin"), link("bin", "usr/bin"), program("usr/bin/a"),
			dir("gone"), reg("gone/f", "x"), reg("gone-file", "x"),
			dir("opq"), reg("opq/old", "x"), dir("opq/sub"), reg("opq/sub/old", "x"),
			dir("again"), reg("again/old", "x"), dir("again2"), reg("again2/old", "x"),
			dir("tofile"), reg("tofile/f", "x"), reg("todir", "x"), dir("flip"), reg("flip/old", "x"),
			reg("base-link", "shared").with(func(h *tar.Header) { h.Mode = 0o600 }), dir("kept"), reg("kept/f", "x"),
			reg(".wh.nothing", ""), dir("esc"), link("esc/abs", "/usr/bin")),
		makeTar(t,
			program("bin/b"), // through the symlink below, without an entry for it
			reg("esc/abs/c", "c"),
			reg(".wh.gone", ""), reg(".wh.gone-file", ""),
			dir("opq/sub"), reg("opq/sub/.wh.old", ""), reg("opq/.wh..wh..opq", ""), reg("opq/new", "x"),
			reg(".wh.again", ""), dir("again"), reg("again/new", "x"),
			dir("again2"), reg("again2/new", "x"), reg(".wh.again2", ""), // the other order
			reg("tofile", "file"), dir("todir"), reg("todir/f", "x"),
			reg("flip", "file"), dir("flip"), reg("flip/new", "x"),
			hard("up-link", "base-link"),
			reg("kept/.wh.absent", ""), reg(".wh..wh.plnk", "")),
		makeTar(t, reg("top", "x")),
	)
	if err != nil {
		t.Fatal(err)
	}
	m := mountLayers(t, dirs[2]+":"+dirs[1]+":"+dirs[0])
	got := map[string]bool{}
	err = filepath.WalkDir(m, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil {
			return err
		} else if info.Mode()&os.ModeDevice != 0 {
			t.Errorf("a device shows: %s", p)
		}
		if !d.IsDir() {
			got[strings.TrimPrefix(p, m+"/")] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"usr/bin/a", "usr/bin/b", "usr/bin/c", "bin", "opq/new", "again/new", "again2/new", "tofile", "todir/f", "flip/new",
		"base-link", "up-link", "kept/f", "top", "esc/abs"}
	for _, w := range want {
		if !got[w] {
			t.Errorf("missing: %s", w)
		}
		delete(got, w)
	}
	for g := range got {
		t.Errorf("should not be there: %s", g)
	}
	var st unix.Stat_t
	if err := unix.Stat(m+"/usr", &st); err != nil || st.Mode&0o7777 != 0o700 || st.Uid != 42 {
		t.Errorf("a directory that was only passed changed: mode %o owner %d", st.Mode, st.Uid)
	}
	if b, err := os.ReadFile(m + "/up-link"); string(b) != "shared" {
		t.Errorf("link to a lower file: %q, %v", b, err)
	}
}

func TestRootOpaque(t *testing.T) {
	mark := reg(".wh..wh..opq", "")
	for name, upper := range map[string][]file{
		"mark last":  {dir("d"), reg("d/new", "x"), reg("b", "x"), mark},
		"mark first": {mark, dir("d"), reg("d/new", "x"), reg("b", "x")},
		"no entry":   {mark, reg("d/new", "x"), reg("b", "x")},
	} {
		t.Run(name, func(t *testing.T) {
			dirs, err := apply(t, makeTar(t, reg("a", "x"), dir("d"), reg("d/old", "x")), makeTar(t, upper...))
			if err != nil {
				t.Fatal(err)
			}
			m := mountLayers(t, dirs[1]+":"+dirs[0])
			for p, want := range map[string]bool{"a": false, "b": true, "d/old": false, "d/new": true} {
				if _, err := os.Lstat(filepath.Join(m, p)); (err == nil) != want {
					t.Errorf("%s: there is %v, want %v", p, err == nil, want)
				}
			}
		})
	}
}

func TestLimits(t *testing.T) {
	s := open(t, func(c *Config) { c.Limits = Limits{Bytes: 1 << 20, Entries: 50} })
	many := []file{}
	for i := range 60 {
		many = append(many, reg(fmt.Sprintf("usr/%d", i), ""))
	}
	sparse := sparseHeader(1 << 50)
	for name, tt := range map[string]struct {
		tar  []byte
		says string
	}{
		"bytes":   {makeTar(t, reg("usr/a", string(make([]byte, 600<<10))), reg("usr/b", string(make([]byte, 600<<10)))), "more than 1Mi"},
		"packed":  {gz(t, makeTar(t, reg("usr/a", string(make([]byte, 2<<20))))), "more than 1Mi"},
		"entries": {makeTar(t, many...), "more than 50 entries"},
		"sparse":  {sparse, "more than 1Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Import(context.Background(), bytes.NewReader(tt.tar), "bomb", nil)
			wantCode(t, err, sos.CodeImageFailed, tt.says)
			wantEmpty(t, s, "ingest", "layers", "images", "blobs")
		})
	}
}

// TestBombRatio feeds a stream that is 1 part packed to a thousand.
func TestBombRatio(t *testing.T) {
	packed := &counter{n: 1 << 20}
	z := &ratioReader{r: zeros{}, packed: packed, most: 200}
	buf := make([]byte, 1<<20)
	var err error
	for z.n < 4<<30 && err == nil {
		_, err = z.Read(buf)
	}
	wantCode(t, err, sos.CodeImageFailed, "bomb")
	if z.n > ratioFloor+1<<20 {
		t.Errorf("given up after %d bytes", z.n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// sparseHeader is a PAX sparse file of size bytes that are all hole.
func sparseHeader(size int64) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	pax := ""
	for _, kv := range [][2]string{{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.name", "usr/s"}, {"GNU.sparse.realsize", fmt.Sprint(size)}} {
		line := kv[0] + "=" + kv[1] + "\n"
		n := len(line) + 3
		pax += fmt.Sprintf("%d %s", n, line)
	}
	hdr := func(name string, flag byte, body string) {
		raw := make([]byte, 512)
		copy(raw, name)
		copy(raw[100:], "0000644\x000000000\x000000000\x00")
		copy(raw[124:], fmt.Sprintf("%011o\x00", len(body)))
		copy(raw[136:], "00000000000\x00        ")
		raw[156] = flag
		copy(raw[257:], "ustar\x0000")
		sum := 0
		for _, c := range raw {
			sum += int(c)
		}
		copy(raw[148:], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(raw)
		b.WriteString(body)
		b.Write(make([]byte, (512-len(body)%512)%512))
	}
	hdr("usr/", '5', "")
	hdr("PaxHeaders/s", 'x', pax)
	hdr("usr/GNUSparseFile.0/s", '0', "1\n"+fmt.Sprint(size)+"\n0\n"+strings.Repeat("\x00", 500))
	w.Close()
	return b.Bytes()
}
