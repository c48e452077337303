package spawner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/sysprog"
)

// How layers reach the overlay.
const (
	overlayFD     = "fd"     // as descriptors of detached trees; Linux 6.13
	overlayAttach = "attach" // attached below a private tmpfs and named
)

// Options of the overlay, chosen for layers whose content nobody vouches for:
// redirects and metadata-only copies are trusted.* attributes that let a layer name
// files of other places, and are neither made nor followed. The index is off for
// speed: nothing here is exported or has hard links that must stay together.
// volatile: no sync of the host's whole file system at the end; who stops a
// sandbox syncs its upper layer. userxattr is not needed: we mount as host root,
// and nobody inside can write trusted.* attributes.
var overlayOptions = [][2]string{
	{"upperdir", "u"}, {"workdir", "w"},
	{"redirect_dir", "nofollow"}, {"metacopy", "off"}, {"index", "off"},
}

// layerTrees opens one detached tree for each layer, read-only, without devices,
// its owners mapped into the user namespace. Highest first, as overlay wants it.
// Setuid files stay as they are (no NOSUID): no_new_privs makes them harmless, and
// programs that look at the mount's flags find what they expect.
func layerTrees(layers []string, userns *os.File) (trees []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(trees)
			trees = nil
		}
	}()
	for i := len(layers) - 1; i >= 0; i-- {
		tree, err := layerTree(layers[i], int(userns.Fd()))
		if err != nil {
			return trees, err
		}
		trees = append(trees, tree)
	}
	return trees, nil
}

func layerTree(dir string, userns int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, stepError("open layer "+dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, stepError("open layer "+dir, unix.ENOTDIR)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, stepError("open layer "+dir, err)
	}
	attr := &unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(userns),
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		_ = unix.Close(fd)
		return nil, stepError("map the ids of layer "+dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// attachPoint is the directory for attached layers; where there are none, the root
// of the sandbox covers its own upper directory, and one directory less is made.
const attachPoint = "m"

// mountOverlay appends the steps that mount the root of the sandbox, and gives the
// directory that it is mounted on. The working directory is the state directory; all
// names are relative, because the options of a mount can be read inside.
func mountOverlay(p *sysprog.Program, how string, trees []*os.File) (on string) {
	if how == overlayAttach {
		attachOverlay(p, trees)
		return attachPoint
	}
	const upper = "u"
	const fs, mnt = 0, 1 // slots
	p.Call("open overlay", unix.SYS_FSOPEN, p.Str("overlay"), unix.FSOPEN_CLOEXEC).Save(fs)
	set := func(cmd uintptr, key string, value uintptr, aux int) {
		p.Call("overlay option "+key, unix.SYS_FSCONFIG, 0, cmd, p.Str(key), value, uintptr(aux)).Use(0, fs)
	}
	set(unix.FSCONFIG_SET_STRING, "source", p.Str("overlay"), 0)
	for _, t := range trees {
		set(unix.FSCONFIG_SET_FD, "lowerdir+", 0, int(t.Fd()))
	}
	for _, o := range overlayOptions {
		set(unix.FSCONFIG_SET_STRING, o[0], p.Str(o[1]), 0)
	}
	set(unix.FSCONFIG_SET_FLAG, "volatile", 0, 0)
	p.Call("create overlay", unix.SYS_FSCONFIG, 0, unix.FSCONFIG_CMD_CREATE, 0, 0, 0).Use(0, fs)
	// NODEV: no cgroup guards devices here, so none of an image may open.
	p.Call("mount overlay", unix.SYS_FSMOUNT, 0, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV).Use(0, fs).Save(mnt)
	p.Call("attach overlay", unix.SYS_MOVE_MOUNT, 0, p.Str(""), sysprog.AtCWD, p.Str(upper), unix.MOVE_MOUNT_F_EMPTY_PATH).Use(0, mnt)
	return upper
}

func attachOverlay(p *sysprog.Program, trees []*os.File) {
	mount(p, "layers", "tmpfs", attachPoint, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=700")
	var lower []string
	for i, t := range trees {
		name := attachPoint + "/" + strconv.Itoa(i)
		p.Call("make a place for layer "+t.Name(), unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str(name), 0o700)
		p.Call("attach layer "+t.Name(), unix.SYS_MOVE_MOUNT, t.Fd(), p.Str(""), sysprog.AtCWD, p.Str(name),
			unix.MOVE_MOUNT_F_EMPTY_PATH)
		lower = append(lower, name)
	}
	options := []string{"lowerdir=" + strings.Join(lower, ":"), "volatile"}
	for _, o := range overlayOptions {
		options = append(options, o[0]+"="+o[1])
	}
	mount(p, "overlay", "overlay", attachPoint, "overlay", unix.MS_NODEV, strings.Join(options, ","))
}

// probeOverlay asks the kernel whether it takes layers as descriptors.
func probeOverlay(dir string) (string, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("probe overlay: %w", err)
	}
	defer unix.Close(fs)
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("probe overlay: %w", err)
	}
	defer unix.Close(tree)
	err = unix.FsconfigSetFd(fs, "lowerdir+", tree)
	switch {
	case err == nil:
		return overlayFD, nil
	case errors.Is(err, unix.EINVAL):
		return overlayAttach, nil
	}
	return "", fmt.Errorf("probe overlay: %w", err)
}
