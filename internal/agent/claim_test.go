package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/smf"
)

// An SMF gets no session whose UE, or a network behind it, is where BGP peers, SMFs, gNBs or this
// node are: Cause 73. What becomes this node's network later is closed from then on.
func TestSMFClaimsOthers(t *testing.T) {
	file := strings.NewReplacer("roles: [n3, n4], peers: any}", `roles: [n3, n4], peers: [10.1.0.0/24]}`, "slices:",
		`bgp: {asn: 65001, router_id: 10.0.0.6, listen: [127.98.0.6], port: 1179, peers: [{address: 203.0.113.9, asn: 65000, passive: true, families: [unicast]}]}
locators: [{name: main, prefix: "fc00:1::/48"}]
tunnels: [{name: gnb, remote: 10.9.0.1, remote_teid: 1}]
slices:`).Replace(withN9(byGTPU))
	d := prepareUPF(t, t.TempDir(), file, newFake()).start(t, links("eth0", "eth1"))
	c := dial(t)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	teid := uint32(0x1000)
	establish := func(ue string, routes ...netip.Prefix) error {
		t.Helper()
		teid++
		g, err := c.Add(smf.Spec{Name: fmt.Sprint("ue", teid), UE4: prefix(ue), FramedRoutes: routes, NetworkInstance: "internet", DNN: "internet",
			SNSSAI: slice.SNSSAI{SST: 1}, QFI: 9, Access: &smf.Tunnel{Address: addr("10.1.0.20"), TEID: teid}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := g.Establish(t.Context(), smf.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Err()
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "(cause 73)") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, p := range map[string]string{
		"every address": "0.0.0.0/0", "a BGP peer": "203.0.113.9/32", "what a BGP peer is in": "203.0.113.0/24", "a part of the gNBs": "10.1.0.64/26", "an SMF": "127.92.0.9/32",
		"the N4 address": "192.0.2.1/32", "a tunnel's end": "10.9.0.1/32", "a part of a locator": "fc00:1:0:1::/64",
	} {
		refused(what, establish("10.45.0.7/24", prefix(p)))
	}
	refused("a UE that is a gNB", establish("10.1.0.9/32"))
	if list, total, err := d.Sessions(SessionFilter{}); err != nil || total != 0 {
		t.Errorf("%v, %d: %v", list, total, err)
	}
	mine := prefix("198.51.100.0/28")
	if err := establish("10.45.0.8/24", mine); err != nil {
		t.Errorf("a network of nobody: %v", err)
	}
	joined := links("eth0", "eth1")
	joined.Addresses = append(joined.Addresses, netdev.Address{Ifindex: 2, Prefix: prefix("198.51.100.65/26")})
	d.watcher.options.OnChange(joined)
	d.says(t, "it knows its new network", func() bool {
		d.core.mu.RLock()
		defer d.core.mu.RUnlock()
		return d.core.links == joined
	})
	refused("a part of the new network", establish("10.45.0.9/24", prefix("198.51.100.64/28")))
}
