// Package cgroup gives every sandbox its control groups: limits, freezing, killing
// and usage, on hosts with version 1, version 2 or both.
//
// The layout is the same everywhere:
//
//	sos-<instance>/<id>        cpu
//	sos-<instance>/<id>/guest  the guest, without limits of its own
//	sos-<instance>/<id>/user   what users start: memory, pids, freezer
//
// The guest has a level of its own so that memory pressure and fork bombs of the
// user never choose it as a victim, and so that it answers while the user's
// processes are frozen. The owner of a process is its cgroup, never a pid.
//
// Only the controllers needed are used: cpu, memory, pids, and on version 1 cpuacct
// and freezer.
package cgroup
