// Package session keeps a bash alive inside the sandbox and runs the commands
// of a session in it.
package session
