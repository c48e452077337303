package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos"
)

// picky refuses every archive without reading it.
type picky struct{ sos.Service }

func (picky) ImportImage(context.Context, io.Reader, string, func(sos.Progress)) (sos.Image, error) {
	return sos.Image{}, sos.Errorf(sos.CodeImageFailed, "not an archive")
}

// A client that goes on after a refused archive must not meet the connection on
// which the rest of that archive was never read.
func TestRefusedImportEndsItsConnection(t *testing.T) {
	srv := New(Config{Service: picky{}})
	ts := httptest.NewServer(srv.Handler())
	defer ts.Close()
	for _, accept := range []string{"", ndjsonType} {
		for range 20 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ts.URL+"/images/import?name=x", io.MultiReader(strings.NewReader(strings.Repeat("y", 1<<20))))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", accept)
			resp, err := ts.Client().Do(req)
			if err != nil {
				t.Fatalf("accept %q: %v", accept, err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !strings.Contains(string(text), "not an archive") || !resp.Close {
				t.Fatalf("accept %q: %q, close %v, %v", accept, text, resp.Close, err)
			}
		}
	}
}
