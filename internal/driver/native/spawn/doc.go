// Package spawn is the protocol between the native driver and its spawner.
//
// The spawner is a small process that clones every sandbox of an instance and is
// the parent of all guests. It listens on <run>/spawner.sock (SEQPACKET, root
// only); one packet is one message in JSON, and many calls run at once over a
// connection. Nothing depends on a connection: a client that is gone changes
// nothing, and a call that was cut off can be made again (every call is
// idempotent by id).
//
// What the spawner makes for a sandbox:
//
//	<run>/<id>/g.sock   the guest's listening socket (backlog 128)
//	<run>/<id>/pid      record: "pid starttime boot_id cgroup idbase", see [Record]
//	<run>/<id>/exit     how the guest ended, JSON of [Exit]; missing: not seen
//	<run>/<id>/log      what the guest wrote to its stderr, bounded (log.1: before)
//	<state>/{u,w,m}     upper, work, and an empty directory to mount on
//	cgroup <instance's root>/<id>/{guest,user}
//
// When a guest ends, its cgroups go and g.sock is removed; exit and log stay until
// Forget or the next Create of the id.
package spawn

// Protocol is the version of the messages that this build speaks. A spawner of
// another version is asked to quit and is replaced; its guests live on.
const Protocol = 1

// Socket is the name of the spawner's socket in the run directory of an instance.
const Socket = "spawner.sock"

// MaxMessage bounds one packet in bytes.
const MaxMessage = 192 << 10

// Limits of a request.
const (
	MaxLayers = 127
	IDs       = 65536 // ids of one sandbox's range
)
