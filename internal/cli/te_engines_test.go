package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/engine/monitor"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// follower is a headend that takes candidate paths by BGP, and sends 6 Mbit/s by each policy.
type follower struct {
	*apitest.Agent
	since time.Time

	mu      sync.Mutex
	paths   map[string]bgp.Path // by color, endpoint and distinguisher
	active  map[string]string   // by policy
	changes int                 // of what packets take
}

func nlri(a srpolicy.Advertised) string {
	return fmt.Sprint(a.Color, a.Endpoint, a.Distinguisher)
}

func (f *follower) Put(p bgp.Path) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[nlri(p.Advertised)] = p
}

func (f *follower) Withdraw(a srpolicy.Advertised) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.paths, nlri(a))
}

func (f *follower) Complete(netip.Addr)         {}
func (f *follower) Speaks(netip.Addr, []string) {}

func (f *follower) Policies() ([]agent.PolicyStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, err := f.Agent.Policies()
	for i := range all {
		p := &all[i]
		var paths []srpolicy.Candidate
		for _, v := range f.paths {
			if v.Color == p.Color && v.Endpoint == p.Endpoint {
				paths = append(paths, srpolicy.Candidate{CandidatePath: srpolicy.CandidatePath{Name: observed.PathName(v.Node, v.Advertised), Policy: p.Name, Preference: v.Preference, SegmentLists: v.SegmentLists},
					Origin: srpolicy.ByBGP, Node: v.Node, Discriminator: v.Distinguisher})
			}
		}
		p.Policy, p.Paths = srpolicy.Choose(p.Policy, paths, f.active[p.Name], func(srpolicy.SegmentList) error { return nil }, nil)
		p.Counter.Bytes = uint64(6e6 / 8 * time.Since(f.since).Seconds())
		if now := p.Paths[0].Path; now != f.active[p.Name] {
			f.active[p.Name] = now
			f.changes++
		}
	}
	return all, err
}

// by says whose paths the headend has, and how often packets have changed their path.
func (f *follower) by() (engines map[string]int, changes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	engines = map[string]int{}
	for _, p := range f.paths {
		engines[p.Node.String()]++
	}
	return engines, f.changes
}

