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
	former  map[string]*former
	reading map[string]bool
}

// former is a ring buffer of a former data path. What is in it comes before what is in the new
// one.
type former struct {
	m    *ebpf.Map
	edit func(record any)
	over chan struct{} // closed: the former data path writes no more
}

// New takes the maps, of which it uses the ring buffers.
func New(log *slog.Logger, maps map[string]*ebpf.Map) *Rings {
	return &Rings{log: log, maps: maps, former: map[string]*former{}, reading: map[string]bool{}}
}

// Follow has readers of a ring begin with a copy of m, in which a former data path writes until
// EndFormer is called. edit changes its records, which it gets as pointers.
func (r *Rings) Follow(name string, m *ebpf.Map, edit func(record any)) error {
	copied, err := m.Clone()
	if err != nil {
		return fmt.Errorf("follow %s: %w", m, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.former[name] = &former{copied, edit, make(chan struct{})}
	return nil
}

// EndFormer says that the former data path has written its last record.
func (r *Rings) EndFormer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.former {
		close(f.over)
	}
}

// drained lets go of a former ring.
func (r *Rings) drained(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.former[name]
	delete(r.former, name)
	return f.m.Close()
}

// Close refuses further readers. Those that read must have ended.
func (r *Rings) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maps = nil
	for _, f := range r.former {
		f.m.Close()
	}
	clear(r.former)
}

// startReading claims a ring buffer: it has a single place for its reader.
func (r *Rings) start(name string) (*ebpf.Map, *former, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.maps[name]
	switch {
	case m == nil:
		return nil, nil, errors.New("the data path is closed")
	case r.reading[name]:
		return nil, nil, fmt.Errorf("%s has a reader already", name)
	}
	r.reading[name] = true
	return m, r.former[name], nil
}

// Read decodes records until ctx ends, which is not an error.
func Read[T any](ctx context.Context, r *Rings, name string, f func(*T)) error {
	return read(ctx, r, name, 0, f, nil)
}

// read looks once in each period for records that nobody wakes it for, and then calls after.
// period 0: somebody wakes it for each.
func read[T any](ctx context.Context, r *Rings, name string, period time.Duration, f func(*T), after func()) error {
	m, before, err := r.start(name)
	if err != nil {
		return err
	}
	defer func() {
		r.mu.Lock()
		delete(r.reading, name)
		r.mu.Unlock()
	}()
	var value T
	size := unsafe.Sizeof(value)
	each := func(record []byte, edit func(any)) {
		if uintptr(len(record)) < size {
			// left in the pinned ring by a build whose records were shorter
			r.log.Warn("a record of another build is skipped", "event", logevent.DataPathRecordSkipped, "ring", name, "bytes", len(record), "want", size)
			return
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&value)), size), record)
		if edit != nil {
			edit(&value)
		}
		f(&value)
	}
	if before != nil {
		err := follow(ctx, before.m, before.over, 0, func(record []byte) { each(record, before.edit) }, nil)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if err := r.drained(name); err != nil {
			return err
		}
	}
	return follow(ctx, m, nil, period, func(record []byte) { each(record, nil) }, after)
}

// follow reads records until ctx ends or, once over is closed, there are no more.
func follow(ctx context.Context, m *ebpf.Map, over <-chan struct{}, period time.Duration, each func([]byte), after func()) error {
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("read %s: %w", m, err)
	}
	defer reader.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { reader.Close() })
	defer stop()
	if over != nil {
		go func() {
			select {
			case <-over:
				reader.Flush() // fails once it is closed
			case <-ctx.Done():
			}
		}()
	}
	var record ringbuf.Record
	if period > 0 {
		reader.SetDeadline(time.Now().Add(period))
	}
	for {
		err := reader.ReadInto(&record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrClosed), errors.Is(err, ringbuf.ErrFlushed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			after()
			reader.SetDeadline(time.Now().Add(period))
			continue
		case err != nil:
			return fmt.Errorf("read %s: %w", m, err)
		}
		each(record.RawSample)
	}
}
