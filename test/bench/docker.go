package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// docker talks to an engine that this program started: its own socket, folder
// and no network, so that it meets no other.
type docker struct {
	dir    string
	engine *exec.Cmd
	http   *http.Client
}

func startDocker(ctx context.Context, image string) (*docker, error) {
	path, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, errors.New("dockerd is not installed (apt-get install docker.io)")
	}
	dir, err := os.MkdirTemp("", "sos-bench-docker")
	if err != nil {
		return nil, err
	}
	sock := filepath.Join(dir, "docker.sock")
	d := &docker{dir: dir}
	d.engine = exec.Command(path, "--host", "unix://"+sock, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--bridge", "none", "--iptables=false")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	d.engine.Stdout, d.engine.Stderr = log, log
	if err := d.engine.Start(); err != nil {
		return nil, err
	}
	d.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", sock)
	}}}
	if err := d.prepare(ctx, image); err != nil {
		text, _ := os.ReadFile(log.Name())
		d.close()
		return nil, fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):])
	}
	return d, nil
}

func (d *docker) prepare(ctx context.Context, image string) error {
	end := time.Now().Add(time.Minute)
	for {
		err := d.call(ctx, "GET", "/_ping", nil, nil)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	repo, tag, _ := strings.Cut(imageName, ":")
	return doHTTP(ctx, d.http, "POST", "http://docker/images/create?fromSrc=-&repo="+repo+"&tag="+tag, f, nil)
}

func (d *docker) name() string { return "docker" }

func (d *docker) call(ctx context.Context, method, path string, body, into any) error {
	var b io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		b = strings.NewReader(string(data))
	}
	return doHTTP(ctx, d.http, method, "http://docker"+path, b, into)
}

func (d *docker) start(ctx context.Context) (string, error) {
	var r struct{ ID string }
	err := d.call(ctx, "POST", "/containers/create", map[string]any{
		"Image": imageName, "Cmd": []string{"sleep", "infinity"}, "NetworkDisabled": true,
		"HostConfig": map[string]any{"Memory": 2 << 30, "NanoCpus": 1e9, "PidsLimit": 1024, "NetworkMode": "none"},
	}, &r)
	if err != nil {
		return "", err
	}
	return r.ID, d.call(ctx, "POST", "/containers/"+r.ID+"/start", nil, nil)
}

func (d *docker) run(ctx context.Context, id, command string) (string, error) {
	var r struct{ ID string }
	err := d.call(ctx, "POST", "/containers/"+id+"/exec", map[string]any{"Cmd": []string{"/bin/bash", "-c", command}, "AttachStdout": true, "AttachStderr": true, "Tty": true}, &r)
	if err != nil {
		return "", err
	}
	var out string
	err = d.call(ctx, "POST", "/exec/"+r.ID+"/start", map[string]any{"Tty": true}, &out)
	return out, err
}

func (d *docker) remove(ctx context.Context, id string) error {
	return d.call(ctx, "DELETE", "/containers/"+id+"?"+url.Values{"force": {"true"}, "v": {"true"}}.Encode(), nil, nil)
}

// memory sums what is private to the container's process and its shim.
func (d *docker) memory(ctx context.Context, id string) (int64, error) {
	pids, err := processesIn(func(cgroups string) bool { return strings.Contains(cgroups, id) })
	if err != nil {
		return 0, err
	}
	shims, err := processesWith(id)
	if err != nil {
		return 0, err
	}
	return privateBytes(append(pids, shims...))
}

func (d *docker) close() {
	d.engine.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { d.engine.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		d.engine.Process.Kill()
	}
	os.RemoveAll(d.dir)
}
