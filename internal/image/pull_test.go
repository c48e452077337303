package image

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/seaofsimulation/sos"
)

var background = context.Background()

// big is content that does not compress, so that a layer takes several reads.
func big() file {
	b := make([]byte, 1<<20)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return reg("usr/big", string(b))
}

func TestPull(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch)
	ref := r.push(t, "team/app:v1", img)
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{ref, r.host + "/team/app@" + d.String()} {
		t.Run(by[len(r.host):], func(t *testing.T) {
			s := open(t)
			stages := map[string]bool{}
			got, err := s.Pull(background, by, func(p sos.Progress) { stages[p.Stage] = true })
			if err != nil {
				t.Fatal(err)
			}
			checkOCI(t, s, got, img)
			for _, st := range []string{"layer", "done"} {
				if !stages[st] {
					t.Errorf("no progress %q: %v", st, stages)
				}
			}
			// What is here is not asked for again.
			r.setFault(func(http.ResponseWriter, *http.Request, string, int) bool {
				t.Error("the registry was asked for a local image")
				return false
			})
			defer r.setFault(nil)
			if again, err := s.Resolve(background, by, nil); err != nil || again.Digest != got.Digest {
				t.Errorf("resolve: %v", err)
			}
		})
	}
}

func TestPullMultiArch(t *testing.T) {
	r := newRegistry(t)
	host, other := ociImage(t, hostArch), ociImage(t, "s390x")
	ref := r.push(t, "multi:v1", mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: ociImage(t, hostArch, reg("usr/attestation", "x")), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
		mutate.IndexAddendum{Add: host, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: hostArch}}}))
	s := open(t)
	img, err := s.Pull(background, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkOCI(t, s, img, host)
	foreign := open(t, func(c *Config) { c.Arch = "riscv64" })
	_, err = foreign.Pull(background, ref, nil)
	wantCode(t, err, sos.CodeImageFailed, "linux/riscv64", "linux/s390x", "linux/"+hostArch)
	single := r.push(t, "single:v1", other)
	_, err = s.Pull(background, single, nil)
	wantCode(t, err, sos.CodeImageFailed, "linux/s390x", "linux/"+hostArch)
	wantEmpty(t, foreign, "ingest", "layers", "images")
}

func TestPullToken(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "team/private:v1", ociImage(t, hostArch))
	r.withToken("")
	if _, err := open(t).Pull(background, ref, nil); err != nil {
		t.Errorf("anonymous token: %v", err)
	}
	r.withToken("me")
	conf := t.TempDir()
	t.Setenv("DOCKER_CONFIG", conf)
	_, err := open(t).Pull(background, ref, nil)
	wantCode(t, err, sos.CodeImageFailed, "does not allow", "docker login "+r.host)
	for password, ok := range map[string]bool{"secret": true, "wrong": false} {
		if err := os.WriteFile(filepath.Join(conf, "config.json"), dockerConfig(r.host, "me", password), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := open(t).Pull(background, ref, nil)
		if ok && err != nil {
			t.Errorf("with a login: %v", err)
		}
		if !ok {
			wantCode(t, err, sos.CodeImageFailed, "does not allow")
			if strings.Contains(err.(*sos.Error).Message, password) {
				t.Errorf("the message has the password: %v", err)
			}
		}
	}
}

// answer makes the registry answer requests of a kind with a status.
func answer(kind string, status, times int, header ...string) func(http.ResponseWriter, *http.Request, string, int) bool {
	return func(w http.ResponseWriter, _ *http.Request, k string, nth int) bool {
		if k != kind || times > 0 && nth > times {
			return false
		}
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		return true
	}
}

func TestPullStatus(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "app:v1", ociImage(t, hostArch))
	for _, tt := range []struct {
		name  string
		ref   string
		fault func(http.ResponseWriter, *http.Request, string, int) bool
		says  []string // nil: it must succeed
	}{
		{"403", ref, answer("manifests", 403, 0), []string{"does not allow", "docker login"}},
		{"403 on a layer", ref, answer("blobs", 403, 0), []string{"does not allow"}},
		{"404", ref, answer("manifests", 404, 0), []string{"no image", "app:v1", "check the name"}},
		{"no such tag", r.host + "/app:v2", nil, []string{"no image", "app:v2"}},
		{"no such repository", r.host + "/none/at/all", nil, []string{"no image"}},
		{"missing layer", ref, answer("blobs", 404, 0), []string{"no image"}},
		{"429 once", ref, answer("manifests", 429, 1, "Retry-After", "0"), nil},
		{"429 on layers", ref, answer("blobs", 429, 2, "Retry-After", "0"), nil},
		{"429 for ever", ref, answer("manifests", 429, 0, "Retry-After", "0"), []string{"too many requests", "docker login"}},
		{"429 for an hour", ref, answer("manifests", 429, 0, "Retry-After", "3600"), []string{"too many requests"}},
		{"500 twice", ref, answer("manifests", 500, 2), nil},
		{"503 on layers", ref, answer("blobs", 503, 3), nil},
		{"500 for ever", ref, answer("blobs", 500, 0), []string{"fault of its own", "sos image import"}},
		{"ping fails", ref, answer("ping", 502, 0), []string{"fault of its own"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.setFault(tt.fault)
			s := open(t)
			img, err := s.Pull(background, tt.ref, nil)
			if tt.says == nil {
				if err != nil {
					t.Fatal(err)
				}
				checkOCI(t, s, img, nil)
				return
			}
			wantCode(t, err, sos.CodeImageFailed, tt.says...)
			wantEmpty(t, s, "ingest", "images")
		})
	}
}

func TestPullHonoursRetryAfter(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "app:v1", ociImage(t, hostArch))
	var first, second time.Time
	r.setFault(func(w http.ResponseWriter, _ *http.Request, kind string, nth int) bool {
		if kind != "manifests" {
			return false
		}
		if nth == 1 {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return true
		}
		second = time.Now()
		return false
	})
	if _, err := open(t).Pull(background, ref, nil); err != nil {
		t.Fatal(err)
	}
	if d := second.Sub(first); d < time.Second {
		t.Errorf("came again after %v", d)
	}
}

func TestPullUnreachable(t *testing.T) {
	s := open(t)
	r := newRegistry(t)
	_, err := s.Pull(background, "localhost:1/x", nil)
	wantCode(t, err, sos.CodeImageFailed, "cannot be reached", "connection refused", "sos image import FILE --name localhost:1/x:latest")
	_, err = s.Pull(background, "no-such-host.invalid/x", nil)
	wantCode(t, err, sos.CodeImageFailed, "cannot be reached", "no-such-host.invalid")
	_, err = s.Pull(background, "Bad Name", nil)
	wantCode(t, err, sos.CodeInvalid, "Bad Name")
	r.setFault(func(w http.ResponseWriter, req *http.Request, _ string, _ int) bool {
		http.Redirect(w, req, "http://registry.example/v2/", http.StatusFound)
		return true
	})
	_, err = s.Pull(background, r.host+"/x", nil)
	wantCode(t, err, sos.CodeImageFailed, "TLS")
}
