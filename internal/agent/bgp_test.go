package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

const speaking = `
bgp:
  asn: 65001
  router_id: 10.0.0.5
  listen: [127.95.0.5]
  port: 1179
  restart_time: 30
  peers: [{address: 127.95.0.9, asn: 65001, passive: true, source: 127.95.0.5}]
`

// injector tells the daemon of candidate paths.
func injector(t *testing.T) *bgp.Speaker {
	t.Helper()
	s, err := bgp.Start(t.Context(), bgp.Config{ASN: 65001, RouterID: addr("10.0.0.9"), Log: slog.New(slog.DiscardHandler), Restart: 30 * time.Second,
		Peers: []bgp.Peer{{Address: addr("127.95.0.5"), Port: 1179, ASN: 65001, Local: addr("127.95.0.9")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func advertised(color uint32, preference uint32, first string) srpolicy.Advertised {
	return srpolicy.Advertised{Color: color, Endpoint: addr("fd11::1000"), Distinguisher: 7, Preference: preference,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{addr(first), addr("fc00:f::1")}}}}
}

func advertise(t *testing.T, s *bgp.Speaker, a srpolicy.Advertised) {
	t.Helper()
	if err := s.Advertise(a, bgp.Target{}); err != nil {
		t.Fatal(err)
	}
}

// holds waits for something of the tables.
func (d *daemon) holds(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		d.mu.RLock()
		d.dp.mu.Lock()
		ok := f()
		d.dp.mu.Unlock()
		d.mu.RUnlock()
		if ok {
			return
		}
	}
	t.Fatalf("after 30 s still not so: %s", what)
}

// firstOf is the first segment that a policy's packets take; none: there is no
// such policy, or no way.
func (d *daemon) firstOf(policy string) string {
	if lists := d.dp.policies[policy].SegmentLists; len(lists) > 0 {
		return lists[0].Segments[0].String()
	}
	return ""
}

func TestPoliciesByBGP(t *testing.T) {
	yaml := strings.Replace(gateway, "policies:\n  - name: south\n", "policies:\n  - {name: by-peer, color: 200, endpoint: 'fd11::1000'}\n  - name: south\n    color: 100\n    endpoint: fd11::1000\n", 1) + speaking
	dir, dp := t.TempDir(), newFake()
	network := towards("fc00:2::/32", "fc00:4::/32", "fc00:a::/32", "fc00:b::/32")
	d := prepare(t, dir, yaml, dp).start(t, network)
	if d.firstOf("by-peer") != "" {
		t.Fatal("a policy that nobody told a way of has one")
	}
	peer := injector(t)

	advertise(t, peer, advertised(100, 200, "fc00:a::1"))
	d.holds(t, "what was told is preferred", func() bool { return d.firstOf("south") == "fc00:a::1" })
	advertise(t, peer, advertised(100, 100, "fc00:b::1"))
	d.holds(t, "with the same preference what is configured here is", func() bool { return d.firstOf("south") == "fc00:2:0:1::" })
	advertise(t, peer, advertised(200, 0, "fc00:b::1"))
	d.holds(t, "a policy has the way that was told", func() bool { return d.firstOf("by-peer") == "fc00:b::1" })

	unknown := advertised(300, 0, "fc00:a::1")
	unknown.PolicyName, unknown.BindingSID = "gold", addr("fc00:1:0:b::")
	advertise(t, peer, unknown)
	d.holds(t, "nobody configured this one: it has its binding SID", func() bool { return d.dp.policies["gold"].BindingSID == addr("fc00:1:0:b::") })
	if c := d.Running(); len(c.Policies) != 2 || len(c.CandidatePaths) != 0 {
		t.Errorf("what was told is in the configuration: %+v, %+v", c.Policies, c.CandidatePaths)
	}
	steer, err := config.Decode([]byte("steering: [{prefix: 10.99.0.0/16, policy: gold}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(context.Background(), steer); err == nil || !strings.Contains(err.Error(), "without what others told") {
		t.Errorf("something that goes with the peer: %v", err)
	}

	// One that cannot be: its binding SID is a SID of this node's.
	bad := advertised(400, 0, "fc00:a::1")
	bad.BindingSID = addr("fc00:1:0:1::")
	advertise(t, peer, bad)
	changed := advertised(200, 0, "fc00:a::1")
	advertise(t, peer, changed)
	d.holds(t, "the one behind it is heard all the same", func() bool { return d.firstOf("by-peer") == "fc00:a::1" })
	if d.firstOf("c400:fd11::1000") != "" {
		t.Error("a binding SID was taken that is another's")
	}

	peers, err := d.BGPPeers()
	if err != nil || len(peers) != 1 || peers[0].State != "established" || peers[0].Received != 4 {
		t.Errorf("peers %+v, %v", peers, err)
	}
	if err := peer.Withdraw(advertised(200, 0, "fc00:a::1")); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the way is gone", func() bool { return d.firstOf("by-peer") == "" })
	if err := peer.Withdraw(unknown); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the policy is gone", func() bool { _, there := d.dp.policies["gold"]; return !there })
}

// A restart moves no traffic: what peers had told holds until they have told
// everything again.
func TestToldBeforeARestart(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	network := towards("fc00:2::/32", "fc00:a::/32", "fc00:b::/32")
	yaml := strings.Replace(gateway, "  - name: south\n", "  - name: south\n    color: 100\n    endpoint: fd11::1000\n", 1) + speaking
	d := prepare(t, dir, yaml, dp).start(t, network)
	peer := injector(t)
	advertise(t, peer, advertised(100, 200, "fc00:a::1"))
	other := advertised(500, 0, "fc00:b::1")
	advertise(t, peer, other)
	d.holds(t, "both are heard", func() bool { return d.firstOf("south") == "fc00:a::1" && d.firstOf("c500:fd11::1000") == "fc00:b::1" })
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if err := peer.Withdraw(other); err != nil { // while nobody listens
		t.Fatal(err)
	}
	dp.log()
	d = prepare(t, dir, yaml, dp).start(t, network)
	if h := d.bgpHeadend(); h == nil || !slices.Equal(h.config.Peers[0].Spoken, []string{"ipv4-srpolicy", "ipv6-srpolicy"}) {
		t.Errorf("it does not know what the peer speaks: %+v", h)
	}
	if d.firstOf("south") != "fc00:a::1" {
		t.Errorf("after the restart packets take %s first", d.firstOf("south"))
	}
	d.holds(t, "what was withdrawn meanwhile is gone", func() bool { _, there := d.dp.policies["c500:fd11::1000"]; return !there })
	if d.firstOf("south") != "fc00:a::1" {
		t.Error("what is still told went, too")
	}
	for _, call := range dp.log() {
		if strings.HasPrefix(call, "PutPolicy south") && !strings.Contains(call, "fc00:a::1") {
			t.Errorf("in between: %s", call)
		}
	}
}

// A new configuration of BGP moves no traffic either; what nobody tells any more under
// it goes.
func TestToldBeforeAnotherConfiguration(t *testing.T) {
	network := towards("fc00:2::/32", "fc00:a::/32", "fc00:b::/32")
	yaml := strings.Replace(gateway, "  - name: south\n", "  - name: south\n    color: 100\n    endpoint: fd11::1000\n", 1) + speaking
	dp := newFake()
	d := prepare(t, t.TempDir(), yaml, dp).start(t, network)
	peer := injector(t)
	advertise(t, peer, advertised(100, 200, "fc00:a::1"))
	d.holds(t, "it is heard", func() bool { return d.firstOf("south") == "fc00:a::1" })
	dp.log()
	apply := func(from, to string) {
		t.Helper()
		yaml = strings.Replace(yaml, from, to, 1)
		c, err := config.Decode([]byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Apply(t.Context(), c, false); err != nil {
			t.Fatal(err)
		}
	}
	apply("restart_time: 30", "restart_time: 29")
	d.holds(t, "it is told again", func() bool {
		path := d.desired.told.paths[learnedName(addr("10.0.0.9"), advertised(100, 200, "fc00:a::1"))]
		return path.Color == 100 && !path.restored && d.planes.headend != nil && d.planes.headend.config.Restart == 29*time.Second
	})
	for _, call := range dp.log() {
		if strings.HasPrefix(call, "PutPolicy south") && !strings.Contains(call, "fc00:a::1") {
			t.Errorf("in between: %s", call)
		}
	}
	apply("restart_time: 29\n  peers: [{address: 127.95.0.9", "restart_time: 1\n  peers: [{address: 127.95.0.8")
	d.holds(t, "what another peer told is gone", func() bool { return d.firstOf("south") == "fc00:2:0:1::" })
}

// A prefix that two peers had told of goes when both have told all, and neither has
// told it again.
func TestReachesBeforeARestart(t *testing.T) {
	a, b, p := addr("127.95.0.1"), addr("127.95.0.2"), netip.MustParsePrefix("10.244.9.0/24")
	by := func(peer netip.Addr, best bool) bgp.Route {
		r := bgp.Route{Source: bgp.Source{Peer: peer}, Best: best}
		r.Prefix, r.From = p, peer
		return r
	}
	state, said := told{}.clone(), newInbox()
	state.putReach(p, []bgp.Route{by(a, true), by(b, false)})
	state.restore()
	h := &headend{inbox: said}
	hear := func(peer netip.Addr) {
		h.Complete(peer)
		for _, e := range said.take() {
			e.apply(&state)
		}
	}
	hear(a)
	if len(state.best()) != 1 {
		t.Error("it went before the other peer had time to tell it")
	}
	hear(b)
	if len(state.reaches) != 0 {
		t.Errorf("it stays: %+v", state.reaches)
	}
}

func TestPassword(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	for content, want := range map[string]string{"secret\n": "", "": "holds 0 characters", strings.Repeat("x", 81): "holds 81"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := newHeadend(planeConfig{BGP: config.BGP{ASN: 1, Peers: []config.BGPPeer{{PasswordFile: path}}}}, told{}, newInbox(), slog.New(slog.DiscardHandler))
		if want == "" && (err != nil || h.config.Peers[0].Password != "secret") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %+v, %v, want %q", content, h, err, want)
		}
	}
}

// One configuration does for all nodes of a cluster.
func TestOneFileForAllNodes(t *testing.T) {
	c := parse(t, `
overlay: {mode: bgp, locator_pool: 'fc00::/32'}
bgp:
  asn: 65001
  listen: ['::']
  peers: [{address: '2001:db8::1', asn: 65001}, {address: 2001:db8::2, asn: 65001}, {address: 10.0.0.1, asn: 65001}]
`)
	d := &desired{process: process{BGP: c.BGP, Overlay: c.Overlay}}
	if b := bgpOf(d); b.RouterID.IsValid() {
		t.Errorf("a node that does not know itself speaks as %s", b.RouterID)
	}
	d.self = overlay.Self{Name: "node-1", Address: addr("2001:db8::1"), Addresses: []netip.Addr{addr("fd00::1"), addr("10.0.0.1")}}
	b := bgpOf(d)
	if b.RouterID != addr("10.0.0.1") || !slices.Equal(b.Listen, []netip.Addr{d.self.Address}) {
		t.Errorf("router ID %s, listens at %s: want what the Node has", b.RouterID, b.Listen)
	}
	if len(b.Peers) != 1 || b.Peers[0].Address != addr("2001:db8::2") {
		t.Errorf("peers are %+v, want the other node", b.Peers)
	}
	if got := c.BGP.Listen; !got[0].IsUnspecified() || len(c.BGP.Peers) != 3 {
		t.Errorf("the configuration itself has changed: %+v", c.BGP)
	}
	ids := map[netip.Addr]bool{}
	for _, a := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"} {
		ids[routerID(overlay.Self{Address: addr(a)})] = true
	}
	if len(ids) != 3 || ids[netip.IPv4Unspecified()] {
		t.Errorf("router IDs of nodes without IPv4: %v", ids)
	}
	c.BGP.RouterID = addr("192.0.2.7")
	d.process.BGP = c.BGP
	if b := bgpOf(d); b.RouterID != addr("192.0.2.7") {
		t.Errorf("router ID %s in place of the one that is set", b.RouterID)
	}
}
