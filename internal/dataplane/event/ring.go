package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/culvert-net/culvert/internal/logevent"
)

// Rings are the ring buffers through which the data path sends records to the daemon.
// Each has one reader at a time.
type Rings struct {
	log *slog.Logger

	mu      sync.Mutex
	maps    map[string]*ebpf.Map // nil: closed
	reading map[string]bool
}

// New takes the maps, of which it uses the ring buffers.
func New(log *slog.Logger, maps map[string]*ebpf.Map) *Rings {
	return &Rings{log: log, maps: maps, reading: map[string]bool{}}
}

// Close refuses further readers. Those that read must have ended.
func (r *Rings) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maps = nil
}

// startReading claims a ring buffer: it has a single place for its reader.
func (r *Rings) start(name string) (*ebpf.Map, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.maps[name]
	switch {
	case m == nil:
		return nil, errors.New("the data path is closed")
	case r.reading[name]:
		return nil, fmt.Errorf("%s has a reader already", name)
	}
	r.reading[name] = true
	return m, nil
}

// Read decodes records until ctx ends, which is not an error.
func Read[T any](ctx context.Context, r *Rings, name string, f func(*T)) error {
	return read(ctx, r, name, 0, f, nil)
}

// read looks once in each period for records that nobody wakes it for, and then calls after.
// period 0: somebody wakes it for each.
func read[T any](ctx context.Context, r *Rings, name string, period time.Duration, f func(*T), after func()) error {
	m, err := r.start(name)
	if err != nil {
		return err
	}
	defer func() {
		r.mu.Lock()
		delete(r.reading, name)
		r.mu.Unlock()
	}()
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("read %s: %w", m, err)
	}
	defer reader.Close()
	stop := context.AfterFunc(ctx, func() { reader.Close() })
	defer stop()
	var record ringbuf.Record
	var value T
	size := unsafe.Sizeof(value)
	if period > 0 {
		reader.SetDeadline(time.Now().Add(period))
	}
	for {
		err := reader.ReadInto(&record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			after()
			reader.SetDeadline(time.Now().Add(period))
			continue
		case err != nil:
			return fmt.Errorf("read %s: %w", m, err)
		case uintptr(len(record.RawSample)) < size:
			// left in the pinned ring by a build whose records were shorter
			r.log.Warn("a record of another build is skipped", "event", logevent.DataPathRecordSkipped, "ring", name, "bytes", len(record.RawSample), "want", size)
			continue
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&value)), size), record.RawSample)
		f(&value)
	}
}
