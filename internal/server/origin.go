package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// checkCaller refuses what a web page in a browser on this machine could send:
// another site's request (Origin, Sec-Fetch-Site), and a request under a name
// that somebody pointed at this address (DNS rebinding).
func (s *Server) checkCaller(r *http.Request) *failure {
	if !s.hostAllowed(r) {
		return forbidden("Host "+quoteShort(r.Host)+" is not a name of this server",
			"call it as localhost or by an IP address, or allow the name when the server is started")
	}
	if origin := r.Header["Origin"]; len(origin) > 0 && !sameOrigin(origin, r.Host) {
		return forbidden("Origin "+quoteShort(origin[0])+" is not this server", "pages of other sites may not call it")
	}
	if err := s.guard.Check(r); err != nil {
		return forbidden("the request comes from another site", "pages of other sites may not call this server")
	}
	return nil
}

func forbidden(message, fix string) *failure {
	return &failure{status: http.StatusForbidden, text: message + "; " + fix, detail: message, fix: fix}
}

// hostAllowed: over the Unix socket any name; over TCP loopback's names, any IP
// address (a page reached by address has that address as its origin), and the
// configured names. HTTP/1.0 may send none.
func (s *Server) hostAllowed(r *http.Request) bool {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && a.Network() == "unix" {
		return true
	}
	host := normalHost(r.Host)
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || s.hosts[host] {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// normalHost is a Host header without its port, brackets and final dot.
func normalHost(host string) string {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			host = h
		}
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func sameOrigin(origin []string, host string) bool {
	u, err := url.Parse(origin[0])
	return len(origin) == 1 && err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
