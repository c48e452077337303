// Package system runs the real program as separate processes, as root, with real
// images, and does to it what hosts, users and programs in sandboxes do: kills it
// at any moment, fills its queue, its disk and its memory, and feeds it what is
// malformed. What must hold is that nothing is lost, nothing is made up, and
// nothing is left behind.
package system
