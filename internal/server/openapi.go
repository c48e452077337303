package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seaofsimulation/sos"
)

// operation is what the document says of a route.
type operation struct {
	id, tag, summary, notes string
	query                   []param
	body                    any    // a value of the body's type
	bodyType                string // media type of a body that is not JSON
	bodyOptional            bool
	result                  any    // a value of the answer's type; nil: empty
	resultType              string // media type of an answer that is not JSON
	status                  int    // of success; 0: 200
	hidden                  bool
}

type param struct{ name, kind, text string }

// durationDoc and sizeDoc are how the two units look in JSON.
type durationDoc struct{}

func (durationDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}},
		Description: `Seconds, or a string such as "90s", "5m", "1h30m" or "7d"`}
}

type sizeDoc struct{}

func (sizeDoc) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}},
		Description: `Bytes, or a string such as "512Mi" or "2Gi"`}
}

// document is the OpenAPI 3.1 description of every route.
func (s *Server) document() ([]byte, error) {
	reg := huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		for _, suffix := range []string{"Doc", "Reply"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if name == "Create" || name == "Exec" { // the request; the answer has the same stem
			name += map[bool]string{true: "Request", false: "Result"}[strings.HasSuffix(t.Name(), "Doc")]
		}
		return name
	})
	reg.RegisterTypeAlias(reflect.TypeFor[sos.Duration](), reflect.TypeFor[durationDoc]())
	reg.RegisterTypeAlias(reflect.TypeFor[sos.Size](), reflect.TypeFor[sizeDoc]())
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "SoS", Version: "1",
			Description: "Isolated Linux sandboxes. Errors are plain text, and RFC 9457 problem JSON where Accept names JSON."},
		Paths:      map[string]*huma.PathItem{},
		Components: &huma.Components{Schemas: reg},
	}
	problemSchema := reg.Schema(reflect.TypeFor[problem](), true, "Problem")
	for _, rt := range s.routes {
		if rt.doc.hidden {
			continue
		}
		path := strings.ReplaceAll(rt.path, "...}", "}")
		item := doc.Paths[path]
		if item == nil {
			item = &huma.PathItem{}
			doc.Paths[path] = item
		}
		op := describe(reg, rt)
		op.Responses["default"] = &huma.Response{Description: "An error", Content: map[string]*huma.MediaType{
			textType: {Schema: &huma.Schema{Type: huma.TypeString}}, problemType: {Schema: problemSchema}}}
		switch rt.method {
		case http.MethodGet:
			item.Get = op
		case http.MethodPost:
			item.Post = op
		case http.MethodDelete:
			item.Delete = op
		}
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, sos.Errorf(sos.CodeInternal, "encode the OpenAPI document: %w", err)
	}
	return append(b, '\n'), nil
}

var pathParam = regexp.MustCompile(`\{(\w+)(?:\.\.\.)?\}`)

var pathParamText = map[string]string{
	"ref":  "Id, unique prefix of an id, or name",
	"id":   "Id or unique prefix of the id of a process",
	"name": "Name of a session",
}

func describe(reg huma.Registry, rt route) *huma.Operation {
	d := rt.doc
	op := &huma.Operation{OperationID: d.id, Summary: d.summary, Description: d.notes, Tags: []string{d.tag}, Responses: map[string]*huma.Response{}}
	for _, m := range pathParam.FindAllStringSubmatch(rt.path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: m[1], In: "path", Required: true,
			Description: pathParamText[m[1]], Schema: &huma.Schema{Type: huma.TypeString}})
	}
	for _, p := range d.query {
		op.Parameters = append(op.Parameters, &huma.Param{Name: p.name, In: "query", Description: p.text, Schema: &huma.Schema{Type: p.kind}})
	}
	switch {
	case d.bodyType != "":
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{d.bodyType: {}}}
	case d.body != nil:
		op.RequestBody = &huma.RequestBody{Required: !d.bodyOptional, Content: map[string]*huma.MediaType{
			jsonType: {Schema: reg.Schema(reflect.TypeOf(d.body), true, d.id)}}}
	}
	status := d.status
	if status == 0 {
		status = http.StatusOK
	}
	resp := &huma.Response{Description: http.StatusText(status)}
	switch {
	case d.resultType != "":
		resp.Content = map[string]*huma.MediaType{d.resultType: {}}
	case d.result != nil:
		resp.Content = map[string]*huma.MediaType{jsonType: {Schema: reg.Schema(reflect.TypeOf(d.result), true, d.id)}}
	}
	op.Responses[strconv.Itoa(status)] = resp
	return op
}
