package server

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seaofsimulation/sos"
)

// discardWriter is the cheapest ResponseWriter.
type discardWriter struct {
	header http.Header
	status int
	body   []byte
}

func (w *discardWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *discardWriter) WriteHeader(s int) { w.status = s }
func (w *discardWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

func newRequest(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:3000"
	return r
}

// BenchmarkExec is what the server adds to a command that takes no time.
func BenchmarkExec(b *testing.B) {
	svc := &stub{execRes: sos.ExecResult{Process: "p-aaaaaaaaaaaaaaaa", Output: "hello"}}
	h := New(Config{Service: svc, Log: slog.New(slog.DiscardHandler)}).Handler()
	body := []byte(`{"command":"echo hello","standalone":false}`)
	b.ReportAllocs()
	for b.Loop() {
		r := newRequest("POST", "/sandboxes/"+stubID+"/exec")
		r.Header["Content-Type"] = []string{"application/json"}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		w := &discardWriter{}
		h.ServeHTTP(w, r)
		if w.status != 200 {
			b.Fatal(w.status)
		}
	}
}

// BenchmarkExecHTTP is the same over a connection that is kept.
func BenchmarkExecHTTP(b *testing.B) {
	ts := listen(b, &stub{execRes: sos.ExecResult{Process: "p-aaaaaaaaaaaaaaaa", Output: "hello"}})
	body := `{"command":"echo hello","standalone":false}`
	b.ReportAllocs()
	for b.Loop() {
		if status, _, _ := ask(b, ts, "POST", "/sandboxes/"+stubID+"/exec", body); status != 200 {
			b.Fatal(status)
		}
	}
}
