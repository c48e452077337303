package native

// undo is what takes back the steps of a call that may still fail, newest first.
// A step is pushed before it is taken, so each function succeeds when there is
// nothing to take back.
type undo []func()

func (u *undo) push(f func()) { *u = append(*u, f) }

// run takes everything back, unless keep was called.
func (u *undo) run() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
	*u = nil
}

// keep makes run do nothing: the call succeeded.
func (u *undo) keep() { *u = nil }
