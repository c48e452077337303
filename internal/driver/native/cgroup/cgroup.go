package cgroup

import (
	"context"
	"os"
	"time"
)

// Limits of a sandbox; 0 is no limit.
type Limits struct {
	CPU    float64 // cores
	Memory int64   // bytes, with swap where swap is accounted
	PIDs   int     // tasks of the user level
}

// Stats is what a sandbox uses.
type Stats struct {
	CPU           time.Duration // of both levels, since the group was made
	Memory        int64         // bytes of the user level, without page cache that can go at once
	Peak          int64         // bytes, highest of the user level; 0: not known
	PIDs          int           // tasks of the user level
	OOMKills      int64         // processes of the user level that the kernel killed for memory
	GuestOOMKills int64         // the same of the guest's level
}

// Tree is the cgroup of an instance, with one group for each sandbox.
type Tree interface {
	// Version is 1 or 2.
	Version() int
	// Create makes the groups of a sandbox. Nothing is left when it fails; a group
	// that is there is an error (os.ErrExist).
	Create(id string, l Limits) (Group, error)
	// Open gives the groups of a sandbox, whether they are there or not.
	Open(id string) Group
	// List gives the ids that have a group in any hierarchy, sorted.
	List() ([]string, error)
	// Remove removes the instance's own group, which must be empty.
	Remove() error
}

// Group is the set of groups of one sandbox. Methods that wait end with ctx.
type Group interface {
	// Join opens the files into which a process writes "0" to move itself to the
	// guest's level. Empty where a process is born there: see Dir.
	Join() ([]*os.File, error)
	// Dir opens the directory that a guest is cloned into (version 2), else nil.
	Dir() (*os.File, error)
	// UserJoin opens the files into which a process writes "0" to move itself to
	// the user's level. The descriptors keep the rights of who opened them, so a
	// process in a user namespace can use them.
	UserJoin() ([]*os.File, error)
	// OOM opens the file of the user level that counts OOM kills ("oom_kill n").
	OOM() (*os.File, error)
	// Freeze stops the user level; it returns when all of it is stopped. When that
	// does not come about before ctx ends, it is thawed again.
	Freeze(ctx context.Context) error
	// Thaw lets the user level go on.
	Thaw(ctx context.Context) error
	// Kill ends every process of all levels with SIGKILL and returns when none is
	// left; frozen ones too.
	Kill(ctx context.Context) error
	// Stats reads what is used. os.ErrNotExist when there is no such group.
	Stats() (Stats, error)
	// Remove removes the groups; it waits while processes that end keep them busy.
	// Nil when there are none.
	Remove(ctx context.Context) error
}

// levels below a sandbox's group.
const (
	guestLevel = "guest"
	userLevel  = "user"
)
