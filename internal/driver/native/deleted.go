package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deletedUsage counts the bytes of files that have no name any more but are still
// open or mapped in a sandbox: they take space that no walk over a tree finds, and
// a sandbox could fill the disk with them behind the back of its limit. pid is the
// guest, the ancestor of all its processes.
func deletedUsage(ctx context.Context, pid int) (int64, error) {
	w := deletedWalk{files: map[uint64]struct{}{}}
	seen := map[int]bool{pid: true}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		w.process(queue[0])
		for _, child := range childrenOf(queue[0]) {
			if !seen[child] {
				seen[child] = true
				queue = append(queue, child)
			}
		}
	}
	return w.bytes, nil
}

type deletedWalk struct {
	files map[uint64]struct{}
	bytes int64
}

// process counts what one process holds; one that is gone holds nothing.
func (w *deletedWalk) process(pid int) {
	for _, dir := range []string{"fd", "map_files"} {
		d, err := openDirAt(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/%s", pid, dir), 0)
		if err != nil {
			continue
		}
		for {
			names, err := d.Readdirnames(1024)
			for _, name := range names {
				w.file(int(d.Fd()), name)
			}
			if len(names) == 0 || err != nil {
				break
			}
		}
		d.Close()
	}
}

func (w *deletedWalk) file(dirfd int, name string) {
	var st unix.Stat_t
	err := unix.Fstatat(dirfd, name, &st, 0)
	if err != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	// Files of tmpfs and memory files are the memory limit's.
	var fs unix.Statfs_t
	err = unix.Statfs(fmt.Sprintf("/proc/self/fd/%d/%s", dirfd, name), &fs)
	if err != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return
	}
	if _, again := w.files[st.Ino]; !again {
		w.files[st.Ino] = struct{}{}
		w.bytes += st.Blocks * 512
	}
}

// childrenOf gives the children of all threads of a process.
func childrenOf(pid int) (list []int) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	for _, t := range tasks {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "task", t.Name(), "children"))
		if err != nil {
			continue // it ended
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}
