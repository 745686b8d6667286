package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/culvert-net/culvert/internal/config"
)

// store is the state file: what was added through the API, in a bucket for
// each kind, and the configuration that was applied through it. A change is on
// disk before its caller hears that it was made.
type store struct {
	db *bbolt.DB

	mu       sync.Mutex
	told     told     // that is on disk
	replaced *applied // too
}

// applied is a configuration that came through the API in place of the file's.
// It holds for as long as the file is the one that it replaced.
type applied struct {
	Config config.Config `json:"config"`
	// File is the SHA-256 of the file's bytes when it was replaced.
	File string `json:"file"`
}

var (
	pathBucket    = []byte("bgp") // candidate paths that were told
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

// openStore opens the state file, or makes it. Only one daemon can hold it.
func openStore(path string, log *slog.Logger) (*store, error) {
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
	s := &store{db: db}
	if err := s.init(path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (s *store) init(path string) error {
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

func (s *store) close() error { return s.db.Close() }

// load reads what was added through the API, what others had told, and the
// configuration that was applied, or nil.
func (s *store) load() (api []resource, t told, replaced *applied, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		for _, kind := range kinds {
			b := tx.Bucket([]byte(kind))
			if b == nil {
				continue
			}
			err := b.ForEach(func(key, value []byte) error {
				r, err := decode(Ref{kind, string(key)}, OriginAPI, value)
				api = append(api, r)
				return err
			})
			if err != nil {
				return err
			}
		}
		if t, err = loadTold(tx); err != nil {
			return err
		}
		if b := tx.Bucket(appliedBucket); b != nil {
			replaced = &applied{}
			return json.Unmarshal(b.Get(appliedKey), replaced)
		}
		return nil
	})
	if err != nil {
		return nil, told{}, nil, fmt.Errorf("state file %s: %w", s.db.Path(), err)
	}
	s.told, s.replaced = t, replaced
	return api, t, replaced, nil
}

// loadTold reads what an earlier daemon was told.
func loadTold(tx *bbolt.Tx) (told, error) {
	t := told{}.clone()
	err := errors.Join(
		loadAll(tx, pathBucket, func(name string, h heard) { t.paths[name] = h }),
		loadAll(tx, nodeBucket, func(name string, m member) {
			t.nodes[name], t.last = m, max(t.last, m.Number)
		}),
		loadAll(tx, reachBucket, func(_ string, r reached) {
			t.reaches[r.Prefix], t.last = r, max(t.last, r.Number)
		}),
		loadSpoken(tx, t.spoken),
		loadAll(tx, selfBucket, func(_ string, s selfTold) { t.self = s }),
	)
	t.restore()
	return t, err
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

// saveTold writes what differs of what others told; among the paths only those in
// touched, and nothing else, if that is not nil.
func (s *store) saveTold(to told, touched map[string]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, whole := s.told, to
	if touched != nil {
		from, to = told{paths: only(touched, from.paths)}, told{paths: only(touched, to.paths)}
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error { return saveTold(tx, from, to) }); err != nil {
		return fmt.Errorf("state file %s: %w", s.db.Path(), err)
	}
	s.told = whole
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

func saveTold(tx *bbolt.Tx, from, to told) error {
	text := func(name string) string { return name }
	self := func(t told) map[string]selfTold {
		if same(t.self, selfTold{}) {
			return nil
		}
		return map[string]selfTold{string(selfKey): t.self}
	}
	return errors.Join(
		saveAll(tx, pathBucket, from.paths, to.paths, text, heard.unmarked),
		saveAll(tx, nodeBucket, from.nodes, to.nodes, text, member.unmarked),
		saveAll(tx, reachBucket, from.reaches, to.reaches, netip.Prefix.String, reached.unmarked),
		saveAll(tx, spokenBucket, from.spoken, to.spoken, netip.Addr.String, func(f []string) []string { return f }),
		saveAll(tx, selfBucket, self(from), self(to), text, func(s selfTold) selfTold { return s }),
	)
}

// saveAll compares what is without marks: whether something is from before a
// restart is not on disk.
func saveAll[K comparable, V any](tx *bbolt.Tx, bucket []byte, from, to map[K]V, text func(K) string, unmarked func(V) V) error {
	if sameMap(from, to) {
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

// save writes what differs between two states of what the API added and others
// told, and the configuration that was applied, all at once.
func (s *store) save(from, to *desired, replaced *applied) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := make(map[Ref]resource, len(from.api))
	for _, r := range from.api {
		before[r.Ref] = r
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := saveTold(tx, s.told, to.told); err != nil {
			return err
		}
		for _, r := range to.api {
			old, there := before[r.Ref]
			delete(before, r.Ref)
			if there && same(old.value, r.value) {
				continue
			}
			if err := put(tx, string(r.Kind), r.Key, r.value); err != nil {
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
	s.told, s.replaced = to.told, replaced
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
