// Package session keeps a bash alive inside the sandbox and runs the commands of
// a session in it.
//
// # How a command gets in and its status comes out
//
// Bash runs as "bash --norc --noediting +o history -i" without a terminal: only
// an interactive shell survives an interrupt with its state, and words its errors
// without line numbers. Its descriptors are sockets of ours: 0 control, 1 tail,
// 2 status. Nobody can open a socket again through /proc, unlike a pipe.
//
// A command is a file that bash reads with ".", so nothing in its text can break
// out: an open quote or here-document ends with the file. What bash is told on the
// control channel is a few lines of ours (control.go); text of the user is never
// part of one. Standard input is /dev/null or a file. Output goes to a FIFO that
// is new for each command: what a command leaves in the background writes into the
// record of that command and can reach no other; end of file says that nobody is
// left. Bash itself opens it, as a redirection of ".", and so undoes it on every
// way out.
//
// The status line is an arithmetic expression that fails on purpose,
// ((0xNONCE,$?/0,$-)), and bash's own error message about it carries $? and $-
// to the status channel. It uses no builtin, function, alias, variable or quote of
// the shell, so nothing that a user redefines is in its way. The nonce is new for
// each command; everything else on that channel is noise (status.go).
//
// # When no status comes
//
// Only wait says that the shell has ended, and only its status is reported
// (run.go). Under set -e the text reports its status itself and then succeeds, as
// "." may not fail where bash would have gone on (strict.go). Two watchdogs keep
// the answer honest: a result counts only if the access time of the text has moved
// and the FIFO was opened, else it is not_run; and a shell that sits at its reader
// without having answered is asked once more, then ended as shell_broken
// (watch.go).
//
// A limit or a cancel (interrupt.go) sends INT to bash and then to everything the
// command started, later KILL to the latter with INT to bash until it gives up,
// and at last KILL to bash, which loses the session and is said so. What the
// command started is the tree below bash less the children that were there before:
// bash is a subreaper, so orphans stay in the tree. What was there before is left
// alone.
//
// # Loop
//
// One goroutine runs a command in one ppoll over raw descriptors: status, pidfd of
// bash, FIFO, wake-up, tail, control. A full window of the record only leaves out
// the FIFO, so that the command blocks on its pipe while limits and cancels work.
//
// # What holds and what does not
//
// Between commands variables, functions, options, directory, descriptors 3 and up
// persist; descriptors 0 to 2 are each command's own, so "exec >file" holds to its
// end. User code shares the process with the shell: a status is as trustworthy as
// the session's user, and a verifier has to use a standalone command. But nothing
// in a session can reach another session, another command's record, or the guest.
//
// Known limits, each with a test: no "Segmentation fault" message, since job
// control is off; "kill 0" in a script ends older background jobs; PIPESTATUS of
// the previous command is lost; BASH_SOURCE names our file; a RETURN trap fires
// once more per command; descriptors 10 to 12 given to exec hold to the end of the
// command; a trace that was sent to a descriptor of the user's has one line of
// ours per command.
package session
