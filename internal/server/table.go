package server

import (
	"net/http"

	"github.com/seaofsimulation/sos"
)

const (
	sandboxPath = "/sandboxes/{ref}"
	oneProcess  = sandboxPath + "/processes/{id}"
)

var viewParam = param{"view", "string", "full: more than the first system's form"}

// seedRoutes are the first system's.
func (s *Server) seedRoutes() []route {
	return []route{
		{http.MethodPost, "/sandboxes", s.createSandbox, operation{id: "createSandbox", tag: "sandboxes",
			summary: "Record a sandbox; nothing is started", body: createDoc{}, result: createReply{},
			notes: "Unknown fields are ignored and named in warnings. With `Prefer: return=representation` the answer is the whole sandbox."}},
		{http.MethodGet, "/sandboxes", s.listSandboxes, operation{id: "listSandboxes", tag: "sandboxes",
			summary: "List sandboxes in order of creation", result: []rowReply{},
			query: []param{{"status", "string", "Only these, separated by commas"}, {"label", "string", "Only with this label, key=value; may be repeated"}, viewParam},
			notes: "With view=full the elements are whole sandboxes."}},
		{http.MethodPost, sandboxPath + "/start", s.startSandbox, operation{id: "startSandbox", tag: "sandboxes",
			summary: "Start a sandbox and wait until it takes commands", notes: "Waits in a FIFO queue while max_sandboxes run. The body is ignored."}},
		{http.MethodPost, sandboxPath + "/exec", s.exec, operation{id: "exec", tag: "commands",
			summary: "Run a command and wait for its end", body: execDoc{}, result: execReply{},
			notes: "The header X-Sos-Process names the recorded process. A command that outlives the server's own limit is a 504; one that outlives the timeout of the request is a 200 with timed_out."}},
		{http.MethodPost, sandboxPath + "/stop", s.stopSandbox, operation{id: "stopSandbox", tag: "sandboxes",
			summary: "End all processes and keep the files, or remove all", body: sos.StopRequest{}, bodyOptional: true}},
		{http.MethodGet, sandboxPath + "/trajectory", s.trajectory, operation{id: "trajectory", tag: "commands",
			summary: "The commands of the sessions with their results", result: trajectoryReply{}, query: []param{viewParam}}},
		{http.MethodGet, sandboxPath + "/trajectory/formatted", s.trajectoryText, operation{id: "trajectoryText", tag: "commands",
			summary: "The same as a transcript", resultType: textType}},
	}
}

func (s *Server) sandboxRoutes() []route {
	return []route{
		{http.MethodGet, sandboxPath, s.getSandbox, operation{id: "getSandbox", tag: "sandboxes",
			summary: "Read a sandbox", result: sos.Sandbox{}}},
		{http.MethodDelete, sandboxPath, s.removeSandbox, operation{id: "removeSandbox", tag: "sandboxes",
			summary: "Stop a sandbox and delete its files and records", status: http.StatusNoContent}},
		{http.MethodGet, sandboxPath + "/sessions", s.listSessions, operation{id: "listSessions", tag: "sessions",
			summary: "List sessions", result: []sos.Session{}}},
		{http.MethodPost, sandboxPath + "/sessions", s.createSession, operation{id: "createSession", tag: "sessions",
			summary: "Open a further session", body: sessionBody{}, result: sos.Session{}, status: http.StatusCreated}},
		{http.MethodDelete, sandboxPath + "/sessions/{name}", s.removeSession, operation{id: "removeSession", tag: "sessions",
			summary: "End a session's shell", status: http.StatusNoContent}},
		{http.MethodPost, sandboxPath + "/sessions/{name}/interrupt", s.interruptSession, operation{id: "interruptSession", tag: "sessions",
			summary: "End what the session runs now; the session survives", status: http.StatusNoContent}},
	}
}

func (s *Server) processRoutes() []route {
	return []route{
		{http.MethodGet, sandboxPath + "/processes", s.listProcesses, operation{id: "listProcesses", tag: "processes",
			summary: "List recorded processes", result: []sos.Process{},
			query: []param{{"kind", "string", "standalone, session or setup; separated by commas"}, {"session", "string", "Only of this session"},
				{"status", "string", "Only these, separated by commas"}}}},
		{http.MethodGet, oneProcess, s.getProcess, operation{id: "getProcess", tag: "processes",
			summary: "Read a recorded process", result: sos.Process{}}},
		{http.MethodGet, oneProcess + "/output", s.readOutput, operation{id: "readOutput", tag: "processes",
			summary: "The recorded bytes of one stream", resultType: bytesType,
			query: []param{{"stream", "string", "out (default), stdout or stderr"}, {"offset", "integer", "First byte, default 0"},
				{"follow", "boolean", "Go on until the stream ends"}},
			notes: "X-Sos-Offset is the offset of the first byte. An answer that cannot be completed is cut off."}},
	}
}

func (s *Server) imageRoutes() []route {
	get := operation{id: "getImage", tag: "images", summary: "Read an image", result: sos.Image{}}
	remove := operation{id: "removeImage", tag: "images", summary: "Remove an image that no sandbox uses", status: http.StatusNoContent}
	progress := "With `Accept: application/x-ndjson` the answer is a line for each step, {\"progress\": …}, and a last line {\"image\": …} or {\"error\": …}."
	routes := []route{
		{http.MethodGet, "/images", s.listImages, operation{id: "listImages", tag: "images", summary: "List images", result: []sos.Image{}}},
		{http.MethodPost, "/images/pull", s.pullImage, operation{id: "pullImage", tag: "images",
			summary: "Pull an image from its registry", body: pullBody{}, result: sos.Image{}, notes: progress}},
		{http.MethodPost, "/images/import", s.importImage, operation{id: "importImage", tag: "images",
			summary: "Import a rootfs tar, a docker-save or an OCI archive", bodyType: bytesType, result: sos.Image{}, notes: progress,
			query: []param{{"name", "string", "Name of the image; may be left out where the archive names it"}}}},
		{http.MethodGet, "/images/{ref...}", s.getImage, get},
		{http.MethodDelete, "/images/{ref...}", s.removeImage, remove},
	}
	// Images that are called pull and import.
	get.hidden, remove.hidden = true, true
	for _, path := range []string{"/images/pull", "/images/import"} {
		routes = append(routes, route{http.MethodGet, path, s.getImage, get}, route{http.MethodDelete, path, s.removeImage, remove})
	}
	return routes
}

func (s *Server) metaRoutes() []route {
	return []route{
		{http.MethodGet, "/health", s.health, operation{id: "health", tag: "server",
			summary: "Whether sandboxes can run here, 503 with the reasons if not", result: healthReply{}}},
		{http.MethodGet, "/version", s.version, operation{id: "version", tag: "server", summary: "What this build is", result: versionReply{}}},
		{http.MethodGet, "/metrics", s.serveMetrics, operation{id: "metrics", tag: "server", summary: "Prometheus metrics", resultType: textType}},
		{http.MethodGet, "/openapi.json", s.serveOpenAPI, operation{id: "openapi", tag: "server", summary: "This document", resultType: jsonType}},
	}
}
