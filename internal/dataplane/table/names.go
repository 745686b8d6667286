package table

import (
	"bytes"
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Names is what indices mean, for a daemon that starts again.
type Names struct {
	*Hash[abi.NameKey, [NameLength]byte]
}

// NameLength bounds a name, in octets.
const NameLength = 128

// Kinds of names (bpf/maps.h).
const (
	NamePolicy    = 1
	NameTunnel    = 4
	NameAdjacency = 5
	NameClass     = 7
)

// OfTargets are the tables whose entries are targets (struct target): what steering leads to.
var OfTargets = []string{abi.MapTargetByDst4, abi.MapTargetByDst6, abi.MapTargetByPort}

// Put names an index.
func (n *Names) Put(kind, index uint32, name string) error {
	var text [NameLength]byte
	if len(name) > NameLength {
		return fmt.Errorf("name %q is longer than %d bytes", name, NameLength)
	}
	copy(text[:], name)
	return n.Hash.Put(abi.NameKey{Kind: kind, Index: index}, text)
}

// Delete takes the name of an index away.
func (n *Names) Delete(kind, index uint32) error {
	return n.Hash.Delete(abi.NameKey{Kind: kind, Index: index})
}

// All is every name of a kind, by index.
func (n *Names) All(kind uint32) map[uint32]string {
	out := map[uint32]string{}
	for k, text := range n.Hash.All() {
		if k.Kind == kind {
			name, _, _ := bytes.Cut(text[:], []byte{0})
			out[k.Index] = string(name)
		}
	}
	return out
}

// KeyOf is the key of the entry that a function says is the one; the zero value:
// none. It looks at all of them, which only traces do.
func KeyOf[K comparable, V any](entries map[K]V, isIt func(V) bool) (none K) {
	for k, v := range entries {
		if isIt(v) {
			return k
		}
	}
	return none
}
