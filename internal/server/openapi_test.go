package server

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos"
)

// TestOpenAPI holds the document against its golden file, which is published.
func TestOpenAPI(t *testing.T) {
	cfg, _ := quiet(&stub{})
	s := New(cfg)
	b, err := s.openapi()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("..", "..", "api", "openapi.json"), string(b))
}

// TestOpenAPIHasEveryRoute: what is mounted is documented, and what is documented
// is mounted.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	ts := listen(t, &stub{info: sos.Info{Healthy: true}})
	_, _, body := ask(t, ts, "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("openapi is %q", doc.OpenAPI)
	}
	cfg, _ := quiet(&stub{})
	var mounted, documented, ids []string
	for _, rt := range New(cfg).routes {
		if !rt.doc.hidden {
			mounted = append(mounted, rt.method+" "+strings.ReplaceAll(rt.path, "...}", "}"))
			ids = append(ids, rt.doc.id)
		}
	}
	wild := regexp.MustCompile(`\{\w+\}`)
	for path, ops := range doc.Paths {
		for method, op := range ops {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || len(op.Responses) < 2 {
				t.Errorf("%s %s: not described", method, path)
			}
			// 404 with an empty body and 405 are what the mux itself answers.
			status, h, text := ask(t, ts, strings.ToUpper(method), wild.ReplaceAllString(path, stubID), "")
			if status == 405 || status == 404 && text == "" {
				t.Errorf("%s %s is documented and not mounted: %d %s", method, path, status, h.Get("Allow"))
			}
		}
	}
	slices.Sort(mounted)
	slices.Sort(documented)
	if !slices.Equal(mounted, documented) {
		t.Errorf("mounted %q\ndocumented %q", mounted, documented)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(mounted) {
		t.Errorf("an operation id stands twice: %q", ids)
	}
}
