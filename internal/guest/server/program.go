package server

import (
	"bytes"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// checkCwd says in a sentence why a directory cannot be a working directory.
func checkCwd(dir string) string {
	if !strings.HasPrefix(dir, "/") {
		return "the working directory \"" + dir + "\" is not an absolute path"
	}
	var st unix.Stat_t
	switch err := unix.Stat(dir, &st); {
	case err != nil:
		return "the working directory \"" + dir + "\": " + err.Error()
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "the working directory \"" + dir + "\" is not a directory"
	}
	return ""
}

// findProgram looks name up like a shell: with a slash it is a path, else the first
// executable file of that name on path.
func findProgram(name, path, cwd string) (found, why string) {
	if name == "" {
		return "", "the name of the program is empty"
	}
	if strings.Contains(name, "/") {
		full := join(cwd, name)
		if why := unusable(full); why != "" {
			return "", "program \"" + name + "\": " + why
		}
		return full, ""
	}
	refused := ""
	for dir := range strings.SplitSeq(path, ":") {
		full := join(join(cwd, dir), name)
		switch why := unusable(full); why {
		case "":
			return full, ""
		case notFound:
		default:
			refused = why
		}
	}
	if refused != "" {
		return "", "program \"" + name + "\": " + refused
	}
	return "", "program \"" + name + "\" was not found on the PATH"
}

func join(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

const notFound = "no such file or directory"

// unusable says why a file cannot be executed, as far as its mode tells.
func unusable(path string) string {
	var st unix.Stat_t
	switch err := unix.Stat(path, &st); {
	case err == unix.ENOENT:
		return notFound
	case err != nil:
		return err.Error()
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return "it is a directory"
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "it is not a regular file"
	case st.Mode&0o111 == 0:
		return "it is not executable"
	}
	return ""
}

// explain turns an error of a fork into a sentence for people.
func explain(err error, l launch) string {
	step, no := errno(err)
	switch {
	case step == stepCwd:
		return "the working directory \"" + l.cwd + "\": " + no.Error()
	case step == stepUser:
		return "cannot switch to the user: " + no.Error()
	case step == "clone" && (no == unix.EAGAIN || no == unix.ENOMEM):
		return "no new process can be made: " + no.Error()
	case !strings.HasPrefix(step, "exec "):
		return "it cannot be started: " + err.Error()
	}
	return "program \"" + l.argv[0] + "\": " + explainExec(no, l.path)
}

func explainExec(no unix.Errno, path string) string {
	head := firstBytes(path)
	switch no {
	case unix.ENOENT:
		if line, ok := bytes.CutPrefix(head, []byte("#!")); ok {
			line, _, _ = bytes.Cut(line, []byte("\n"))
			if f := bytes.Fields(line); len(f) > 0 {
				return "bad interpreter: " + string(f[0]) + " does not exist"
			}
		}
		if bytes.HasPrefix(head, []byte("\x7fELF")) {
			return "the loader that it needs (its C library) is not in this image"
		}
	case unix.ENOEXEC:
		if machine, ok := elfMachine(head); ok && machine != ownMachine() {
			return "it was built for another architecture"
		}
		return "exec format error: neither a program nor a script that begins with #!"
	case unix.E2BIG:
		return "the arguments and the environment are too long (argument list too long)"
	case unix.EACCES:
		return "permission denied"
	case unix.ETXTBSY:
		return "it is open for writing (text file busy)"
	case 0:
		return "it was killed while it started"
	}
	return no.Error()
}

func firstBytes(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, 256)
	n, _ := unix.Read(fd, buf)
	return buf[:max(n, 0)]
}

func elfMachine(head []byte) (uint16, bool) {
	if len(head) < 20 || !bytes.HasPrefix(head, []byte("\x7fELF")) {
		return 0, false
	}
	if head[5] == 2 {
		return uint16(head[18])<<8 | uint16(head[19]), true
	}
	return uint16(head[19])<<8 | uint16(head[18]), true
}

func ownMachine() uint16 {
	if runtime.GOARCH == "arm64" {
		return 183
	}
	return 62
}
