// Package server is the HTTP front of sos.Service: the first system's six
// endpoints exactly as its clients know them, and our own routes as their
// superset. It holds routes, bodies, errors, limits and listening; it knows
// nothing of how sandboxes work.
package server
