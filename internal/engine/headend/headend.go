// Package headend is what the engine reads from headends, and writes to them.
package headend

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Policy is an SR policy as its headend has it.
type Policy struct {
	Name     string
	Color    uint32
	Endpoint netip.Addr
	// Octets is what it has sent.
	Octets uint64
	// Lists are those of the active candidate path.
	Lists []srpolicy.SegmentList
	// Paths are all candidate paths, the best first.
	Paths []srpolicy.Verdict
	// Delays is what candidate paths have that say nothing of delays.
	Delays srpolicy.DelayConstraint
}

// Active is the candidate path that packets take.
func (p Policy) Active() srpolicy.Verdict {
	for _, v := range p.Paths {
		if v.Active {
			return v
		}
	}
	return srpolicy.Verdict{}
}

// Named is the candidate path with a name; the zero value: it has none.
func (p Policy) Named(name string) srpolicy.Verdict {
	for _, v := range p.Paths {
		if v.Path == name {
			return v
		}
	}
	return srpolicy.Verdict{}
}

// Path is a candidate path, and the policy that it is for.
type Path struct {
	srpolicy.CandidatePath
	Of Policy
	// Repair says that it is held ready behind the path that packets take.
	Repair bool
}

// Headend is a node with policies. Its methods may be called at any time.
type Headend interface {
	// Policies are all that it has.
	Policies(context.Context) ([]Policy, error)
	// PathName is what it calls the candidate path of an engine for one of its policies, and
	// RepairName the repair path.
	PathName(engine string, p Policy) string
	RepairName(engine string, p Policy) string
	// Put adds candidate paths, and replaces those of the same name.
	Put(context.Context, []Path) error
	// Remove removes what Put has added. Of a path only Name, Of and Repair count.
	Remove(context.Context, []Path) error
}

// Reading is what one headend answered.
type Reading struct {
	Headend  string
	At       time.Time
	Policies []Policy
	Err      error
}

// patience is how long a headend may take to answer.
const patience = 5 * time.Second

// Read asks all headends at the same time, and returns their answers in the order of names.
// Counters are those in the middle between question and answer.
func Read(ctx context.Context, headends map[string]Headend) []Reading {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	readings := make([]Reading, 0, len(headends))
	for _, name := range slices.Sorted(maps.Keys(headends)) {
		readings = append(readings, Reading{Headend: name})
	}
	var all sync.WaitGroup
	for i := range readings {
		all.Go(func() {
			asked := time.Now()
			readings[i].Policies, readings[i].Err = headends[readings[i].Headend].Policies(ctx)
			readings[i].At = asked.Add(time.Since(asked) / 2)
		})
	}
	all.Wait()
	return readings
}
