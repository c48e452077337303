package control

import (
	"strings"

	"github.com/seaofsimulation/sos"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// factsOf gives what commands inherit: the image's word stands over the defaults,
// the sandbox's over the image's.
func factsOf(s sos.Sandbox, img sos.Image) facts {
	f := facts{env: map[string]string{"PATH": defaultPath, "LANG": "C.UTF-8"}, workdir: "/", user: img.User}
	if s.User != "" {
		f.user = s.User
	}
	if isRoot(f.user) { // of others the guest knows the home
		f.env["HOME"] = "/root"
	}
	for _, kv := range img.Env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" && strings.IndexByte(kv, 0) < 0 {
			f.env[k] = v
		}
	}
	for k, v := range s.Env {
		f.env[k] = v
	}
	for _, dir := range []string{img.Workdir, s.Workdir} {
		if dir != "" {
			f.workdir = dir
		}
	}
	switch {
	case img.HasBash:
		f.shell = "/bin/bash"
	case img.HasShell:
		f.shell = "/bin/sh"
	}
	return f
}

func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "root" || name == "0"
}
