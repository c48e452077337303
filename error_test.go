package sos

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestErrors(t *testing.T) {
	e := Errorf(CodeNotFound, "no %s: %w", "x", io.EOF)
	err := fmt.Errorf("while: %w", e)
	if ErrorCode(err) != CodeNotFound || ErrorMessage(err) != "no x: EOF" || !errors.Is(err, io.EOF) || err.Error() != "while: no x: EOF" {
		t.Fatalf("%v %q", err, ErrorMessage(err))
	}
	hidden := &Error{Code: CodeInternal, Message: "it failed", Cause: errors.New("/secret/path")}
	if ErrorMessage(hidden) != "it failed" || hidden.Error() != "it failed: /secret/path" || errors.Unwrap(hidden) == nil {
		t.Fatal(hidden)
	}
	if ErrorCode(nil) != "" || ErrorMessage(nil) != "" || ErrorCode(io.EOF) != CodeInternal || ErrorMessage(io.EOF) != "internal error" {
		t.Fatal("nil and foreign errors")
	}
}
