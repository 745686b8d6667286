package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Store is the state file. It has a bucket for each kind of resources.
type Store struct {
	db  *bbolt.DB
	log *slog.Logger

	mu       sync.Mutex
	observed observed.State // that is on disk
	replaced *Applied       // too

	noteMu  sync.Mutex
	noted   *observed.State // to be written; nil: nothing
	touched map[string]bool // the paths that differ in it
	some    chan struct{}   // there is something to write
}

// Applied is a configuration that came through the API in place of the file's.
// It holds for as long as the file is the one that it replaced.
type Applied struct {
	Config config.Config `json:"config"`
	// File is the SHA-256 of the file's bytes when it was replaced.
	File string `json:"file"`
}

var (
	appliedBucket = []byte("applied")
	appliedKey    = []byte("config")
	versionBucket = []byte("culvert")
	versionKey    = []byte("layout")
)

// layout is of the state file. A later one may read an earlier one, never the
// reverse.
const layout = "1"

// reserved is how much of the file can be mapped from the start, at no cost but
// addresses: to map more, later, bbolt copies all that a change has read.
const reserved = 1 << 30

// patience is how long the daemon before may take to end: one that was killed
// holds the file until the kernel has taken it apart. silence is what is not
// worth a word.
const (
	patience = 5 * time.Second
	silence  = 100 * time.Millisecond
)

// Open opens the state file, or makes it. Only one daemon can hold it.
func Open(path string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	waiting := time.AfterFunc(silence, func() {
		log.Info("another daemon has the state file: waiting for it to end", "event", logevent.StateFileBusy, "file", path, "at_most", patience)
	})
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: patience, InitialMmapSize: reserved})
	waiting.Stop()
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state file %s is held by another culvert: stop that one, or name another file", path)
	case err != nil:
		return nil, fmt.Errorf("state file %s: %w%s", path, err, advice(err))
	}
	db.MaxBatchDelay = time.Millisecond // pods that come together share a transaction, and none waits long for others
	db.AllocSize = 64 << 10             // bytes that the file grows by: not more for so large a mapping
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(versionBucket)
		if err != nil {
			return err
		}
		switch found := b.Get(versionKey); {
		case found == nil:
			return b.Put(versionKey, []byte(layout))
		case string(found) != layout:
			return fmt.Errorf("state file %s has layout %s, this culvert knows %s: run the culvert that wrote it, or move the file away", path, found, layout)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Store{db: db, log: log, some: make(chan struct{}, 1)}, nil
}

// advice says what to do about a state file that cannot be opened. Only what is damaged is worth
// losing.
func advice(err error) string {
	switch {
	case errors.Is(err, unix.ENOMEM):
		return fmt.Sprintf(": the file is whole; the daemon may not have the %d MiB of addresses that it maps: raise its limit (ulimit -v, LimitAS= of the unit)", reserved>>20)
	case damaged(err):
		return ": it is damaged: write a backup to its place with culvert state restore, or move it away to start without what was added through the API"
	}
	return ""
}

// damaged says whether an error is about what is in a file. The kernel's errors are not.
func damaged(err error) bool {
	_, isKernels := errors.AsType[unix.Errno](err)
	return err != nil && !isKernels
}

// DB is the file's database.
func (s *Store) DB() *bbolt.DB { return s.db }

// Close lets another daemon have the file.
func (s *Store) Close() error { return s.db.Close() }

// Load reads the resources of the API, what others said, and the configuration
// that was applied, or nil.
func (s *Store) Load() (api []desired.Resource, o observed.State, replaced *Applied, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		if api, err = resourcesOf(tx); err != nil {
			return err
		}
		for _, b := range buckets {
			if err := b.load(tx, &o); err != nil {
				return err
			}
		}
		for _, n := range o.Nodes {
			o.Last = max(o.Last, n.Number)
		}
		for _, r := range o.Reaches {
			o.Last = max(o.Last, r.Number)
		}
		o.MarkStale()
		if b := tx.Bucket(appliedBucket); b != nil {
			replaced = &Applied{}
			return json.Unmarshal(b.Get(appliedKey), replaced)
		}
		return nil
	})
	if err != nil {
		return nil, observed.State{}, nil, fmt.Errorf("state file %s: %w", s.db.Path(), err)
	}
	s.observed, s.replaced = o, replaced
	return api, o, replaced, nil
}

