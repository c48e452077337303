// Package sos is the vocabulary of SoS: the nouns, the errors and the Service
// that every front end talks to. It uses the standard library only, so that
// importing it costs nothing.
//
// A sandbox is an isolated Linux container. Every command that runs in it is a
// recorded process: its lifetime never depends on a connection, its output can
// be read again from any offset, and its end is an explicit record with a
// cause. A session is a persistent bash inside a sandbox; a trajectory is the
// ordered list of the commands of its sessions with their results.
//
// Two types implement Service: the control plane inside the server and the HTTP
// client in package client. One suite, servicetest, holds for both.
package sos
