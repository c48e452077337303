package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/seaofsimulation/sos"
)

// pullError says why a pull failed and what to do. The chain stays in Cause for
// the log: it has URLs, which may hold secrets.
func (s *Store) pullError(ctx context.Context, r reference, err error) error {
	if e, ok := errors.AsType[*sos.Error](err); ok {
		return e
	}
	if ctx.Err() != nil {
		return canceled(ctx.Err())
	}
	img, reg := Familiar(r.String()), r.domain
	fail := func(fix, format string, args ...any) error {
		e := failed(fix, format, args...)
		e.Cause = err
		return e
	}
	importFix := "or get the image on another machine and import it: sos image import FILE --name " + img
	if te, ok := errors.AsType[*transport.Error](err); ok {
		return statusError(fail, te, img, reg, importFix)
	}
	switch {
	case errors.Is(err, errStalled):
		return fail("try again later, "+importFix, "%s stopped sending while %q was pulled", reg, img)
	case errors.Is(err, errDigest), errors.Is(err, errLong):
		return fail("tell the registry's operator; a proxy between may be the cause", "%s sends damaged content for %q: its digest is wrong, twice", reg, img)
	case errors.Is(err, errShort):
		return fail("try again later, "+importFix, "the connection to %s broke again and again while %q was pulled", reg, img)
	case errors.Is(err, errPlain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fail("give the registry a certificate, "+importFix, "%s does not speak TLS", reg)
	case strings.Contains(err.Error(), "does not match requested digest"):
		return fail("tell the registry's operator", "%s sends a manifest for %q that does not have its digest", reg, img)
	case strings.Contains(err.Error(), "x509: "), strings.Contains(err.Error(), "tls: "):
		return fail("install the registry's certificate authority on this host", "the certificate of %s is not trusted here", reg)
	}
	return fail("check the network and the name of the registry, "+importFix, "the registry %s cannot be reached (%s)", reg, reach(err))
}

func statusError(fail func(fix, format string, args ...any) error, te *transport.Error, img, reg, importFix string) error {
	for _, d := range te.Errors {
		switch d.Code {
		case transport.ManifestUnknownErrorCode, transport.NameUnknownErrorCode:
			te.StatusCode = http.StatusNotFound
		case transport.UnauthorizedErrorCode, transport.DeniedErrorCode:
			te.StatusCode = http.StatusForbidden
		case transport.TooManyRequestsErrorCode:
			te.StatusCode = http.StatusTooManyRequests
		}
	}
	switch code := te.StatusCode; {
	case code == http.StatusNotFound:
		return fail("check the name and the tag", "there is no image %q in the registry %s", img, reg)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fail("check the name; if the image is private, run docker login "+reg+" as the user that the server runs as",
			"%s does not allow %q to be pulled, or has no such image (%d)", reg, img, code)
	case code == http.StatusTooManyRequests:
		return fail("wait, log in with docker login "+reg+" for a higher limit, "+importFix, "%s has had too many requests (429)", reg)
	case code >= 500:
		return fail("try again later, "+importFix, "the registry %s has a fault of its own (%d)", reg, code)
	}
	return fail("", "the registry %s refuses the pull of %q (%d)", reg, img, te.StatusCode)
}

// reach is the short cause of a network error, without addresses and URLs.
func reach(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "no such host"
		}
		return "its name cannot be looked up"
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return "no answer in time"
	}
	if s := err.Error(); strings.Contains(s, "refused") {
		return "connection refused"
	}
	return "network error"
}
