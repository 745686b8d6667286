package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	end := g.endOfPods(p.Color, p.Endpoint)
	return func(l srpolicy.SegmentList) error {
		if err := t.unreachable(l.Segments[0]); err != nil {
			return err
		}
		if len(t.dead) > 0 {
			if why := t.dead[l.Key()]; why != "" {
				return errors.New(why)
			}
		}
		if last := l.Segments[len(l.Segments)-1]; end.sid.IsValid() && last != end.sid {
			return fmt.Errorf("it ends at %s, and %s takes %s at %s", last, end.node, end.what, end.sid)
		}
		return nil
	}
}

// podEnd is where a member of the cluster takes packets for pods.
type podEnd struct {
	node, what string
	sid        netip.Addr // invalid: not known
}

// endOfPods is where the endpoint of a policy takes what policies of this color carry. It is known
// for the colors of pods, and for endpoints that are members which say so; elsewhere nothing is
// verified.
func (g *Goal) endOfPods(color uint32, endpoint netip.Addr) podEnd {
	if g.Wanted == nil || !endpoint.IsValid() {
		return podEnd{}
	}
	i := slices.IndexFunc(g.Wanted.Peers, func(p overlay.Peer) bool { return p.Address == endpoint && p.Name != "" && !p.Unused })
	if i < 0 {
		return podEnd{}
	}
	n := g.Wanted.Peers[i].Node
	switch color {
	case overlay.ColorIPv4:
		return podEnd{n.Name, "IPv4", lastOf(n.IPv4)}
	case overlay.ColorIPv6:
		return podEnd{n.Name, "IPv6", lastOf(n.IPv6)}
	}
	for _, t := range g.Self.Tenants {
		if t.Color() == color {
			return podEnd{n.Name, "tenant " + t.Name, t.SIDIn(n.Locator)}
		}
	}
	return podEnd{}
}

func lastOf(list []netip.Addr) netip.Addr {
	if len(list) == 0 {
		return netip.Addr{}
	}
	return list[len(list)-1]
}
