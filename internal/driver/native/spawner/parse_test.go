package spawner

import (
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	line := "77 (a) b (c) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 98765 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 4352\n"
	st, err := parseStat(line)
	if err != nil || st.state != 'Z' || st.start != 98765 || st.exit.ExitStatus() != 17 {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, bad := range []string{"", "77", "77 (a)", "77 (a) Z 1 2"} {
		if st, err := parseStat(bad); err == nil {
			t.Errorf("%q: %+v", bad, st)
		}
	}
}

func TestUnneededMounts(t *testing.T) {
	info := `1 0 8:1 / / rw - ext4 /dev/a rw
2 1 0:1 / /proc rw - proc proc rw
3 1 0:2 / /sys rw - sysfs sysfs rw
4 3 0:3 / /sys/fs/cgroup rw - tmpfs tmpfs rw
5 3 0:4 / /sys/kernel/debug rw - debugfs debugfs rw
6 1 0:5 / /home rw - ext4 /dev/b rw
7 1 0:6 / /data rw - ext4 /dev/c rw
8 7 0:7 / /data/sos/more rw - ext4 /dev/d rw
9 7 0:8 / /data/other rw - ext4 /dev/e rw
10 1 0:9 / /data\040x rw - ext4 /dev/f rw
`
	got := unneeded(info, []string{"/proc", "/sys/fs/cgroup", "/data/sos"})
	want := []string{"/data x", "/data/other", "/home", "/sys/kernel/debug"}
	if !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}
