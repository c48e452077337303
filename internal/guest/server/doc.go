// Package server is the side of the guest protocol that lives in the sandbox, as
// its process 1: it starts processes, reaps every orphan, keeps output until the
// host has it, ends commands at their time, and outlives every connection.
//
// One mutex (Guest.mu) guards the tables and all output buffers: the guest runs on
// one processor, and what is done under it is short. The reaper has its own.
package server
