// Package fake is a driver in memory. Its sandboxes hold a scripted guest that
// speaks the real guest protocol, so everything above the driver runs against it
// unchanged: for tests of control without root, and for demonstrations where no
// sandbox can run. What goes wrong is scripted with Plan and the methods beside
// it; nothing is random.
//
// The guest understands a handful of commands, one after another, divided by
// ";", "&" or newlines:
//
//	echo WORDS…   cat (its stdin)   cat FILE   … > FILE   NAME=value   $NAME
//	cd DIR  pwd  true  false  exit N  sleep SECONDS
//	fail          a line on stderr, status 1
//	spam N        N bytes of output
//	printf %0Nd 0 N zeros
//	hang          never ends by itself
//	oom           is killed by the kernel for memory
//	crash         the guest dies
//	trap, wait    nothing
package fake
