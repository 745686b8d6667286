package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/netdev"
)

// cardBook is the bucket of the state file that has what cards were before Culvert changed
// them: a daemon that is started again gives it back. After a reboot it is void, because
// drivers begin anew.
type cardBook struct {
	db   *bbolt.DB
	boot string
}

// cardState is what of a card is changed.
type cardState struct {
	Hash  map[netdev.FlowType]netdev.HashFields `json:"hash,omitempty"`
	Table []uint32                              `json:"table"`
}

// bookedCard is an entry.
type bookedCard struct {
	Boot string `json:"boot"`
	cardState
}

var cardBucket = []byte("cards")

func openCardBook(db *bbolt.DB) (cardBook, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return cardBook{}, err
	}
	return cardBook{db, string(bytes.TrimSpace(boot))}, nil
}

// load reads what cards were, by interface, and strikes out what is of another boot.
func (b cardBook) load() (map[string]cardState, error) {
	out := map[string]cardState{}
	err := b.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(cardBucket)
		if err != nil {
			return err
		}
		var old [][]byte
		err = bucket.ForEach(func(name, text []byte) error {
			var c bookedCard
			if err := json.Unmarshal(text, &c); err != nil {
				return fmt.Errorf("former settings of the card %s: %w", name, err)
			}
			if c.Boot == b.boot {
				out[string(name)] = c.cardState
			} else {
				old = append(old, bytes.Clone(name))
			}
			return nil
		})
		for _, name := range old {
			err = errors.Join(err, bucket.Delete(name))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	return out, nil
}

// put is on disk when it returns.
func (b cardBook) put(name string, state cardState) error {
	text, err := json.Marshal(bookedCard{b.boot, state})
	if err != nil {
		return err
	}
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(cardBucket).Put([]byte(name), text) })
}

func (b cardBook) remove(name string) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(cardBucket).Delete([]byte(name)) })
}
