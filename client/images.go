package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/seaofsimulation/sos"
)

func imagePath(ref string) string { return "/images/" + url.PathEscape(ref) }

// ListImages implements sos.Service.
func (c *Client) ListImages(ctx context.Context) (all []sos.Image, err error) {
	err = c.do(ctx, call{method: http.MethodGet, path: "/images"}, &all)
	return all, err
}

// GetImage implements sos.Service.
func (c *Client) GetImage(ctx context.Context, ref string) (img sos.Image, err error) {
	err = c.do(ctx, call{method: http.MethodGet, path: imagePath(ref)}, &img)
	return img, err
}

// PullImage implements sos.Service; progress may be nil.
func (c *Client) PullImage(ctx context.Context, ref string, progress func(sos.Progress)) (sos.Image, error) {
	body := struct {
		Image string `json:"image"`
	}{ref}
	return c.withProgress(ctx, call{method: http.MethodPost, path: "/images/pull", body: body}, progress)
}

// ImportImage implements sos.Service; progress may be nil.
func (c *Client) ImportImage(ctx context.Context, r io.Reader, name string, progress func(sos.Progress)) (sos.Image, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	// The reader stays the caller's: net/http would close it.
	body := struct{ io.Reader }{r}
	return c.withProgress(ctx, call{method: http.MethodPost, path: "/images/import", query: q, stream: body}, progress)
}

// RemoveImage implements sos.Service.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: imagePath(ref)}, nil)
}

// progressLine is a line of the answer to a pull or an import.
type progressLine struct {
	Progress *sos.Progress `json:"progress"`
	Image    *sos.Image    `json:"image"`
	Error    *problem      `json:"error"`
}

func (c *Client) withProgress(ctx context.Context, q call, progress func(sos.Progress)) (sos.Image, error) {
	q.accept = "application/x-ndjson"
	resp, err := c.send(ctx, q)
	if err != nil {
		return sos.Image{}, err
	}
	defer drain(resp.Body)
	dec := json.NewDecoder(resp.Body)
	for {
		var line progressLine
		if err := dec.Decode(&line); err != nil {
			return sos.Image{}, c.transportError(ctx, err)
		}
		switch {
		case line.Error != nil:
			return sos.Image{}, line.Error.err()
		case line.Image != nil:
			return *line.Image, nil
		case line.Progress != nil && progress != nil:
			progress(*line.Progress)
		}
	}
}
