package server

import (
	"net/http"
	"slices"
	"strings"
)

// handler answers one request; an error that it returns is answered for it.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is one operation: how it is reached, what answers, and what the
// document says of it.
type route struct {
	method, path string
	handle       handler
	doc          operation
}

// table is every route of the server: nothing else is mounted or documented.
func (s *Server) table() []route {
	return slices.Concat(s.seedRoutes(), s.sandboxRoutes(), s.processRoutes(), s.imageRoutes(), s.metaRoutes())
}

// mount puts the routes on the mux by path, so that the methods of a path are
// known together for Allow; everything else is 404 with an empty body.
func (s *Server) mount() {
	byPath := map[string]methods{}
	for _, rt := range s.routes {
		if byPath[rt.path] == nil {
			byPath[rt.path] = methods{}
		}
		byPath[rt.path][rt.method] = s.adapt(rt.handle)
	}
	for path, m := range byPath {
		if get := m[http.MethodGet]; get != nil {
			m[http.MethodHead] = get
		}
		s.mux.Handle(path, m.handler())
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { writeEmpty(w, http.StatusNotFound) })
}

// methods are the operations of one path by method.
type methods map[string]http.HandlerFunc

func (m methods) handler() http.Handler {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	allow := strings.Join(names, ",")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := m[r.Method]; h != nil {
			h(w, r)
			return
		}
		w.Header().Set("Allow", allow)
		writeEmpty(w, http.StatusMethodNotAllowed)
	})
}

func (s *Server) adapt(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	}
}
