package agent

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/netdev"
)

// TestCardBook: what a card was is there for the next daemon, and void after a reboot.
func TestCardBook(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	open := func(boot string) cardBook {
		t.Helper()
		b, err := openCardBook(db)
		if err != nil || b.boot == "" {
			t.Fatalf("%+v, %v", b, err)
		}
		b.boot += boot
		return b
	}
	want := func(b cardBook, want map[string]cardState) {
		t.Helper()
		if got, err := b.load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	n3 := cardState{Hash: map[netdev.FlowType]netdev.HashFields{"gtpu4e": outer}, Table: []uint32{0, 1, 2}}
	n6 := cardState{Table: []uint32{3}}
	want(open(""), map[string]cardState{})
	for name, state := range map[string]cardState{"n3": n3, "n6": n6, "n9": n6} {
		if err := open("").put(name, state); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("").remove("n9"); err != nil {
		t.Fatal(err)
	}
	want(open(""), map[string]cardState{"n3": n3, "n6": n6})
	want(open(" later"), map[string]cardState{})
	want(open(""), map[string]cardState{}) // it is struck out
	if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(cardBucket).Put([]byte("n3"), []byte("x")) }); err != nil {
		t.Fatal(err)
	}
	if _, err := open("").load(); err == nil || !strings.Contains(err.Error(), "state file: former settings of the card n3") {
		t.Errorf("garbage: %v", err)
	}
}
