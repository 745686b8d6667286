package observed

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
)

// A prefix that two peers had advertised goes when both have advertised everything, and
// neither has advertised it again.
func TestReachesBeforeARestart(t *testing.T) {
	a, b, p := netip.MustParseAddr("127.95.0.1"), netip.MustParseAddr("127.95.0.2"), netip.MustParsePrefix("10.244.9.0/24")
	by := func(peer netip.Addr, best bool) bgp.Route {
		r := bgp.Route{Source: bgp.Source{Peer: peer}, Best: best}
		r.Prefix, r.From = p, peer
		return r
	}
	state, queue := State{}.Edit(), NewQueue()
	state.PutReach(overlay.Destination{Prefix: p}, []bgp.Route{by(a, true), by(b, false)})
	state.MarkStale()
	h := &BGP{queue: queue}
	complete := func(peer netip.Addr) {
		h.Complete(peer)
		for _, e := range queue.Take() {
			e.Apply(&state)
		}
	}
	complete(a)
	if len(state.Best()) != 1 {
		t.Error("it went before the other peer had time to advertise it")
	}
	complete(b)
	if len(state.Reaches) != 0 {
		t.Errorf("it stays: %+v", state.Reaches)
	}
}

// An address that BGP led to stays known for LeftTime after that.
func TestLeftAddresses(t *testing.T) {
	old, moved := netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::22")
	route := func(p string, address netip.Addr) (overlay.Destination, []bgp.Route) {
		r := bgp.Route{Best: true}
		r.Prefix, r.Address = netip.MustParsePrefix(p), address
		return overlay.Destination{Prefix: r.Prefix}, []bgp.Route{r}
	}
	first := State{}.Edit()
	first.PutReach(route("10.244.2.0/24", old))
	first.PutReach(route("10.244.2.0/24", old))
	first.PutReach(route("10.244.3.0/24", old))
	if len(first.Left) != 0 {
		t.Errorf("left %v, and it is there", first.Left)
	}
	second := first.Edit()
	second.PutReach(route("10.244.2.0/24", moved))
	third := second.Edit()
	third.DropReach(overlay.Destination{Prefix: netip.MustParsePrefix("10.244.2.0/24")})
	third.DropReach(overlay.Destination{Prefix: netip.MustParsePrefix("10.244.9.0/24")})
	if len(first.Left) != 0 || len(second.Left) != 1 || second.Left[old].IsZero() || len(third.Left) != 2 || second.OnlyPaths(&first) {
		t.Errorf("left %v, then %v, then %v", first.Left, second.Left, third.Left)
	}
	third.ForgetLeft(time.Now())
	if len(third.Left) != 2 {
		t.Errorf("forgotten at once: %v", third.Left)
	}
	third.ForgetLeft(time.Now().Add(LeftTime))
	if len(third.Left) != 0 || len(second.Left) != 1 {
		t.Errorf("still %v, before %v", third.Left, second.Left)
	}
}

func TestPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{"secret\n": "", "": "holds 0 characters", strings.Repeat("x", 81): "holds 81"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := NewBGP(Config{BGP: config.BGP{ASN: 1, Peers: []config.BGPPeer{{PasswordFile: path}}}}, &State{}, NewQueue(), slog.New(slog.DiscardHandler))
		if want == "" && (err != nil || h.Config().Peers[0].Password != "secret") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %+v, %v, want %q", content, h, err, want)
		}
	}
}

