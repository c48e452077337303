// Package control is the control plane: it implements sos.Service over a driver,
// the guests, the store, the journal and the image store. It knows no HTTP, no
// SQL and no Linux.
//
// Every change of a sandbox is written as an intent, acted on, and written as a
// fact; lifecycle.go decides from the two what is still to do, after a crash as
// in the middle of the day. Each sandbox has a lock of its own for its life
// cycle, and no lock is held over a wait that another sandbox could notice.
//
// From a start to its stop a sandbox has one life: the connection to its guest,
// its sessions and what runs in it. A life ends once, with a cause, and every
// call that waits on it ends with it.
package control
