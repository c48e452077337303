// Package client is sos.Service over HTTP: the Go SDK, and what the command line
// and the terminal UI are made of.
//
//	c := client.New(client.Config{URL: "http://127.0.0.1:3000"})
//	sb, err := c.CreateSandbox(ctx, sos.SandboxSpec{Image: "debian:bookworm"})
//
// Errors are *sos.Error with the server's code; a server that cannot be reached
// is sos.CodeUnavailable. Nothing that changes anything is ever sent twice.
package client
