package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// hurtBlobs does harm to the first n answers with a large layer.
func (f *faultyRegistry) hurtBlobs(n int, hurt func(w http.ResponseWriter, r *http.Request)) {
	var done atomic.Int64
	f.setFault(func(w http.ResponseWriter, r *http.Request, kind string, _ int) bool {
		if kind != "blobs" || r.Method != http.MethodGet {
			return false
		}
		plain := r.Clone(r.Context())
		plain.Header.Del("Range")
		if f.record(plain).Body.Len() < 1<<20 || done.Add(1) > int64(n) {
			return false
		}
		hurt(w, r)
		return true
	})
}

func TestPullBrokenLayers(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch, big())
	ref := r.push(t, "app:v1", img)
	var continued atomic.Int64
	cut := func(ranges bool) func(w http.ResponseWriter, req *http.Request) {
		return func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Range") != "" {
				continued.Add(1)
			}
			body := r.blobBody(w, req, ranges)
			w.Write(body[:min(len(body), 300<<10)])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	spoil := func(w http.ResponseWriter, req *http.Request) {
		body := bytes.Clone(r.blobBody(w, req, true))
		body[len(body)/2] ^= 1
		w.Write(body)
	}
	other := append(gz(t, makeTar(t, big(), reg("evil", "x"))), make([]byte, 4096)...)
	for _, tt := range []struct {
		name string
		n    int
		hurt func(w http.ResponseWriter, req *http.Request)
		says string
	}{
		{"cut and continued", 3, cut(true), ""},
		{"cut and begun again", 2, cut(false), ""},
		{"cut for ever, no ranges", 1000, cut(false), "broke again and again"},
		{"spoilt once", 1, spoil, ""},
		{"spoilt for ever", 1000, spoil, "damaged content"},
		{"another blob", 1000, func(w http.ResponseWriter, _ *http.Request) { w.Write(other) }, "damaged content"},
		{"endless", 1000, func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, io.LimitReader(zeros{}, 64<<20)) }, "damaged content"},
		{"ends early, says no length", 1000, func(w http.ResponseWriter, req *http.Request) {
			plain := req.Clone(req.Context())
			plain.Header.Del("Range")
			w.(http.Flusher).Flush()
			w.Write(r.record(plain).Body.Bytes()[:1000])
		}, "broke again and again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r.hurtBlobs(tt.n, tt.hurt)
			s := open(t)
			got, err := s.Pull(background, ref, nil)
			if tt.says != "" {
				wantCode(t, err, sos.CodeImageFailed, tt.says)
				wantEmpty(t, s, "ingest", "images")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkOCI(t, s, got, img)
		})
	}
	if continued.Load() == 0 {
		t.Error("no broken download was continued where it was")
	}
}

// TestPullLiar has a registry whose configuration promises other content.
func TestPullLiar(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch)
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.RootFS.DiffIDs[1].Hex = strings.Repeat("0", 64)
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	_, err = s.Pull(background, r.push(t, "liar:v1", img), nil)
	wantCode(t, err, sos.CodeImageFailed, "content of a layer")
	wantEmpty(t, s, "ingest", "images")
}

func TestPullSlowAndStalled(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch, big())
	ref := r.push(t, "app:v1", img)
	quick := func(c *Config) { c.Stall, c.Retries = 300*time.Millisecond, 3 }
	t.Run("slow is fine", func(t *testing.T) {
		r.hurtBlobs(1, func(w http.ResponseWriter, req *http.Request) {
			body := r.blobBody(w, req, true)
			for len(body) > 0 { // longer in all than the stall
				n := min(len(body), 100<<10)
				w.Write(body[:n])
				w.(http.Flusher).Flush()
				body = body[n:]
				time.Sleep(50 * time.Millisecond)
			}
		})
		s := open(t, quick)
		got, err := s.Pull(background, ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkOCI(t, s, got, img)
	})
	stall := func(w http.ResponseWriter, req *http.Request) {
		body := r.blobBody(w, req, true)
		w.Write(body[:min(len(body), 100<<10)])
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	}
	t.Run("stalled once", func(t *testing.T) {
		r.hurtBlobs(1, stall)
		s := open(t, quick)
		got, err := s.Pull(background, ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkOCI(t, s, got, img)
	})
	t.Run("silent for ever", func(t *testing.T) {
		r.hurtBlobs(1000, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(2<<20))
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		})
		s := open(t, quick)
		_, err := s.Pull(background, ref, nil)
		wantCode(t, err, sos.CodeImageFailed, "stopped sending")
		wantEmpty(t, s, "ingest", "images")
	})
}

