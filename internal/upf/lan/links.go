package upf

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// Bounds of what frames for all sessions of a link cost: how many wait, and how
// many copies are made of them in a second, and at once.
const (
	mostFloods  = 256
	floodRate   = 10000
	floodsBurst = 2000
)

func isEthernet(s *session.Session) bool { return s.PDNType == session.PDNEthernet }

// link is N6 of an Ethernet session.
func (c *compiler) link() (dataplane.Link, error) {
	if c.slice == nil || c.slice.N6 == nil {
		return dataplane.Link{}, fmt.Errorf("the session's slice has no n6, which Ethernet sessions leave by: %w", pfcp.ErrUnsupported)
	}
	return dataplane.Link(*c.slice.N6), nil
}

// argument: frames by SRv6 carry the F-TEID's number, as GTP-U would (RFC 9433
// section 6.1). Nothing else in them says whose they are.
func (c *compiler) argument(f *dataplane.Forwarding, outer *session.OuterHeader) error {
	n9 := c.n9()
	if n9.ArgsOffset == 0 {
		return fmt.Errorf("ethernet frames by SRv6, of which the slice's n9 does not say the args_offset: %w", pfcp.ErrUnsupported)
	}
	f.TEID, f.ArgsOffset = outer.TEID, n9.ArgsOffset
	return nil
}

// filtersOf are those of a PDR, at most so many.
func (c *compiler) filtersOf(p *session.PDR, most int) ([]dataplane.Filter, error) {
	if !isEthernet(c.s) {
		return expand(p.PDI.Filters, most)
	}
	out, err := writeOut(p.PDI.Filters, most)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Frame = &dataplane.FrameFilter{IP: true}
	}
	for i := range p.PDI.Ethernet {
		e := &p.PDI.Ethernet[i]
		inside := e.Filters
		if len(inside) == 0 {
			inside = []session.Filter{{AnyProtocol: true}}
		}
		more, err := writeOut(inside, most-len(out))
		if err != nil {
			return nil, err
		}
		for n := range more {
			more[n].Frame = &dataplane.FrameFilter{Source: e.Source, Destination: e.Destination,
				SourceTo: e.SourceTo, DestinationTo: e.DestinationTo, EtherType: e.EtherType,
				CTag: e.CVLAN, STag: e.SVLAN, IP: len(e.Filters) > 0}
		}
		out = append(out, more...)
	}
	return out, nil
}

// tpdu is the T-PDU in what the data path handed up, without what is behind it;
// nil if it is not all there.
func (e *entry) tpdu(p Packet) []byte {
	const addresses = 12
	switch {
	case !e.ethernet:
		return packetAt(p.Data, p.L3)
	case p.L3 < 0 || len(p.Data) < p.L3+minFrame:
		return nil
	case p.L3 < minFrame: // from a link: what is before its tag stays
		return append(append([]byte(nil), p.Data[:addresses]...), p.Data[p.L3+addresses:]...)
	}
	return p.Data[p.L3:]
}

// minFrame is an Ethernet header.
const minFrame = 14

// links are the Ethernet sessions on each link.
type links struct {
	mu   sync.Mutex
	of   map[uint64]dataplane.Link
	on   map[dataplane.Link]map[uint64]bool
	wait chan flood
	now  func() time.Time
	left float64 // copies
	last time.Time
}

// flood is a frame for all sessions of a link.
type flood struct {
	link    dataplane.Link
	ifindex int
	data    []byte
}

func newLinks(now func() time.Time) links {
	return links{
		of: map[uint64]dataplane.Link{}, on: map[dataplane.Link]map[uint64]bool{},
		wait: make(chan flood, mostFloods), now: now, left: floodsBurst, last: now(),
	}
}

// join notes which link a session is on now that was put, if any.
func (l *links) join(s dataplane.Session) {
	if len(s.Rules) == 0 || !s.Rules[0].Ethernet {
		return
	}
	l.leave(s.ID)
	for i := range s.Rules {
		link := s.Rules[i].Link
		if link == (dataplane.Link{}) {
			continue
		}
		l.mu.Lock()
		if l.on[link] == nil {
			l.on[link] = map[uint64]bool{}
		}
		l.of[s.ID], l.on[link][s.ID] = link, true
		l.mu.Unlock()
		return
	}
}

func (l *links) leave(seid uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if link, is := l.of[seid]; is {
		delete(l.of, seid)
		delete(l.on[link], seid)
	}
}

// sessions are those of a link.
func (l *links) sessions(link dataplane.Link) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]uint64, 0, len(l.on[link]))
	for seid := range l.on[link] {
		out = append(out, seid)
	}
	return out
}

// may takes one copy from the budget. Only floods calls it.
func (l *links) may() bool {
	now := l.now()
	l.left = min(floodsBurst, l.left+now.Sub(l.last).Seconds()*floodRate)
	l.last = now
	if l.left < 1 {
		return false
	}
	l.left--
	return true
}

// Flood has a frame that came in on a link given to all sessions there, soon. It
// keeps data.
func (u *UPF) Flood(link dataplane.Link, ifindex int, data []byte) {
	select {
	case u.links.wait <- flood{link, ifindex, data}:
	default:
		u.stats.FloodsDropped.Add(1)
	}
}

// floods gives frames to sessions until ctx ends.
func (u *UPF) floods(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f := <-u.links.wait:
			for _, seid := range u.links.sessions(f.link) {
				u.flood(f, seid)
			}
		}
	}
}

func (u *UPF) flood(f flood, seid uint64) {
	if !u.links.may() {
		u.stats.FloodsDropped.Add(1)
		return
	}
	if err := u.dp.InjectFor(seid, f.data, f.ifindex, false); err != nil {
		u.stats.FloodsDropped.Add(1)
		u.log.Debug("cannot give a frame to a session", "seid", seid, "error", err)
		return
	}
	u.stats.Floods.Add(1)
}
