package policy

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// past is what lists carried that their policy does not have now, or has in another entry:
// a list that comes back goes on counting where it was.
type past struct {
	// sums are by policy and list, of entries that others have now.
	sums map[string]map[route]counter.Counter
	// retired are entries that no policy has: packets that had chosen one may still count.
	retired map[uint32]owner
}

// route is a list's segments, as text.
type route string

// owner is a list of a policy.
type owner struct {
	policy string
	list   route
}

func routeOf(l srpolicy.SegmentList) route { return route(fmt.Sprint(l.Segments)) }

func (p *past) retire(index uint32, of owner) { p.retired[index] = of }

// reuse begins a new count in an entry, and keeps what it has for the list before.
func (p *past) reuse(counters *ebpf.Map, index uint32) error {
	if of, has := p.retired[index]; has {
		c, err := counter.Read(counters, index)
		if err != nil {
			return err
		}
		if p.sums[of.policy] == nil {
			p.sums[of.policy] = map[route]counter.Counter{}
		}
		c.Add(p.sums[of.policy][of.list])
		p.sums[of.policy][of.list] = c
		delete(p.retired, index)
	}
	return counter.Zero(counters, index)
}

// of is what each former list of a policy carried.
func (p *past) of(counters *ebpf.Map, policy string) (map[route]counter.Counter, error) {
	sums := maps.Clone(p.sums[policy])
	if sums == nil {
		sums = map[route]counter.Counter{}
	}
	for index, of := range p.retired {
		if of.policy != policy {
			continue
		}
		c, err := counter.Read(counters, index)
		if err != nil {
			return nil, err
		}
		c.Add(sums[of.list])
		sums[of.list] = c
	}
	return sums, nil
}

// forget drops what lists of a policy that is gone carried.
func (p *past) forget(policy string) {
	delete(p.sums, policy)
	maps.DeleteFunc(p.retired, func(_ uint32, of owner) bool { return of.policy == policy })
}
