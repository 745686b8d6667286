package plan

import (
	"errors"
	"net/netip"

	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Unreachable says, for links, why no route leads to the first segment of a list; empty: one
// does. That is what makes lists down that compile makes of these links.
func Unreachable(links *netdev.Snapshot) func(segments []netip.Addr) string {
	t := &Tables{Links: links}
	known := map[netip.Addr]string{}
	return func(segments []netip.Addr) string {
		why, ok := known[segments[0]]
		if !ok {
			if err := t.unreachable(segments[0]); err != nil {
				why = err.Error()
			}
			known[segments[0]] = why
		}
		return why
	}
}

// usable says of the lists of a policy why packets cannot take them: no route leads to the first
// segment, no probe returns, or the last segment is none at which the endpoint takes the packets.
func (t *Tables) usable(g *Goal, p *srpolicy.Policy) func(srpolicy.SegmentList) error {
	return func(l srpolicy.SegmentList) error {
		if err := t.unreachable(l.Segments[0]); err != nil {
			return err
		}
		if len(t.dead) > 0 {
			if why := t.dead[l.Key()]; why != "" {
				return errors.New(why)
			}
		}
		if p.L2() { // a member may have any SID for frames
			return nil
		}
		if why := g.ends().Wrong(p.Color, p.Endpoint, l.Segments[len(l.Segments)-1], g.Self.Tenants); why != "" {
			return errors.New(why)
		}
		return nil
	}
}

// ends are the SIDs at which members of the cluster take packets for pods.
func (g *Goal) ends() *overlay.Ends {
	if g.Wanted == nil {
		return nil
	}
	return g.Wanted.Ends
}