// resourcesOf reads the resources of the API.
func resourcesOf(tx *bbolt.Tx) (api []desired.Resource, err error) {
	for _, kind := range desired.Kinds {
		b := tx.Bucket([]byte(kind))
		if b == nil {
			continue
		}
		err := b.ForEach(func(key, value []byte) error {
			r, err := desired.Decode(desired.Ref{Kind: kind, Key: string(key)}, desired.OriginAPI, value)
			api = append(api, r)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return api, nil
}

// Note has the state written soon. What differs from the last one is not among the
// paths, or is in o.Touched.
func (s *Store) Note(o observed.State) {
	s.noteMu.Lock()
	s.noted = &o
	if s.touched == nil {
		s.touched = map[string]bool{}
	}
	maps.Copy(s.touched, o.Touched)
	s.noteMu.Unlock()
	select {
	case s.some <- struct{}{}:
	default:
	}
}

const (
	// saveInterval is how long Keep gathers changes before it writes them.
	saveInterval = 100 * time.Millisecond
	// retryInterval is how long it waits after an error.
	retryInterval = 5 * time.Second
)

// Keep writes what is noted until ctx ends.
func (s *Store) Keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.some:
		}
		rest := saveInterval
		if err := s.Flush(); err != nil {
			s.log.Error("cannot write to disk what others say; will try again", "event", logevent.StateWriteFailed, "error", err)
			rest = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// Flush writes what is noted and not on disk yet.
func (s *Store) Flush() error {
	s.noteMu.Lock()
	next, touched := s.noted, s.touched
	s.noted, s.touched = nil, nil
	s.noteMu.Unlock()
	if next == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, to := s.observed, *next
	from.Paths, to.Paths = only(touched, from.Paths), only(touched, to.Paths)
	if err := s.db.Update(func(tx *bbolt.Tx) error { return saveObserved(tx, &from, &to) }); err != nil {
		next.Touched = touched
		s.Note(*next)
		return fmt.Errorf("state file %s: %w", s.db.Path(), err)
	}
	s.observed = *next
	return nil
}

// only is what of a map has these names.
func only[V any](names map[string]bool, all map[string]V) map[string]V {
	out := make(map[string]V, len(names))
	for name := range names {
		if v, there := all[name]; there {
			out[name] = v
		}
	}
	return out
}

// bucket is a map of the observed state on disk.
type bucket struct {
	load func(*bbolt.Tx, *observed.State) error
	save func(tx *bbolt.Tx, from, to *observed.State) error
}

var buckets = []bucket{
	bucketOf("bgp", func(s *observed.State) map[string]observed.Path { return s.Paths },
		func(s *observed.State, m map[string]observed.Path) { s.Paths = m }, plain, parsed),
	bucketOf("nodes", func(s *observed.State) map[string]observed.Node { return s.Nodes },
		func(s *observed.State, m map[string]observed.Node) { s.Nodes = m }, plain, parsed),
	bucketOf("reach", func(s *observed.State) map[overlay.Destination]observed.Reach { return s.Reaches },
		func(s *observed.State, m map[overlay.Destination]observed.Reach) { s.Reaches = m }, overlay.Destination.String, overlay.ParseDestination),
	bucketOf("spoken", func(s *observed.State) map[netip.Addr][]string { return s.Families },
		func(s *observed.State, m map[netip.Addr][]string) { s.Families = m }, netip.Addr.String, netip.ParseAddr),
	bucketOf("classes", func(s *observed.State) map[string]observed.Class { return s.Classes },
		func(s *observed.State, m map[string]observed.Class) { s.Classes = m }, plain, parsed),
	bucketOf("node", self, func(s *observed.State, m map[string]observed.Self) { s.Self = m["self"] }, plain, parsed),
}

func plain(name string) string           { return name }
func parsed(name string) (string, error) { return name, nil }

// self is what Kubernetes says of this node: a map of one, or of none.
func self(s *observed.State) map[string]observed.Self {
	if desired.Same(s.Self, observed.Self{}) {
		return nil
	}
	return map[string]observed.Self{"self": s.Self}
}

// bucketOf is the map that of returns and set replaces.
func bucketOf[K comparable, V any](name string, of func(*observed.State) map[K]V, set func(*observed.State, map[K]V), text func(K) string, parse func(string) (K, error)) bucket {
	return bucket{
		load: func(tx *bbolt.Tx, s *observed.State) error {
			out := map[K]V{}
			b := tx.Bucket([]byte(name))
			if b == nil {
				return nil
			}
			err := b.ForEach(func(key, data []byte) error {
				var v V
				k, err := parse(string(key))
				if err := errors.Join(err, json.Unmarshal(data, &v)); err != nil {
					return fmt.Errorf("%s %s: %w", name, key, err)
				}
				out[k] = v
				return nil
			})
			set(s, out)
			return err
		},
		save: func(tx *bbolt.Tx, before, after *observed.State) error {
			from, to := of(before), of(after)
			if observed.SameMap(from, to) {
				return nil
			}
			for key, v := range to {
				old, there := from[key]
				if there && reflect.DeepEqual(old, v) {
					continue
				}
				if err := put(tx, name, text(key), v); err != nil {
					return err
				}
			}
			b := tx.Bucket([]byte(name))
			if b == nil {
				return nil
			}
			for key := range from {
				if _, stays := to[key]; stays {
					continue
				}
				if err := b.Delete([]byte(text(key))); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func saveObserved(tx *bbolt.Tx, from, to *observed.State) error {
	for _, b := range buckets {
		if err := b.save(tx, from, to); err != nil {
			return err
		}
	}
	return nil
}

// Save writes what differs between two lists of resources of the API, what others
// say now, and the configuration that was applied, all at once.
func (s *Store) Save(from, to []desired.Resource, o observed.State, replaced *Applied) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make(map[desired.Ref]desired.Resource, len(from))
	for _, r := range from {
		before[r.Ref] = r
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := saveObserved(tx, &s.observed, &o); err != nil {
			return err
		}
		for _, r := range to {
			old, there := before[r.Ref]
			delete(before, r.Ref)
			if there && desired.Same(old.Value, r.Value) {
				continue
			}
			if err := put(tx, string(r.Kind), r.Key, r.Value); err != nil {
				return err
			}
		}
		for r := range before {
			if b := tx.Bucket([]byte(r.Kind)); b != nil {
				if err := b.Delete([]byte(r.Key)); err != nil {
					return err
				}
			}
		}
		if replaced == s.replaced {
			return nil
		}
		if replaced != nil {
			return put(tx, string(appliedBucket), string(appliedKey), replaced)
		}
		if tx.Bucket(appliedBucket) != nil {
			return tx.DeleteBucket(appliedBucket)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state file %s: %w", s.db.Path(), err)
	}
	s.observed, s.replaced = o, replaced
	return nil
}

// put writes a value, unless it is what is there: whether something is from before a
// restart is not on disk.
func put(tx *bbolt.Tx, bucket, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	b, err := tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil || bytes.Equal(b.Get([]byte(key)), data) {
		return err
	}
	return b.Put([]byte(key), data)
}
