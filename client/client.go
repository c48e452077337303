package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
)

// Config says which server.
type Config struct {
	// URL is "http://host:port", "https://host:port" or "unix:///path/to/socket".
	URL string
	// UserAgent is sent with each request; default "sos-go".
	UserAgent string
}

// Client is a sos.Service over HTTP. It keeps connections and may be used by many
// goroutines at once.
type Client struct {
	base  string // what request URLs begin with
	shown string // the server as people know it
	agent string
	http  *http.Client
	bad   *sos.Error // why the URL cannot be used
}

var _ sos.Service = (*Client)(nil)

// New makes a Client; it does no I/O. A URL that cannot be used is the error of
// each call.
func New(cfg Config) *Client {
	c := &Client{base: strings.TrimRight(cfg.URL, "/"), shown: cfg.URL, agent: cfg.UserAgent}
	if c.agent == "" {
		c.agent = "sos-go"
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: false,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}
	if path, ok := strings.CutPrefix(cfg.URL, "unix://"); ok {
		c.base = "http://localhost"
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
	} else if u, err := url.Parse(cfg.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		c.bad = &sos.Error{Code: sos.CodeInvalid, Message: fmt.Sprintf("%q is not the URL of a server", cfg.URL),
			Fix: `use "http://127.0.0.1:3000" or "unix:///path/to/socket"`}
	}
	c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request.
type call struct {
	method, path string
	query        url.Values
	body         any       // sent as JSON
	stream       io.Reader // sent as it is
	accept       string    // default application/json
	full         bool      // ask for the whole object
}

// send sends a request and gives the answer, whose body the caller closes; an
// answer of 400 and above is an error.
func (c *Client) send(ctx context.Context, q call) (*http.Response, error) {
	resp, err := c.roundTrip(ctx, q)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer drain(resp.Body)
	return nil, answerError(resp)
}

func (c *Client) roundTrip(ctx context.Context, q call) (*http.Response, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	body := q.stream
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			return nil, sos.Errorf(sos.CodeInvalid, "encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, sos.Errorf(sos.CodeInvalid, "make the request: %w", err)
	}
	switch {
	case q.body != nil:
		req.Header.Set("Content-Type", "application/json")
	case q.stream != nil:
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	if q.accept == "" {
		q.accept = "application/json"
	}
	req.Header.Set("Accept", q.accept)
	req.Header.Set("User-Agent", c.agent)
	if q.full {
		req.Header.Set("Prefer", "return=representation")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	return resp, nil
}

// do sends a request and decodes the answer into out, which may be nil.
func (c *Client) do(ctx context.Context, q call, out any) error {
	resp, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	if out == nil {
		return nil
	}
	return c.decode(ctx, resp.Body, out)
}

func (c *Client) decode(ctx context.Context, r io.Reader, out any) error {
	if err := json.NewDecoder(r).Decode(out); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			return c.transportError(ctx, err)
		}
		if _, ok := errors.AsType[net.Error](err); ok {
			return c.transportError(ctx, err)
		}
		return &sos.Error{Code: sos.CodeInternal, Message: "the server's answer is not what this client expects",
			Fix: "use a client and a server of the same version", Cause: err}
	}
	return nil
}

// drain reads the little that may be left, so that the connection is used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}
