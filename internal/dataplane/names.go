package dataplane

import (
	"bytes"
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// names is what indices mean, for a daemon that starts again.
type names struct {
	table *table[abi.NameKey, [nameLength]byte]
}

const nameLength = 128

// Kinds of names (bpf/maps.h).
const (
	namePolicy    = 1
	nameTunnel    = 4
	nameAdjacency = 5
)

func (n *names) put(kind, index uint32, name string) error {
	var text [nameLength]byte
	if len(name) > nameLength {
		return fmt.Errorf("name %q is longer than %d bytes", name, nameLength)
	}
	copy(text[:], name)
	return n.table.put(abi.NameKey{Kind: kind, Index: index}, text)
}

func (n *names) del(kind, index uint32) error {
	return n.table.del(abi.NameKey{Kind: kind, Index: index})
}

// all is every name of a kind, by index.
func (n *names) all(kind uint32) map[uint32]string {
	out := map[uint32]string{}
	for k, text := range n.table.All() {
		if k.Kind == kind {
			name, _, _ := bytes.Cut(text[:], []byte{0})
			out[k.Index] = string(name)
		}
	}
	return out
}
