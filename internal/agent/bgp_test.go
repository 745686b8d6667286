package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
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

// injector advertises candidate paths to the daemon.
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
	if err := s.Advertise(a, nil); err != nil {
		t.Fatal(err)
	}
}

// holds waits for something of the tables.
func (d *daemon) holds(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		d.core.mu.RLock()
		d.dp.mu.Lock()
		ok := f()
		d.dp.mu.Unlock()
		d.core.mu.RUnlock()
		if ok {
			return
		}
	}
	t.Fatalf("after 30 s still not so: %s", what)
}

// says is holds for what the agent says: it locks what it needs by itself, and would wait for
// whoever waits for this.
func (d *daemon) says(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
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
		t.Fatal("a policy without a candidate path has a segment list")
	}
	peer := injector(t)

	advertise(t, peer, advertised(100, 200, "fc00:a::1"))
	d.holds(t, "the advertised path is preferred", func() bool { return d.firstOf("south") == "fc00:a::1" })
	advertise(t, peer, advertised(100, 100, "fc00:b::1"))
	d.holds(t, "with the same preference what is configured here is", func() bool { return d.firstOf("south") == "fc00:2:0:1::" })
	advertise(t, peer, advertised(200, 0, "fc00:b::1"))
	d.holds(t, "a policy has the advertised path", func() bool { return d.firstOf("by-peer") == "fc00:b::1" })

	unknown := advertised(300, 0, "fc00:a::1")
	unknown.PolicyName, unknown.BindingSID = "gold", addr("fc00:1:0:b::")
	advertise(t, peer, unknown)
	d.holds(t, "nobody configured this one: it has its binding SID", func() bool { return d.dp.policies["gold"].BindingSID == addr("fc00:1:0:b::") })
	if c := d.Running(); len(c.Policies) != 2 || len(c.CandidatePaths) != 0 {
		t.Errorf("advertised paths are in the configuration: %+v, %+v", c.Policies, c.CandidatePaths)
	}
	steer, err := config.Decode([]byte("steering: [{prefix: 10.99.0.0/16, policy: gold}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(context.Background(), steer); err == nil || !strings.Contains(err.Error(), "without what others say") {
		t.Errorf("something that goes with the peer: %v", err)
	}

	// One that cannot be: its binding SID is a SID of this node's.
	bad := advertised(400, 0, "fc00:a::1")
	bad.BindingSID = addr("fc00:1:0:1::")
	advertise(t, peer, bad)
	changed := advertised(200, 0, "fc00:a::1")
	advertise(t, peer, changed)
	d.holds(t, "the one behind it is used all the same", func() bool { return d.firstOf("by-peer") == "fc00:a::1" })
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

// A restart moves no traffic: what peers had advertised holds until they have advertised
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
	d.holds(t, "both are observed", func() bool { return d.firstOf("south") == "fc00:a::1" && d.firstOf("c500:fd11::1000") == "fc00:b::1" })
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if err := peer.Withdraw(other); err != nil { // while nobody listens
		t.Fatal(err)
	}
	dp.log()
	d = prepare(t, dir, yaml, dp).start(t, network)
	if h := d.sources.BGP(); h == nil || !slices.Equal(h.Config().Peers[0].Spoken, []string{"ipv4-srpolicy", "ipv6-srpolicy"}) {
		t.Errorf("it does not know what the peer speaks: %+v", h)
	}
	if d.firstOf("south") != "fc00:a::1" {
		t.Errorf("after the restart packets take %s first", d.firstOf("south"))
	}
	d.holds(t, "what was withdrawn meanwhile is gone", func() bool { _, there := d.dp.policies["c500:fd11::1000"]; return !there })
	if d.firstOf("south") != "fc00:a::1" {
		t.Error("what is still advertised went, too")
	}
	for _, call := range dp.log() {
		if strings.HasPrefix(call, "PutPolicy south") && !strings.Contains(call, "fc00:a::1") {
			t.Errorf("in between: %s", call)
		}
	}
}

// A new configuration of BGP moves no traffic either; what nobody advertises any more under
// it goes.
func TestToldBeforeAnotherConfiguration(t *testing.T) {
	network := towards("fc00:2::/32", "fc00:a::/32", "fc00:b::/32")
	yaml := strings.Replace(gateway, "  - name: south\n", "  - name: south\n    color: 100\n    endpoint: fd11::1000\n", 1) + speaking
	dp := newFake()
	d := prepare(t, t.TempDir(), yaml, dp).start(t, network)
	peer := injector(t)
	advertise(t, peer, advertised(100, 200, "fc00:a::1"))
	d.holds(t, "it is observed", func() bool { return d.firstOf("south") == "fc00:a::1" })
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
	d.holds(t, "it is advertised again", func() bool {
		path := d.core.goal.Observed.Paths[observed.PathName(addr("10.0.0.9"), advertised(100, 200, "fc00:a::1"))]
		return path.Color().Color == 100 && !path.Stale && d.sources.BGP() != nil && d.sources.BGP().Config().Restart == 29*time.Second
	})
	for _, call := range dp.log() {
		if strings.HasPrefix(call, "PutPolicy south") && !strings.Contains(call, "fc00:a::1") {
			t.Errorf("in between: %s", call)
		}
	}
	apply("restart_time: 29\n  peers: [{address: 127.95.0.9", "restart_time: 1\n  peers: [{address: 127.95.0.8")
	d.holds(t, "what another peer advertised is gone", func() bool { return d.firstOf("south") == "fc00:2:0:1::" })
}
