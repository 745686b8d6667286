package bgp

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/te/linkstate"
)

// Network is what peers advertise by BGP-LS.
type Network struct {
	Objects []linkstate.Object
	// Waits are peers of that family that have not advertised everything yet: no session has
	// been up, or there was no End-of-RIB in it and something came in the last seconds.
	Waits []netip.Addr
	// Unknown are peers that are away for longer than is bearable. What they alone had
	// advertised is gone.
	Unknown []netip.Addr
}

// settled is how long a peer that sends no End-of-RIB is silent when it has advertised everything.
const settled = 10 * time.Second

// lsTable is what a peer has advertised by BGP-LS.
type lsTable struct {
	objects  map[string]lsObject // by NLRI
	up       bool
	since    time.Time // of the change of up; zero: it was never up
	heard    time.Time // of the last update
	complete bool
}

// lsObject is an object; old: of an earlier session.
type lsObject struct {
	linkstate.Object
	old bool
}

// linkStateTables are those of the peers that have the family.
func linkStateTables(c *Config) map[netip.Addr]*lsTable {
	tables := map[netip.Addr]*lsTable{}
	for _, p := range c.Peers {
		if slices.Contains(c.spoken(p), LinkState) {
			tables[p.Address] = &lsTable{objects: map[string]lsObject{}}
		}
	}
	return tables
}

// observeLinkState handles an update about an object. What GoBGP withdraws because the session
// has ended stays: Speaker.Network knows for how long.
func (s *Speaker) observeLinkState(p *apiutil.Path, n *bgp.LsAddrPrefix, isUp func(netip.Addr) bool) {
	t := s.links[p.PeerAddress]
	octets, err := n.Serialize()
	if t == nil || err != nil {
		return
	}
	t.heard = time.Now()
	key := string(octets)
	if p.Withdrawal {
		if isUp(p.PeerAddress) {
			delete(t.objects, key)
		}
		return
	}
	o, err := readLinkState(n, p.Attrs)
	if err != nil {
		s.log.Warn("BGP-LS object left out", "event", logevent.BGPLinkStateRejected, "peer", p.PeerAddress, "nlri", n.String(), "error", err)
		s.countMalformed(p.PeerAddress)
		o = linkstate.Unreadable{What: n.String(), Why: err.Error()}
	}
	if o != nil {
		t.objects[key] = lsObject{o, p.Stale}
	}
}

// isEstablished asks for the state of a session now: events about it may still be on their way.
func (s *Speaker) isEstablished(peer netip.Addr) (up bool) {
	err := s.server.ListPeer(context.Background(), &api.ListPeerRequest{Address: peer.String()}, func(p *api.Peer) {
		up = p.GetState().GetSessionState() == api.PeerState_SESSION_STATE_ESTABLISHED
	})
	if err != nil {
		s.log.Error("cannot find the state of a BGP session", "event", logevent.BGPStateUnknown, "peer", peer, "error", err)
	}
	return up
}

// begin begins a session.
func (t *lsTable) begin(now time.Time) {
	t.up, t.since, t.complete = true, now, false
	t.age()
}

// end ends a session.
func (t *lsTable) end(now time.Time) {
	if t.up {
		t.up, t.since = false, now
		t.age()
	}
}

// age makes all objects those of an earlier session.
func (t *lsTable) age() {
	for key, o := range t.objects {
		o.old = true
		t.objects[key] = o
	}
}

// finish drops what the peer has not advertised again.
func (t *lsTable) finish() {
	t.complete = true
	maps.DeleteFunc(t.objects, func(_ string, o lsObject) bool { return o.old })
}

// Network returns what peers advertise. What a peer had advertised when its session ended counts
// for as long as keep, except about routers of which another peer knows.
func (s *Speaker) Network(keep time.Duration) Network {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	return networkOf(s.links, keep, time.Now())
}

func networkOf(tables map[netip.Addr]*lsTable, keep time.Duration, now time.Time) (out Network) {
	merged, covered := map[string]linkstate.Object{}, map[linkstate.Router]bool{}
	peers := slices.SortedFunc(maps.Keys(tables), netip.Addr.Compare)
	var away []netip.Addr
	for _, peer := range peers {
		t := tables[peer]
		if t.up && !t.complete && min(now.Sub(t.since), now.Sub(t.heard)) >= settled {
			t.finish()
		}
		waits := t.since.IsZero() || t.up && !t.complete
		if waits {
			out.Waits = append(out.Waits, peer)
		}
		if waits || !t.up {
			away = append(away, peer)
			continue
		}
		for key, o := range t.objects {
			merged[key] = o.Object
			covered[linkstate.Of(o.Object)] = true
		}
	}
	for _, peer := range away {
		t, gone := tables[peer], false
		for key, o := range t.objects {
			switch {
			case covered[linkstate.Of(o.Object)]:
			case t.up || now.Sub(t.since) < keep:
				merged[key] = o.Object
			default:
				gone = true
			}
		}
		if gone {
			out.Unknown = append(out.Unknown, peer)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		out.Objects = append(out.Objects, merged[key])
	}
	return out
}

// once has a function answer the same for the same peer.
func once(ask func(netip.Addr) bool) func(netip.Addr) bool {
	answers := map[netip.Addr]bool{}
	return func(peer netip.Addr) bool {
		if _, known := answers[peer]; !known {
			answers[peer] = ask(peer)
		}
		return answers[peer]
	}
}
