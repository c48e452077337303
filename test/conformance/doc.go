// Package conformance holds the real server, over real HTTP with real sandboxes,
// to what clients of the first system rely on: its integration tests, the calls
// of its published Python client, its session semantics, and that none of its
// known defects (numbered D1 to D38 here) is in ours. The expectations are
// written down by hand from the described behaviour; where ours is decided to
// differ, docs/compatibility.md has the reason.
package conformance
