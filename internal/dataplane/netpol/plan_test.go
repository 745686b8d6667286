package netpol

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/netpol"
)

// Where a table is full the namespace that needs most makes room, whoever came last.
func TestFits(t *testing.T) {
	var mu sync.Mutex
	tab := &Table{mu: &mu, tables: Tables{Peers: table.NewHash[abi.Lpm6Key, uint32]("netpol_peer", 4), Rules: table.NewHash[abi.NetpolRuleKey, uint32]("netpol_rule", 4)}}
	defer tab.lock()()
	next := numbered{peers: map[abi.Lpm6Key]uint32{}, prefixes: map[string]int{"big": 3, "small": 1, "none": 0}}
	need := map[string]int{"": 9, "large": 4, "little": 1}
	put := func(last byte) abi.Lpm6Key {
		key := tab.peerKey(netpol.Peer{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 32)})
		next.peers[key] = 7
		return key
	}
	for i := range 4 {
		if err := tab.tables.Peers.Put(put(byte(i)), 7); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.fits(next, need, 4); err != nil {
		t.Errorf("there is room: %v", err)
	}
	var e *netpol.ExceededError
	if err := tab.fits(next, need, 5); !errors.As(err, &e) || *e != (netpol.ExceededError{Namespace: "large", What: netpol.Rules, Need: 4, Limit: 4, Full: true}) {
		t.Errorf("rules: %v", err)
	}
	put(4)
	if err := tab.fits(next, need, 0); !errors.As(err, &e) || *e != (netpol.ExceededError{Namespace: "big", What: netpol.Prefixes, Need: 3, Limit: 4, Full: true}) {
		t.Errorf("prefixes: %v", err)
	}
	next.prefixes = nil
	var full *table.FullError
	if err := tab.fits(next, need, 0); !errors.As(err, &full) {
		t.Errorf("pods alone: %v", err)
	}
}
