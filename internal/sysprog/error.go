package sysprog

import (
	"fmt"
	"syscall"
)

// StepError says which step of a program failed, or during which one the child
// was killed.
type StepError struct {
	Step   string
	Errno  syscall.Errno  // 0: it was killed
	Signal syscall.Signal // what killed it, 0 when that is not known
}

func (e *StepError) Error() string {
	switch {
	case e.Errno != 0:
		return fmt.Sprintf("%s: %s", e.Step, e.Errno.Error())
	case e.Signal != 0:
		return fmt.Sprintf("%s: killed by signal %d (%s)", e.Step, int(e.Signal), e.Signal)
	}
	return e.Step + ": the process ended"
}

// Unwrap gives the errno, for errors.Is.
func (e *StepError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}
