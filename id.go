package sos

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"io"
	"strings"
)

// Prefixes of the ids of each kind of object.
const (
	SandboxIDPrefix = "sb-"
	ProcessIDPrefix = "p-"
)

// idLen is the length of the random part of an id: 80 bits in base32.
const idLen = 16

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns prefix and 16 random lower-case base32 characters taken from
// random (crypto/rand.Reader when nil). The result is legal as a DNS label, a
// container name, a cgroup and a Kubernetes name. Order is never in the id.
func NewID(prefix string, random io.Reader) string {
	if random == nil {
		random = rand.Reader
	}
	var b [idLen * 5 / 8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		panic(fmt.Sprintf("sos: no random bytes: %v", err)) // crypto/rand never fails
	}
	return prefix + idEncoding.EncodeToString(b[:])
}

// IsID says whether s is a whole id with the given prefix.
func IsID(s, prefix string) bool {
	return len(s) == len(prefix)+idLen && IsIDPrefix(s, prefix)
}

// IsIDPrefix says whether s could be the beginning of an id: the kind's prefix
// and at least one further character.
func IsIDPrefix(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || rest == "" || len(rest) > idLen {
		return false
	}
	for _, c := range []byte(rest) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// maxName is the longest name: that of a DNS label.
const maxName = 63

// CheckName says why name cannot be the name of a sandbox or session, or nil. A
// name is a DNS label (RFC 1123): lower-case letters, digits and hyphens, at
// most 63, neither first nor last a hyphen, and not shaped like an id.
func CheckName(name string) error {
	bad := func(why string) error {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("name %q %s", name, why),
			Fix: "use 1 to 63 lower-case letters, digits and hyphens, beginning and ending with a letter or digit"}
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxName:
		return bad("is longer than 63 characters")
	case name[0] == '-' || name[len(name)-1] == '-':
		return bad("begins or ends with a hyphen")
	case IsID(name, SandboxIDPrefix) || IsID(name, ProcessIDPrefix):
		return bad("is shaped like an id")
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return bad(fmt.Sprintf("has the character %q", c))
		}
	}
	return nil
}