// gate holds back all blobs until it is opened.
func (f *faultyRegistry) gate() (open func()) {
	ch := make(chan struct{})
	f.setFault(func(_ http.ResponseWriter, r *http.Request, kind string, _ int) bool {
		if kind == "blobs" {
			select {
			case <-ch:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return sync.OnceFunc(func() { close(ch) })
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in time", what)
		}
	}
}

func (s *Store) callersOf(ref string) int {
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	if run := s.pulls.runs[ref]; run != nil {
		return run.callers
	}
	return 0
}

// TestPullShared has 20 callers of one image; the first goes away.
func TestPullShared(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch, big())
	ref := r.push(t, "app:v1", img)
	release := r.gate()
	defer release()
	s := open(t)
	first, leave := context.WithCancel(background)
	results := make(chan error, 20)
	firstDone := make(chan error, 1)
	go func() { _, err := s.Pull(first, ref, nil); firstDone <- err }()
	waitFor(t, "request", func() bool { return r.count("blobs") > 0 })
	for range 19 {
		go func() {
			got, err := s.Resolve(background, ref, nil)
			if err == nil && got.Digest == "" {
				err = errors.New("success without an image")
			}
			results <- err
		}()
	}
	waitFor(t, "20 callers", func() bool { return s.callersOf(ref) == 20 })
	leave()
	wantCode(t, <-firstDone, sos.CodeCanceled)
	release()
	for range 19 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for digest, n := range r.blobFetches() {
		if n != 1 {
			t.Errorf("blob %s was fetched %d times", digest, n)
		}
	}
	if n := len(r.blobFetches()); n != 3 {
		t.Errorf("%d blobs were fetched, want 3", n)
	}
	wantEmpty(t, s, "ingest")
}

// TestPullSharedLayers pulls two images that have a layer in common.
func TestPullSharedLayers(t *testing.T) {
	r := newRegistry(t)
	a, b := r.push(t, "a:v1", ociImage(t, hostArch, reg("usr/a", "a"))), r.push(t, "b:v1", ociImage(t, hostArch, reg("usr/b", "b")))
	release := r.gate()
	defer release()
	s := open(t)
	errs := make(chan error, 2)
	for _, ref := range []string{a, b} {
		go func() { _, err := s.Pull(background, ref, nil); errs <- err }()
	}
	waitFor(t, "both configurations", func() bool { return r.count("blobs") == 2 })
	release()
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	fetches := r.blobFetches()
	if len(fetches) != 5 { // two configurations, one shared layer, two of their own
		t.Errorf("blobs: %v", fetches)
	}
	for d, n := range fetches {
		if n != 1 {
			t.Errorf("blob %s was fetched %d times", d, n)
		}
	}
	if list, err := os.ReadDir(s.path("layers")); err != nil || len(list) != 3 {
		t.Errorf("%d layers, want 3 (%v)", len(list), err)
	}
}

// TestPullAborted has the only caller leave: the work stops and leaves nothing,
// and a pull after it works.
func TestPullAborted(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "app:v1", ociImage(t, hostArch))
	release := r.gate()
	defer release()
	s := open(t)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { _, err := s.Pull(ctx, ref, nil); done <- err }()
	waitFor(t, "request", func() bool { return r.count("blobs") > 0 })
	cancel()
	wantCode(t, <-done, sos.CodeCanceled)
	waitFor(t, "end of the work", func() bool {
		list, err := os.ReadDir(s.path("ingest"))
		return err == nil && len(list) == 0
	})
	release()
	if _, err := s.Pull(background, ref, nil); err != nil {
		t.Errorf("pull after an aborted one: %v", err)
	}
}

// TestStalledRegistryDelaysNobody pulls from one registry while another is dead.
func TestStalledRegistryDelaysNobody(t *testing.T) {
	dead, alive := newRegistry(t), newRegistry(t)
	deadRef, aliveRef := dead.push(t, "x:v1", ociImage(t, hostArch, reg("usr/d", "d"))), alive.push(t, "y:v1", ociImage(t, hostArch))
	release := dead.gate()
	defer release()
	s := open(t)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { _, err := s.Pull(ctx, deadRef, nil); done <- err }()
	waitFor(t, "request", func() bool { return dead.count("blobs") > 0 })
	if _, err := s.Pull(background, aliveRef, nil); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
}

// TestCloseEndsPulls waits for nothing that a registry holds back.
func TestCloseEndsPulls(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "app:v1", ociImage(t, hostArch))
	release := r.gate()
	defer release()
	s := open(t)
	done := make(chan error, 1)
	go func() { _, err := s.Pull(background, ref, nil); done <- err }()
	waitFor(t, "request", func() bool { return r.count("blobs") > 0 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-done, sos.CodeCanceled)
	wantEmpty(t, s, "ingest", "images")
}
