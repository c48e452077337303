package image

import (
	"regexp"
	"strings"

	"github.com/seaofsimulation/sos"
)

const (
	hubDomain  = "docker.io"
	hubLibrary = "library/"
	maxName    = 255 // of the repository with its registry, as registries have it
)

var (
	domainRE = regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?$`)
	pathRE   = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagRE    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestRE = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	prefixRE = regexp.MustCompile(`^(?:sha256:)?([0-9a-f]{6,64})$`)
	bareRE   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// reference is a parsed image name: a repository with a tag or a digest.
type reference struct {
	domain string // "docker.io", "localhost:5000"
	path   string // "library/ubuntu"
	tag    string // "" when digest is set
	digest string
}

// String is the normalised form: "docker.io/library/ubuntu:latest".
func (r reference) String() string {
	if r.digest != "" {
		return r.domain + "/" + r.path + "@" + r.digest
	}
	return r.domain + "/" + r.path + ":" + r.tag
}

// parseReference reads a name as Docker does: without a registry it is Docker
// Hub's, without a tag "latest"; a digest wins over a tag.
func parseReference(s string) (reference, error) {
	bad := func(why string) (reference, error) {
		e := sos.Errorf(sos.CodeInvalid, "%q is not an image name: %s", shorten(s), why)
		e.Fix = `use a name such as "ubuntu", "debian:bookworm", "ghcr.io/owner/image:tag" or "name@sha256:…"`
		return reference{}, e
	}
	if s == "" {
		return bad("it is empty")
	}
	if bareRE.MatchString(s) || strings.HasPrefix(s, "sha256:") {
		return bad("it is a digest without a repository")
	}
	var r reference
	rest, digest, ok := strings.Cut(s, "@")
	if ok {
		if !digestRE.MatchString(digest) {
			return bad("after @ comes sha256: and 64 hexadecimal digits")
		}
		r.digest = digest
	}
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, r.tag = rest[:i], rest[i+1:]
		if !tagRE.MatchString(r.tag) {
			return bad("a tag has letters, digits, _ . - and at most 128 of them")
		}
	}
	r.domain, r.path = splitDomain(rest)
	switch {
	case !domainRE.MatchString(r.domain):
		return bad("the registry is not a host name")
	case !pathRE.MatchString(r.path):
		return bad("a repository has lower-case letters, digits and single . _ - / between them")
	case len(r.domain)+1+len(r.path) > maxName:
		return bad("it is too long")
	}
	switch {
	case r.digest != "":
		r.tag = ""
	case r.tag == "":
		r.tag = "latest"
	}
	return r, nil
}

func splitDomain(s string) (domain, path string) {
	first, rest, ok := strings.Cut(s, "/")
	if !ok || (!strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first) {
		first, rest = hubDomain, s
	}
	if first == "index.docker.io" {
		first = hubDomain
	}
	if first == hubDomain && !strings.Contains(rest, "/") {
		rest = hubLibrary + rest
	}
	return first, rest
}

// Normalize gives the full form of an image name, as names are stored:
// "ubuntu" is "docker.io/library/ubuntu:latest". CodeInvalid when it is none.
func Normalize(name string) (string, error) {
	r, err := parseReference(name)
	if err != nil {
		return "", err
	}
	return r.String(), nil
}

// Familiar is the short form of a normalised name, for messages:
// "docker.io/library/ubuntu:latest" is "ubuntu:latest".
func Familiar(name string) string {
	if rest, ok := strings.CutPrefix(name, hubDomain+"/"); ok {
		return strings.TrimPrefix(rest, hubLibrary)
	}
	return name
}

// shorten keeps hostile input from filling a message.
func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
