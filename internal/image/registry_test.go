package image

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// faultyRegistry is a real registry behind a handler that does harm.
type faultyRegistry struct {
	host string
	real http.Handler

	mu      sync.Mutex
	fetches map[string]int // GETs of blobs, by digest, that reached the registry
	hits    map[string]int // requests by kind: "manifests", "blobs", "token"
	fault   func(w http.ResponseWriter, r *http.Request, kind string, nth int) bool
}

func newRegistry(t testing.TB) *faultyRegistry {
	t.Helper()
	f := &faultyRegistry{real: registry.New(registry.Logger(log.New(io.Discard, "", 0))), fetches: map[string]int{}, hits: map[string]int{}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	f.host = u.Host
	return f
}

func kindOf(path string) string {
	for _, k := range []string{"manifests", "blobs", "token"} {
		if strings.Contains(path, "/"+k) {
			return k
		}
	}
	return "ping"
}

func (f *faultyRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := kindOf(r.URL.Path)
	f.mu.Lock()
	f.hits[kind]++
	nth, fault := f.hits[kind], f.fault
	f.mu.Unlock()
	if fault != nil && fault(w, r, kind, nth) {
		return
	}
	if kind == "blobs" && r.Method == http.MethodGet {
		f.mu.Lock()
		f.fetches[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]++
		f.mu.Unlock()
	}
	f.real.ServeHTTP(w, r)
}

func (f *faultyRegistry) setFault(fault func(w http.ResponseWriter, r *http.Request, kind string, nth int) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
	clear(f.hits)
	clear(f.fetches)
}

func (f *faultyRegistry) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits[kind]
}

// blobFetches is how often each blob was asked for.
func (f *faultyRegistry) blobFetches() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for k, v := range f.fetches {
		out[k] = v
	}
	return out
}

// push puts an image or an index there and gives its full name.
func (f *faultyRegistry) push(t testing.TB, tag string, what any) string {
	t.Helper()
	ref, err := name.ParseReference(f.host + "/" + tag)
	if err != nil {
		t.Fatal(err)
	}
	switch x := what.(type) {
	case v1.Image:
		err = remote.Write(ref, x)
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.host + "/" + tag
}

// record lets the real registry answer and gives the answer.
func (f *faultyRegistry) record(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.real.ServeHTTP(w, r)
	return w
}

// blobBody is the body of a blob with its headers already sent, as a registry
// that knows ranges or one that does not would send it.
func (f *faultyRegistry) blobBody(w http.ResponseWriter, r *http.Request, ranges bool) []byte {
	plain := r.Clone(r.Context())
	plain.Header.Del("Range") // the real one wants the end of a range too
	body, status := f.record(plain).Body.Bytes(), http.StatusOK
	var from int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil && ranges {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		body, status = body[from:], http.StatusPartialContent
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	return body
}

// withToken makes the registry ask for a bearer token, from user if one is named.
func (f *faultyRegistry) withToken(user string) {
	f.setFault(func(w http.ResponseWriter, r *http.Request, kind string, _ int) bool {
		if kind == "token" {
			u, p, _ := r.BasicAuth()
			if user != "" && (u != user || p != "secret") {
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`, http.StatusUnauthorized)
				return true
			}
			json.NewEncoder(w).Encode(map[string]any{"token": "good", "expires_in": 300})
			return true
		}
		if r.Header.Get("Authorization") != "Bearer good" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test"`, f.host))
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"token please"}]}`, http.StatusUnauthorized)
			return true
		}
		return false
	})
}

// dockerConfig is a Docker configuration with a login for the registry.
func dockerConfig(host, user, password string) []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	return bytes.ReplaceAll([]byte(`{"auths":{"HOST":{"auth":"`+auth+`"}}}`), []byte("HOST"), []byte(host))
}
