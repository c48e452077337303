package image

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/seaofsimulation/sos"
)

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

// TestPullRedirect fetches layers from elsewhere, where the token must not go.
func TestPullRedirect(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch)
	ref := r.push(t, "app:v1", img)
	var visits atomic.Int64
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		visits.Add(1)
		if req.Header.Get("Authorization") != "" {
			t.Error("the token went to another host")
		}
		r.real.ServeHTTP(w, req)
	}))
	defer cdn.Close()
	r.withToken("")
	token := r.fault
	r.setFault(func(w http.ResponseWriter, req *http.Request, kind string, nth int) bool {
		if token(w, req, kind, nth) {
			return true
		}
		if kind == "blobs" {
			http.Redirect(w, req, cdn.URL+req.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	s := open(t)
	got, err := s.Pull(background, ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkOCI(t, s, got, img)
	if visits.Load() != 3 {
		t.Errorf("%d blobs came from elsewhere, want 3", visits.Load())
	}
}
