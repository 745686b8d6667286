package agent

import (
	"log/slog"
	"strings"
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
