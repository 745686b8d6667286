package store

import (
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

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/config"
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
	pathBucket    = []byte("bgp") // candidate paths of others
	nodeBucket    = []byte("nodes")
	reachBucket   = []byte("reach")
	spokenBucket  = []byte("spoken") // by BGP peers
	selfBucket    = []byte("node")
	selfKey       = []byte("self")
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
		log.Info("another daemon has the state file: waiting for it to end", "file", path, "at_most", patience)
	})
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: patience, InitialMmapSize: reserved})
	waiting.Stop()
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state file %s is held by another culvert: stop that one, or name another file", path)
	case err != nil:
		return nil, fmt.Errorf("state file %s: %w: move it away to start without what was added through the API", path, err)
	}
	db.MaxBatchDelay = time.Millisecond // pods that come together share a transaction, and none waits long for others
	db.AllocSize = 64 << 10             // bytes that the file grows by: not more for so large a mapping
	s := &Store{db: db, log: log, some: make(chan struct{}, 1)}
	if err := s.init(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *Store) init(path string) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
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
}

// DB is the file's database.
func (s *Store) DB() *bbolt.DB { return s.db }

// Close lets another daemon have the file.
func (s *Store) Close() error { return s.db.Close() }

// Load reads the resources of the API, what others said, and the configuration
// that was applied, or nil.
func (s *Store) Load() (api []desired.Resource, o observed.State, replaced *Applied, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
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
				return err
			}
		}
		if o, err = loadObserved(tx); err != nil {
			return err
		}
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

// loadObserved reads what an earlier daemon heard.
func loadObserved(tx *bbolt.Tx) (observed.State, error) {
	s := observed.State{
		Paths: map[string]observed.Path{}, Nodes: map[string]observed.Node{},
		Reaches: map[netip.Prefix]observed.Reach{}, Families: map[netip.Addr][]string{},
	}
	err := errors.Join(
		loadAll(tx, pathBucket, func(name string, p observed.Path) { s.Paths[name] = p }),
		loadAll(tx, nodeBucket, func(name string, n observed.Node) {
			s.Nodes[name], s.Last = n, max(s.Last, n.Number)
		}),
		loadAll(tx, reachBucket, func(_ string, r observed.Reach) {
			s.Reaches[r.Prefix], s.Last = r, max(s.Last, r.Number)
		}),
		loadSpoken(tx, s.Families),
		loadAll(tx, selfBucket, func(_ string, self observed.Self) { s.Self = self }),
	)
	s.MarkStale()
	return s, err
}

func loadSpoken(tx *bbolt.Tx, to map[netip.Addr][]string) error {
	var wrong error
	err := loadAll(tx, spokenBucket, func(peer string, families []string) {
		at, err := netip.ParseAddr(peer)
		wrong = errors.Join(wrong, err)
		to[at] = families
	})
	return errors.Join(err, wrong)
}

func loadAll[V any](tx *bbolt.Tx, bucket []byte, each func(string, V)) error {
	b := tx.Bucket(bucket)
	if b == nil {
		return nil
	}
	return b.ForEach(func(name, data []byte) error {
		var v V
		if err := json.Unmarshal(data, &v); err != nil {
			return fmt.Errorf("%s %s: %w", bucket, name, err)
		}
		each(string(name), v)
		return nil
	})
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
			s.log.Error("cannot write to disk what others say; will try again", "error", err)
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
	if err := s.db.Update(func(tx *bbolt.Tx) error { return saveObserved(tx, from, to) }); err != nil {
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

func saveObserved(tx *bbolt.Tx, from, to observed.State) error {
	text := func(name string) string { return name }
	self := func(s observed.State) map[string]observed.Self {
		if desired.Same(s.Self, observed.Self{}) {
			return nil
		}
		return map[string]observed.Self{string(selfKey): s.Self}
	}
	return errors.Join(
		saveAll(tx, pathBucket, from.Paths, to.Paths, text, observed.Path.Unmarked),
		saveAll(tx, nodeBucket, from.Nodes, to.Nodes, text, observed.Node.Unmarked),
		saveAll(tx, reachBucket, from.Reaches, to.Reaches, netip.Prefix.String, observed.Reach.Unmarked),
		saveAll(tx, spokenBucket, from.Families, to.Families, netip.Addr.String, func(f []string) []string { return f }),
		saveAll(tx, selfBucket, self(from), self(to), text, func(s observed.Self) observed.Self { return s }),
	)
}

// saveAll compares what is without marks: whether something is from before a
// restart is not on disk.
func saveAll[K comparable, V any](tx *bbolt.Tx, bucket []byte, from, to map[K]V, text func(K) string, unmarked func(V) V) error {
	if observed.SameMap(from, to) {
		return nil
	}
	for key, v := range to {
		old, there := from[key]
		if there && reflect.DeepEqual(unmarked(old), unmarked(v)) {
			continue
		}
		if err := put(tx, string(bucket), text(key), v); err != nil {
			return err
		}
	}
	b := tx.Bucket(bucket)
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
		if err := saveObserved(tx, s.observed, o); err != nil {
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

func put(tx *bbolt.Tx, bucket, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	b, err := tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	return b.Put([]byte(key), data)
}
