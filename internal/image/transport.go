package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var errStalled = errors.New("the registry stopped sending")

// errPlain is met when a registry, or where it redirects to, has no TLS.
var errPlain = errors.New("no TLS")

// newTransport is the way to registries: a stack of what each request gets.
func newTransport(cfg Config) http.RoundTripper {
	base := cfg.Transport
	if base == nil {
		base = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: cfg.Stall,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   cfg.Parallel,
			IdleConnTimeout:       30 * time.Second,
			DisableCompression:    true, // blobs are what they are
		}
	}
	return &retrying{next: &guarded{next: base, stall: cfg.Stall, insecure: cfg.Insecure}, cfg: cfg}
}

// retrying repeats requests that failed for a reason that passes: no connection,
// 429, 5xx. It waits as long as Retry-After asks, within bounds.
type retrying struct {
	next http.RoundTripper
	cfg  Config
}

func (t *retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := t.next.RoundTrip(req)
		if try >= t.cfg.Retries || req.Body != nil || !passes(resp, err) || req.Context().Err() != nil {
			return resp, err
		}
		wait := backoff(t.cfg.Backoff, try)
		if err == nil {
			if after, ok := retryAfter(resp, t.cfg.Now()); ok {
				if after > t.cfg.MaxWait {
					return resp, nil // the error says how long
				}
				wait = after
			}
			io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
			resp.Body.Close()
		}
		if err := sleep(req.Context(), wait); err != nil {
			return nil, err
		}
	}
}

func (t *retrying) CloseIdleConnections() {
	if g, ok := t.next.(*guarded); ok {
		if c, ok := g.next.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// passes says whether trying again may help.
func passes(resp *http.Response, err error) bool {
	if err != nil {
		if errors.Is(err, errPlain) {
			return false
		}
		dns, ok := errors.AsType[*net.DNSError](err)
		if ok && dns.IsNotFound {
			return false
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return op.Timeout() // refused and unreachable will stay so for our few seconds
		}
		return !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") &&
			!strings.Contains(err.Error(), "tls: ") && !strings.Contains(err.Error(), "x509: ")
	}
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout ||
		resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented
}

func retryAfter(resp *http.Response, now time.Time) (time.Duration, bool) {
	h := resp.Header.Get("Retry-After")
	if h == "" {
		return 0, false
	}
	if n, err := strconv.Atoi(h); err == nil && n >= 0 {
		return time.Duration(min(n, 1<<30)) * time.Second, true
	}
	if at, err := http.ParseTime(h); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// backoff doubles with each try, with some chance in it so that many clients do
// not come back in step.
func backoff(first time.Duration, try int) time.Duration {
	d := first << min(try-1, 6)
	return d/2 + time.Duration(rand.Int64N(int64(d/2)+1))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// guarded refuses plain HTTP except where it is meant, and ends a response whose
// body brings nothing for too long: slow is fine, dead is not.
type guarded struct {
	next     http.RoundTripper
	stall    time.Duration
	insecure []string
}

func (t *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && !plainAllowed(req.URL.Host, t.insecure) {
		return nil, fmt.Errorf("%s: %w", req.URL.Host, errPlain)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(t.stall, func() { cancel(errStalled) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		cancel(nil)
		if errors.Is(context.Cause(ctx), errStalled) {
			err = errStalled
		}
		return nil, err
	}
	timer.Reset(t.stall)
	resp.Body = &guardedBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, stall: t.stall}
	return resp, nil
}

type guardedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	closed atomic.Bool
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if !b.closed.Load() {
		b.timer.Reset(b.stall) // the reader's own pauses do not count
	}
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), errStalled) {
		err = errStalled
	}
	return n, err
}

func (b *guardedBody) Close() error {
	b.closed.Store(true)
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// plainAllowed says whether a host may be spoken to without TLS.
func plainAllowed(hostport string, insecure []string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" || slices.Contains(insecure, host) || slices.Contains(insecure, hostport) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (s *Store) mayBePlain(host string) bool { return plainAllowed(host, s.cfg.Insecure) }

// checkRedirect keeps a public registry from sending us to addresses of the
// host's own network, such as the metadata service of a cloud.
func (s *Store) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	from, to := via[0].URL.Hostname(), req.URL.Hostname()
	if from == to {
		return nil
	}
	ip, err := netip.ParseAddr(to)
	if err == nil && (ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified()) && !s.mayBePlain(via[0].URL.Host) {
		return fmt.Errorf("the registry redirects to the private address %s", ip)
	}
	return nil
}
