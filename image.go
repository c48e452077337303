package sos

import "time"

// Image is an image in the local image store.
type Image struct {
	Digest       string            `json:"digest"` // of its manifest: "sha256:…"
	Names        []string          `json:"names"`  // normalised: "docker.io/library/ubuntu:latest"
	Architecture string            `json:"architecture"`
	OS           string            `json:"os"`
	Size         int64             `json:"size"` // bytes of its unpacked layers
	CreatedAt    time.Time         `json:"created_at"`
	AddedAt      time.Time         `json:"added_at"`
	Env          []string          `json:"env,omitempty"` // "KEY=value"
	Workdir      string            `json:"workdir,omitempty"`
	User         string            `json:"user,omitempty"`
	Entrypoint   []string          `json:"entrypoint,omitempty"` // recorded, never run
	Cmd          []string          `json:"cmd,omitempty"`        // recorded, never run
	Labels       map[string]string `json:"labels,omitempty"`
	Layers       []string          `json:"layers"`    // diff ids, lowest first
	HasBash      bool              `json:"has_bash"`  // sessions need /bin/bash
	HasShell     bool              `json:"has_shell"` // standalone commands need /bin/sh or /bin/bash
}

// Progress tells how far a pull or an import is.
type Progress struct {
	Stage   string `json:"stage"`           // "resolve", "layer", "unpack", "done"
	Layer   string `json:"layer,omitempty"` // digest
	Current int64  `json:"current"`         // bytes
	Total   int64  `json:"total,omitempty"` // bytes; 0: unknown
	Message string `json:"message,omitempty"`
}
