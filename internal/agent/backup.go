package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/backup"
	"github.com/culvert-net/culvert/internal/upf"
	"github.com/culvert-net/culvert/internal/upf/journal"
	upfstore "github.com/culvert-net/culvert/internal/upf/store"
)

// Backup writes the resources of the API and the sessions as they are at one moment.
// Changes go on meanwhile.
func Backup(ctx context.Context, a *Agent, w io.Writer) error {
	node, err := os.Hostname()
	if err != nil {
		return err
	}
	tx, marks, err := mark(a.core)
	if err != nil {
		return err
	}
	info := backup.Info{Version: a.options.Version, Node: node, Time: time.Now().UTC()}
	var parts []backup.Part
	for _, m := range marks {
		info.Journal = upfstore.Header()
		parts = append(parts, backup.Part{Name: m.Name, Size: m.Size, Reader: m.Reader()})
	}
	err = backup.Write(until{ctx, w}, info, tx, parts)
	for _, m := range marks {
		err = errors.Join(err, m.Close())
	}
	return errors.Join(err, tx.Rollback())
}

// mark holds changes of resources off for the moment in which it marks the journal.
func mark(c *core) (tx *bbolt.Tx, marks []*journal.Part, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.isReady(); err != nil {
		return nil, nil, err
	}
	if tx, err = c.store.DB().Begin(false); err != nil {
		return nil, nil, err
	}
	if c.upf == nil || c.upf.upf == nil {
		return tx, nil, nil
	}
	if marks, err = upf.Mark(c.upf.upf); err != nil {
		return nil, nil, errors.Join(err, tx.Rollback())
	}
	return tx, marks, nil
}

// until is a writer that fails once ctx has ended.
type until struct {
	ctx context.Context
	io.Writer
}

func (u until) Write(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.Writer.Write(b)
}