// One configuration does for all nodes of a cluster.
func TestOneFileForAllNodes(t *testing.T) {
	c, err := config.Parse([]byte(`
overlay: {mode: bgp, locator_pool: 'fc00::/32'}
bgp:
  asn: 65001
  listen: ['::']
  peers: [{address: '2001:db8::1', asn: 65001}, {address: 2001:db8::2, asn: 65001}, {address: 10.0.0.1, asn: 65001}]
`))
	if err != nil {
		t.Fatal(err)
	}
	of := func(self overlay.Self) config.BGP { return BGPConfig(c.BGP, c.Overlay.Mode, self) }
	if b := of(overlay.Self{}); b.RouterID.IsValid() {
		t.Errorf("a node that does not know itself speaks as %s", b.RouterID)
	}
	self := overlay.Self{Name: "node-1", Address: netip.MustParseAddr("2001:db8::1"), Addresses: []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1")}}
	b := of(self)
	if b.RouterID != netip.MustParseAddr("10.0.0.1") || !slices.Equal(b.Listen, []netip.Addr{self.Address}) {
		t.Errorf("router ID %s, listens at %s: want what the Node has", b.RouterID, b.Listen)
	}
	if len(b.Peers) != 1 || b.Peers[0].Address != netip.MustParseAddr("2001:db8::2") {
		t.Errorf("peers are %+v, want the other node", b.Peers)
	}
	if got := c.BGP.Listen; !got[0].IsUnspecified() || len(c.BGP.Peers) != 3 {
		t.Errorf("the configuration itself has changed: %+v", c.BGP)
	}
	ids := map[netip.Addr]bool{}
	for _, a := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"} {
		ids[routerID(overlay.Self{Address: netip.MustParseAddr(a)})] = true
	}
	if len(ids) != 3 || ids[netip.IPv4Unspecified()] {
		t.Errorf("router IDs of nodes without IPv4: %v", ids)
	}
	c.BGP.RouterID = netip.MustParseAddr("192.0.2.7")
	if b := of(self); b.RouterID != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("router ID %s in place of the one that is set", b.RouterID)
	}
}

func TestVPNsOfTenants(t *testing.T) {
	c := Config{BGP: config.BGP{ASN: 4200000001, RouterID: netip.MustParseAddr("10.0.0.1")}, Overlay: config.Overlay{Mode: config.OverlayBGP, Tenants: []overlay.Tenant{
		{Name: "red", ID: 7}, {Name: "blue", ID: 8, Distinguisher: "65000:1", Import: []string{"65000:2", "65000:3"}, Export: []string{"65000:2"}},
	}}}
	h, err := NewBGP(c, &State{}, NewQueue(), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	want := []bgp.VPN{
		{Tenant: 7, Distinguisher: "10.0.0.1:7", Import: []string{"4200000001:7"}, Export: []string{"4200000001:7"}},
		{Tenant: 8, Distinguisher: "65000:1", Import: []string{"65000:2", "65000:3"}, Export: []string{"65000:2"}},
	}
	if got := h.Config().Cluster.Tenants; !reflect.DeepEqual(got, want) {
		t.Errorf("VPNs %+v, want %+v", got, want)
	}
	if err := h.start(t.Context()); err != nil { // GoBGP takes them
		t.Fatal(err)
	}
	h.speaker.Stop()
}

// What an earlier daemon knew stays while a configured peer is away, and goes where no such
// peer can advertise it.
func TestStateOfPeersThatAreAway(t *testing.T) {
	away, removed := netip.MustParseAddr("127.95.0.1"), netip.MustParseAddr("127.95.0.2")
	from := func(peer netip.Addr, prefix string) (overlay.Destination, []bgp.Route) {
		r := bgp.Route{Source: bgp.Source{Peer: peer}, Best: true}
		r.Prefix, r.From = netip.MustParsePrefix(prefix), peer
		return overlay.Destination{Prefix: r.Prefix}, []bgp.Route{r}
	}
	state := State{}.Edit()
	kept, there := from(away, "10.244.1.0/24")
	state.PutReach(kept, there)
	state.PutReach(from(removed, "10.244.2.0/24"))
	state.PutPath("kept", Path{Path: bgp.Path{Source: bgp.Source{Peer: away}}})
	state.PutPath("gone", Path{Path: bgp.Path{Source: bgp.Source{Peer: removed}}})
	state.MarkStale()
	state.PutReach(from(removed, "10.244.3.0/24")) // a new speaker says so
	state.expire(func(peer netip.Addr) bool { return peer == away })
	if _, there := state.Reaches[kept]; len(state.Reaches) != 2 || !there || len(state.Paths) != 1 || !state.Paths["kept"].Stale {
		t.Errorf("while the peer is away: %+v, %+v", state.Reaches, state.Paths)
	}
	state.expire(func(netip.Addr) bool { return false })
	if len(state.Reaches) != 1 || len(state.Paths) != 0 {
		t.Errorf("after the stale time: %+v, %+v", state.Reaches, state.Paths)
	}
}
