package spawner

import "slices"

// undo is a stack of what to take back when a create fails.
type undo struct{ steps []func() }

func (u *undo) push(fn func()) { u.steps = append(u.steps, fn) }

// run takes everything back, the last first.
func (u *undo) run() {
	for _, fn := range slices.Backward(u.steps) {
		fn()
	}
	u.steps = nil
}

// keep forgets the steps: the create has succeeded.
func (u *undo) keep() { u.steps = nil }
