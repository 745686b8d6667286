package lab

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// upgrade replaces the daemon, and its data path where the other binary holds
// another build of it.
func (r *runner) upgrade(ctx context.Context, n *Node, o *outcome) error {
	before, err := r.status(ctx, n)
	if err != nil {
		return err
	}
	if err := r.restartCulvert(ctx, n, unix.SIGTERM, 0, r.upgradeTo); err != nil {
		return err
	}
	after, err := r.status(ctx, n)
	if err != nil {
		return err
	}
	o.say("data path %.12s to %.12s", before.DataPath, after.DataPath)
	if r.upgradeTo != r.culvert && before.DataPath == after.DataPath {
		return fmt.Errorf("%s holds the same build of the data path as %s: give --upgrade-to a binary of another build", r.upgradeTo, r.culvert)
	}
	return nil
}
