package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
)

func (s *Server) listImages(w http.ResponseWriter, r *http.Request) error {
	all, err := s.svc.ListImages(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, orEmpty(all))
}

// imageRef is the image of the path; the two routes with a word of their own are
// images of that name to other methods.
func imageRef(r *http.Request) (string, error) {
	if word, ok := strings.CutPrefix(r.Pattern, "/images/"); ok && !strings.HasPrefix(word, "{") {
		return word, nil
	}
	return pathValue(r, "ref")
}

func (s *Server) getImage(w http.ResponseWriter, r *http.Request) error {
	ref, err := imageRef(r)
	if err != nil {
		return err
	}
	img, err := s.svc.GetImage(r.Context(), ref)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, img)
}

func (s *Server) removeImage(w http.ResponseWriter, r *http.Request) error {
	ref, err := imageRef(r)
	if err != nil {
		return err
	}
	if err := s.svc.RemoveImage(r.Context(), ref); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// pullBody asks for an image of a registry.
type pullBody struct {
	Image string `json:"image" doc:"Name with tag or digest, as in docker pull"`
}

func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) error {
	var body pullBody
	if err := s.decodeStrict(w, r, &body); err != nil {
		return err
	}
	return s.withProgress(w, r, func(ctx context.Context, progress func(sos.Progress)) (sos.Image, error) {
		return s.svc.PullImage(ctx, body.Image, progress)
	})
}

// importImage streams the body into the image store; no limit of size applies.
func (s *Server) importImage(w http.ResponseWriter, r *http.Request) error {
	// An archive is refused without reading it to its end, and with progress the
	// answer has begun by then: the client has to know beforehand that the connection
	// ends with it, or its next request meets a closed one.
	w.Header().Set("Connection", "close")
	name := r.URL.Query().Get("name")
	rc := http.NewResponseController(w)
	body := &patientReader{r: r.Body, rc: rc}
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	return s.withProgress(w, r, func(ctx context.Context, progress func(sos.Progress)) (sos.Image, error) {
		return s.svc.ImportImage(ctx, body, name, progress)
	})
}

// uploadPause is how long an upload may stand still.
const uploadPause = 2 * time.Minute

// patientReader reads a body of any length as long as it moves.
type patientReader struct {
	r  io.Reader
	rc *http.ResponseController
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(uploadPause)) // not supported without a connection: tests
	return p.r.Read(b)
}
