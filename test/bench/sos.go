package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const imageName = "bench:latest"

// sosSystem is a server of its own on a data directory of its own.
type sosSystem struct {
	bin, dir, url string
	server        *exec.Cmd
	http          *http.Client
}

func startSoS(ctx context.Context, bin, image string) (*sosSystem, error) {
	dir, err := os.MkdirTemp("", "sos-bench")
	if err != nil {
		return nil, err
	}
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	s := &sosSystem{bin: bin, dir: dir, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	s.server = exec.CommandContext(ctx, bin, "serve", "--port", "0", "--max-sandboxes", "64", "--data-dir", dir)
	stderr, err := s.server.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.server.Start(); err != nil {
		return nil, err
	}
	if s.url, err = readyURL(stderr); err != nil {
		s.close()
		return nil, err
	}
	out, err := exec.CommandContext(ctx, bin, "image", "import", image, "--name", imageName, "--server", s.url).CombinedOutput()
	if err != nil {
		s.close()
		return nil, fmt.Errorf("import: %w\n%s", err, out)
	}
	return s, nil
}

// readyURL reads the server's log until it says where it listens.
func readyURL(r io.Reader) (string, error) {
	sc := bufio.NewScanner(r)
	var said []string
	for sc.Scan() {
		said = append(said, sc.Text())
		if _, rest, ok := strings.Cut(sc.Text(), "ready on "); ok {
			go io.Copy(io.Discard, r)
			return strings.Fields(rest)[0], nil
		}
	}
	return "", errors.New("the server did not become ready:\n" + strings.Join(said, "\n"))
}

func (s *sosSystem) name() string { return "sos" }

func (s *sosSystem) call(ctx context.Context, method, path string, body, into any) error {
	var b io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		b = bytes.NewReader(data)
	}
	return doHTTP(ctx, s.http, method, s.url+path, b, into)
}

// doHTTP is one call; a nil into drops the answer, a *string takes it as text.
func doHTTP(ctx context.Context, c *http.Client, method, url string, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("%s %s: %s: %s", method, url, res.Status, text)
	}
	switch into := into.(type) {
	case nil:
		_, err = io.Copy(io.Discard, res.Body)
	case *string:
		var data []byte
		data, err = io.ReadAll(res.Body)
		*into = string(data)
	default:
		err = json.NewDecoder(res.Body).Decode(into)
	}
	return err
}

func (s *sosSystem) start(ctx context.Context) (string, error) {
	var r struct{ ID string }
	if err := s.call(ctx, "POST", "/sandboxes", map[string]any{"image": imageName, "setup_commands": []string{}}, &r); err != nil {
		return "", err
	}
	return r.ID, s.call(ctx, "POST", "/sandboxes/"+r.ID+"/start", nil, nil)
}

func (s *sosSystem) run(ctx context.Context, id, command string) (string, error) {
	return s.exec(ctx, id, command, true)
}

func (s *sosSystem) exec(ctx context.Context, id, command string, standalone bool) (string, error) {
	var r struct {
		Output   string
		ExitCode int `json:"exit_code"`
	}
	err := s.call(ctx, "POST", "/sandboxes/"+id+"/exec", map[string]any{"command": command, "standalone": standalone}, &r)
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d", command, r.ExitCode)
	}
	return r.Output, err
}

// lastDuration is how long the newest process ran, by its record.
func (s *sosSystem) lastDuration(ctx context.Context, id string) (time.Duration, error) {
	var list []struct {
		StartedAt time.Time `json:"started_at"`
		EndedAt   time.Time `json:"ended_at"`
	}
	if err := s.call(ctx, "GET", "/sandboxes/"+id+"/processes", nil, &list); err != nil {
		return 0, err
	}
	if len(list) == 0 {
		return 0, errors.New("no process recorded")
	}
	last := list[len(list)-1]
	return last.EndedAt.Sub(last.StartedAt), nil
}

func (s *sosSystem) remove(ctx context.Context, id string) error {
	return s.call(ctx, "POST", "/sandboxes/"+id+"/stop", map[string]any{"remove": true}, nil)
}

// memory sums what is private to the processes of the sandbox: guest and shell.
func (s *sosSystem) memory(ctx context.Context, id string) (int64, error) {
	pids, err := processesIn(func(cgroups string) bool {
		return strings.Contains(cgroups, "/"+id+"/") || strings.Contains(cgroups, "/"+id+"\n")
	})
	if err != nil {
		return 0, err
	}
	return privateBytes(pids)
}

func (s *sosSystem) close() {
	s.server.Process.Signal(os.Interrupt)
	done := make(chan struct{})
	go func() { s.server.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		s.server.Process.Kill()
	}
	exec.Command(s.bin, "down", "--data-dir", s.dir).Run()
	os.RemoveAll(s.dir)
}
