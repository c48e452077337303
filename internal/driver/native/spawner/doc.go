// Package spawner is the small process that clones every sandbox of an instance and
// is the parent of all guests.
//
// It exists for two reasons: a clone copies the page tables of who clones, so it
// must not be the server; and whoever is the parent of the guests must live longer
// than a server that is upgraded. Nobody needs it to stay alive either: a new
// spawner adopts the guests of one that was killed.
//
// A sandbox is made like this:
//
//	bundle    a child in new user, net, ipc and uts namespaces brings lo up; its
//	          namespaces are kept open and the child ends
//	layers    one read-only tree for each layer, mapped to the user namespace
//	program   what the guest's process does between clone and exec, as a list of
//	          system calls (package sysprog): cgroups, mounts as host root in a mount
//	          namespace that the initial user namespace owns, pivot_root, and only
//	          then the user namespace, capabilities, no_new_privs, seccomp, exec
//
// Because no process inside ever has rights over that mount namespace, nobody
// inside can change its mounts.
package spawner
