package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
)

const announcingFile = `
  announce: [{network_instance: internet, pools: true, framed_routes: true, hold_time: 1, hold_down: 1, next_hops: [192.0.2.3]}]
bgp:
  asn: 65001
  router_id: 10.0.0.6
  listen: [127.96.0.6]
  port: 1179
  peers: [{address: 127.96.0.9, asn: 65001, passive: true, source: 127.96.0.6, families: [unicast]}]
`

// nowhere takes no routes.
type nowhere struct{}

func (nowhere) PutReach(overlay.Destination, []bgp.Route) {}
func (nowhere) WithdrawReach(overlay.Destination)         {}

// neighbour is a router that counts what it is told.
func neighbour(t *testing.T) (received func() uint64) {
	t.Helper()
	s, err := bgp.Start(t.Context(), bgp.Config{ASN: 65001, RouterID: addr("10.0.0.9"), Log: slog.New(slog.DiscardHandler), Origin: &bgp.Origin{Handler: nowhere{}},
		Peers: []bgp.Peer{{Address: addr("127.96.0.6"), Port: 1179, ASN: 65001, Local: addr("127.96.0.9"), Families: []bgp.Family{bgp.Unicast}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := s.Originate(nil, nil); err != nil {
		t.Fatal(err)
	}
	return func() uint64 {
		peers, err := s.Peers(t.Context())
		if err != nil || len(peers) != 1 {
			t.Fatal(peers, err)
		}
		return peers[0].Received
	}
}

// provider is a router of VPNs that keeps by which SID it reaches what.
type provider struct {
	mu   sync.Mutex
	sids map[string]string
}

func (p *provider) PutReach(to overlay.Destination, routes []bgp.Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sids[to.String()] = fmt.Sprint(routes[0].Segments, " ", routes[0].Distinguisher)
}

func (p *provider) WithdrawReach(to overlay.Destination) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sids, to.String())
}

// inVPN is a UPF whose slice a has a VPN, and a peer at the address 9 of a network.
func inVPN(t *testing.T, dir, network, more string) *daemon {
	t.Helper()
	vpn := "\n    " + `vpn: {sid: "fc00:1:0:46::/64", route_distinguisher: "65001:7", export_targets: ["65001:7"]` + more + "}"
	file := strings.NewReplacer("127.96.0.", network, "families: [unicast]", "families: [l3vpn]", "pools: true", "vpn: a, pools: true",
		"192.0.2.3", `"fc00:1::1"`, "hold_time: 1", "withdraw_on: [n3], hold_time: 1").
		Replace(strings.Replace(withN9(byGTPU+vpn), "\nslices:", announcingFile+"slices:", 1))
	d := prepareUserPlane(t, dir, byGTPU, newFake())
	d.options.Config = parse(t, file)
	return d.start(t, links("eth0", "eth1"))
}

// provide starts that peer. It advertises routes in its VPNs 7 and 8.
func provide(t *testing.T, network string, routes ...bgp.Originated) (*provider, *bgp.Speaker) {
	t.Helper()
	hears := &provider{sids: map[string]string{}}
	s, err := bgp.Start(t.Context(), bgp.Config{ASN: 65001, RouterID: addr("10.0.0.9"), Log: slog.New(slog.DiscardHandler), Restart: time.Minute,
		Origin: &bgp.Origin{Handler: hears, VPNs: []bgp.VPN{
			{Tenant: 7, Distinguisher: "65001:70", Import: []string{"65001:7"}, Export: []string{"65001:70"}},
			{Tenant: 8, Distinguisher: "65001:80", Import: []string{"65001:8"}, Export: []string{"65001:80"}},
		}},
		Peers: []bgp.Peer{{Address: addr(network + "6"), Port: 1179, ASN: 65001, Local: addr(network + "9"), Families: []bgp.Family{bgp.L3VPN}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := s.Originate(nil, routes); err != nil {
		t.Fatal(err)
	}
	return hears, s
}

// A slice takes the routes of its VPN, and no others. A new daemon has them before the peer is
// back, and drops what the peer does not send again.
func TestRoutesOfVPN(t *testing.T) {
	const network, imports = "127.98.0.", `, import_targets: ["65001:70"]`
	route := func(p string, vpn uint8, sid string) bgp.Originated {
		return bgp.Originated{Prefix: prefix(p), NextHop: addr("fc00:2::1"), Tenant: vpn, SID: addr(sid)}
	}
	four, six := route("198.51.100.0/24", 7, "fc00:2:0:46::"), route("2001:db8:d::/64", 7, "fc00:2:0:46::")
	dir := t.TempDir()
	d := inVPN(t, dir, network, imports)
	want := func(what string, d *daemon, prefixes ...string) {
		t.Helper()
		var got []string
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			list, err := d.Steerings() // an error while it starts
			got = nil
			for _, s := range list {
				if s.VPN == "a" && s.Policy == "vpn:fc00:2:0:46::" {
					got = append(got, s.Prefix.String())
				}
			}
			slices.Sort(got)
			counted, err2 := d.Slices()
			if err == nil && err2 == nil && slices.Equal(got, prefixes) && counted[0].Imported == len(prefixes) {
				return
			}
		}
		t.Fatalf("%s: the slice has the routes %v, want %v", what, got, prefixes)
	}
	_, s := provide(t, network, four, six, route("192.0.2.0/24", 8, "fc00:2:0:48::"))
	want("the routes arrive", d, "198.51.100.0/24", "2001:db8:d::/64")
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	d = inVPN(t, dir, network, imports)
	want("a new daemon has them", d, "198.51.100.0/24", "2001:db8:d::/64")
	provide(t, network, six)
	want("one is not sent again", d, "2001:db8:d::/64")
}

// A slice's pool is in its VPN, with the VPN's SID, while N3 is up; a router of another VPN
// does not hear of it.
func TestAnnouncementsInVPN(t *testing.T) {
	d := inVPN(t, t.TempDir(), "127.97.0.", "")
	hears, _ := provide(t, "127.97.0.")
	hear := func(what string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			hears.mu.Lock()
			got = maps.Clone(hears.sids)
			hears.mu.Unlock()
			if maps.Equal(got, want) {
				return
			}
		}
		t.Fatalf("%s: the router has %v, want %v", what, got, want)
	}
	all := map[string]string{"10.45.0.0/24@tenant/7": "[fc00:1:0:46::] 65001:7"}
	hear("N3 is up", all)
	if list, err := d.Announcements(); err != nil || len(list) != 1 || list[0].VPN != "a" || list[0].State != Announced || list[0].NextHop != addr("fc00:1::1") {
		t.Errorf("shown are %+v, %v", list, err)
	}
	sids, err := d.SIDs()
	if err != nil || len(sids) != 1 || sids[0].SID != prefix("fc00:1:0:46::/64") || sids[0].Slice != "a" {
		t.Errorf("SIDs: %+v, %v", sids, err)
	}
	down := links("eth0", "eth1")
	down.Links[0].Carrier = false
	d.watcher.options.OnChange(down)
	hear("N3 is down", map[string]string{})
	d.watcher.options.OnChange(links("eth0", "eth1"))
	hear("N3 is back", all)
}

// A UPF announces its pool once an SMF is associated; a port of N3 that goes down, and an SMF
// that leaves, withdraw it, and what is shown says why.
func TestAnnouncements(t *testing.T) {
	file := strings.Replace(withN9(byGTPU), "\nslices:", announcingFile+"slices:", 1)
	file = strings.Replace(file, "{name: eth0, roles: [n3, n4], peers: any}", "{name: eth0, roles: [n3], peers: any}, {name: eth2, roles: [n4]}", 1)
	d := prepareUserPlane(t, t.TempDir(), byGTPU, newFake())
	d.options.Config = parse(t, file)
	d.start(t, links("eth0", "eth1", "eth2"))
	received := neighbour(t)
	is := func(what string, count uint64, state, why string) {
		t.Helper()
		var list []AnnouncementStatus
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var err error
			if list, err = d.Announcements(); err != nil {
				t.Fatal(err)
			}
			if received() == count && len(list) == 1 && list[0].State == state && strings.Contains(list[0].Reason, why) {
				if s := list[0]; s.Prefix != prefix("10.45.0.0/24") || s.Since.IsZero() || s.NextHop != addr("192.0.2.3") || s.NetworkInstance != "internet" {
					t.Errorf("%s: %+v", what, s)
				}
				return
			}
		}
		t.Fatalf("%s: the router has %d prefixes, shown are %+v", what, received(), list)
	}
	is("nobody is associated", 0, Withdrawn, "no SMF is associated")
	c := dial(t)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("associated", 1, Announced, "")
	down := links("eth0", "eth1", "eth2")
	down.Links[0].Carrier = false
	d.watcher.options.OnChange(down)
	is("N3 is down", 0, Withdrawn, "n3 is down: eth0")
	d.watcher.options.OnChange(links("eth0", "eth1", "eth2"))
	is("N3 is back", 1, Announced, "")
	d.watcher.options.OnChange(&netdev.Snapshot{Links: links("eth0", "eth1").Links})
	is("N4's port is gone", 0, Withdrawn, "n4 is down: eth2")
	if n := d.Gauges().UPF.Withdrawals["internet"]; n != 2 {
		t.Errorf("%d withdrawals are counted", n)
	}
}