// reflectPolicies starts a GoBGP that reflects SR policies between its clients.
func reflectPolicies(t *testing.T, address string, clients ...string) *server.BgpServer {
	t.Helper()
	s := server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), &slog.LevelVar{}))
	go s.Serve()
	t.Cleanup(s.Stop)
	if err := s.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{Asn: 65001, RouterId: "10.0.0.99", ListenPort: 1179, ListenAddresses: []string{address}}}); err != nil {
		t.Fatal(err)
	}
	for _, client := range clients {
		if err := s.AddPeer(t.Context(), &api.AddPeerRequest{Peer: &api.Peer{
			Conf: &api.PeerConf{NeighborAddress: client, PeerAsn: 65001}, Transport: &api.Transport{PassiveMode: true},
			RouteReflector: &api.RouteReflector{RouteReflectorClient: true, RouteReflectorClusterId: "10.0.0.99"},
			AfiSafis:       []*api.AfiSafi{{Config: &api.AfiSafiConfig{Enabled: true, Family: apiutil.ToApiFamily(packet.AFI_IP6, packet.SAFI_SRPOLICY)}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// most is how many speakers advertise one path to a reflector at most.
func most(t *testing.T, s *server.BgpServer) (n int) {
	t.Helper()
	err := s.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: packet.RF_SR_POLICY_IPv6}, func(_ packet.NLRI, paths []*apiutil.Path) { n = max(n, len(paths)) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// engineRun is an engine that may be ended.
type engineRun struct {
	listen string
	end    context.CancelFunc
	ended  chan result
}

// Of two engines that write by BGP one changes headends, and the other one stands by, whoever comes
// first, and when both come at once; packets do not change their path to and fro.
func TestTwoEnginesByBGP(t *testing.T) {
	t.Parallel()
	const reflector, headend = "127.95.7.99", "127.95.7.1"
	c, err := config.Parse([]byte(squarePolicies))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "a.sock")
	f := &follower{Agent: apitest.New(c), since: time.Now(), paths: map[string]bgp.Path{}, active: map[string]string{}}
	serve(t, f, socket)
	table := reflectPolicies(t, reflector, headend, "127.95.7.8", "127.95.7.9")
	s, err := bgp.Start(t.Context(), bgp.Config{ASN: 65001, RouterID: netip.MustParseAddr("10.0.0.1"), Log: slog.New(slog.DiscardHandler),
		Peers: []bgp.Peer{{Address: netip.MustParseAddr(reflector), Port: 1179, ASN: 65001, Local: netip.MustParseAddr(headend), RouteReflector: true, Families: []bgp.Family{bgp.SRPolicy}}}}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := s.Connect(); err != nil {
		t.Fatal(err)
	}
	start := func(n int) *engineRun {
		r := &engineRun{listen: freePort(t), ended: make(chan result, 1)}
		text := strings.NewReplacer("SOCKET\"", socket+"\", router_id: 10.0.0.1", "APPLY", "true", "LISTEN\"", r.listen+fmt.Sprintf(`", hold: 1s, write: bgp, bgp: {asn: 65001, router_id: 10.0.0.%d, restart: 10s, `+
			`peers: [{address: %s, port: 1179, asn: 65001, source: 127.95.7.%d, families: [sr-policy], route_reflector: true}]}`, n, reflector, n)).Replace(squareNetwork)
		file := filepath.Join(dir, fmt.Sprintf("engine%d.yaml", n))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, r.end = context.WithCancel(t.Context())
		go func() { r.ended <- command(ctx, "", "te", "run", file) }()
		return r
	}
	stop := func(r *engineRun) {
		r.end()
		if got := <-r.ended; got.code != cmdline.ExitOK {
			t.Errorf("an engine ends with %d: %s", got.code, got.stderr)
		}
	}
	only := func(name string) func() bool {
		return func() bool { engines, _ := f.by(); return len(engines) == 1 && engines[name] > 0 }
	}
	// stands waits until an engine has stood by for some rounds, while packets keep their paths.
	stands := func(r *engineRun, holder string) {
		t.Helper()
		changes, first := 0, uint64(0)
		waitForState(t, r.listen, func(s loop.State) bool {
			if s.Lease == nil || s.Lease.Held || s.Lease.Holder != holder {
				return false
			}
			if first == 0 {
				first = s.Counts.Rounds
				_, changes = f.by()
			}
			return s.Counts.Rounds >= first+4
		})
		if _, then := f.by(); then != changes || !only(holder)() {
			t.Errorf("packets changed their path %d times; %s has the lease", then-changes, holder)
		}
	}
	nine := start(9)
	wait(t, "the first engine changes lists", only("10.0.0.9"))
	eight := start(8) // its router ID is lower, and it comes later
	stands(eight, "10.0.0.9")
	if s, err := monitor.Get(t.Context(), eight.listen); err != nil || s.Counts.Changes > 0 {
		t.Errorf("the second engine: %+v, %v", s, err)
	}
	r := command(t.Context(), "", "te", "status", "--engine", eight.listen)
	for _, want := range []string{"changes nothing: this engine does not hold the lease", "10.0.0.9 holds lease bgp"} {
		if r.code != cmdline.ExitOK || !strings.Contains(r.stdout, want) {
			t.Errorf("status: exit %d: %s, want %q", r.code, r.stdout+r.stderr, want)
		}
	}
	stop(nine)
	wait(t, "the other one takes over", only("10.0.0.8"))
	nine = start(9)
	stands(nine, "10.0.0.8")
	stop(eight)
	stop(nine)
	wait(t, "no engine is there", func() bool { engines, _ := f.by(); return len(engines) == 0 })
	eight, nine = start(8), start(9) // at once: a round or two later one has won
	loser, name := eight, "10.0.0.9"
	wait(t, "one of both changes lists, and the other one advertises nothing", func() bool {
		if only("10.0.0.8")() {
			loser, name = nine, "10.0.0.8"
		} else {
			loser, name = eight, "10.0.0.9"
		}
		s, err := monitor.Get(t.Context(), loser.listen)
		return err == nil && s.Lease != nil && s.Lease.Holder == name && !s.Lease.Held && only(name)() && most(t, table) == 1
	})
	stands(loser, name)
	stop(eight)
	stop(nine)
}
