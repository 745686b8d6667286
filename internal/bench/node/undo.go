package node

import (
	"errors"
	"slices"
)

// Undo takes back what was set up, the last step first. What embeds it has a Close
// that needs to know nothing of how far the set-up came.
type Undo struct{ steps []func() error }

// Later remembers what takes a step back.
func (u *Undo) Later(step func() error) { u.steps = append(u.steps, step) }

// Close takes all steps back.
func (u *Undo) Close() error {
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		errs = append(errs, step())
	}
	u.steps = nil
	return errors.Join(errs...)
}

// OnError takes all steps back if there is an error: a set-up defers it.
func (u *Undo) OnError(err *error) {
	if *err != nil {
		*err = errors.Join(*err, u.Close())
	}
}
