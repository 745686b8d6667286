package session

import (
	"fmt"
	"unsafe"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// wordIndex is the word of an entry of forwarding with the policy and its class.
const wordIndex = int(unsafe.Offsetof(abi.Forwarding{}.Index)) / 8

// SetWays says which policies and classes packets of sessions have. They exist. Each packet
// meets those of before, or these.
func (s *Sessions) SetWays(ways class.SessionWays) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.forwardings
	for flow, way := range ways {
		if way.Class != "" && f.node.ClassNumber(way.Class) == 0 {
			return fmt.Errorf("class %q of slice %q: there is none of that name", way.Class, flow.Slice)
		}
		if way.Policy != "" {
			if err := f.checkPolicy(way.Policy); err != nil {
				return err
			}
		}
	}
	f.ways = ways
	for model, e := range f.byModel {
		if way := ways.Of(model.Flow); model.Kind == ForwardPolicy && way != e.way {
			f.redirect(e, way)
		}
	}
	return nil
}

// redirect has packets of an entry take another way.
func (f *forwardings) redirect(e *forwardingEntry, way class.Way) {
	former := *e
	e.way = way
	f.usePolicies(e, true)
	e.value.Index, e.value.Class = f.led(way)
	f.array.Change(e.index, wordIndex, table.ToWords(e.value)[wordIndex])
	f.usePolicies(&former, false)
}

// led are the index of a way's policy and the number of its class; 0: it has none.
func (f *forwardings) led(way class.Way) (policy uint32, number uint8) {
	if way.Policy != "" {
		policy, _, _ = f.node.Policy(way.Policy)
	}
	if way.Class != "" {
		number = f.node.ClassNumber(way.Class)
	}
	return policy, number
}

// usePolicies notes whether sessions refer to the policies of an entry: that of its class,
// and that which it has without it.
func (f *forwardings) usePolicies(e *forwardingEntry, used bool) {
	f.node.UsePolicy(e.model.Flow.Policy, used)
	if e.way.Policy != "" {
		f.node.UsePolicy(e.way.Policy, used)
	}
}
