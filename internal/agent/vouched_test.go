package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
)

// A node for which the cluster does not vouch gets nothing here, also after a restart without
// the API server, and when it is vouched for at last it comes behind those that were.
func TestRefusedByTheCluster(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d, k := byKube(t, dir, dp)
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	thief := nodeOf(3)
	thief.Address, thief.Refused = nodeOf(2).Address, "address 2001:db8::2 is that of node-2"
	partly := nodeOf(4)
	partly.Faults = []string{"prefix 8.8.8.0/24 is not in the podCIDRs of its Node"}
	for _, n := range []overlay.Node{thief, partly, nodeOf(2)} {
		k.PutNode(n)
	}
	policy := func(prefix string) string {
		dp.mu.Lock()
		defer dp.mu.Unlock()
		return dp.steering[prefix].Policy
	}
	judged := func() bool {
		nodes, err := d.Nodes()
		problems := map[string][]string{}
		for _, n := range nodes {
			problems[n.Name] = n.Problems
		}
		return err == nil && len(nodes) == 3 && slices.Equal(problems["node-3"], []string{thief.Refused}) && slices.Equal(problems["node-4"], partly.Faults) &&
			problems["node-2"] == nil && policy("10.244.2.0/24") == "node-2:ipv4" && policy("10.244.3.0/24") == "" && d.Gauges().Disputed == 2
	}
	d.says(t, "all are judged", judged)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d, k = byKube(t, dir, dp)
	d.says(t, "all are judged after a restart", judged)
	thief.Refused = ""
	k.PutNode(thief)
	d.says(t, "node-2 was there first", func() bool {
		nodes, err := d.Nodes()
		return err == nil && len(nodes) == 3 && nodes[2].Name == "node-3" && slices.Equal(nodes[2].Problems, []string{"address 2001:db8::2 is already that of node-2"})
	})
}

// A node says that others do not use what it says of itself.
func TestSaysThatOthersRefuseIt(t *testing.T) {
	d, k := byKube(t, t.TempDir(), newFake())
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("192.0.2.1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	d.says(t, "it has no IPv6 address in Kubernetes", func() bool {
		s, err := d.Status()
		return err == nil && slices.ContainsFunc(s.Overlay.Problems, func(p string) bool {
			return strings.HasPrefix(p, "other nodes refuse this node: address 2001:db8::1 is no InternalIP of its Node")
		})
	})
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.says(t, "it has one", func() bool {
		s, err := d.Status()
		return err == nil && !slices.ContainsFunc(s.Overlay.Problems, func(p string) bool { return strings.HasPrefix(p, "other nodes") })
	})
}

// In a cluster by BGP, too, a node sends from its former address until the others know the new one.
func TestMovesToAnotherAddressByBGP(t *testing.T) {
	o := config.Overlay{Mode: config.OverlayBGP, Node: "node-1", Address: addr("2001:db8::11"), Locator: prefix("fc00:0:1::/48"),
		PodPrefixes: []netip.Prefix{prefix("10.244.1.0/24")}}
	for advertised, want := range map[string]string{"2001:db8::1": "2001:db8::1", "2001:db8::11": "2001:db8::11", "": "2001:db8::11"} {
		k := observed.Self{}
		if advertised != "" {
			k.Advertised = addr(advertised)
		}
		if self := plan.SelfOf(&o, k, underlay(), netip.Addr{}); self.Source() != addr(want) || self.Node().Address != addr("2001:db8::11") {
			t.Errorf("the others know %q: it sends from %s, and says %s", advertised, self.Source(), self.Address)
		}
	}
}

// A node sends from its former address until the others know the new one.
func TestMovesToAnotherAddress(t *testing.T) {
	o := parse(t, strings.ReplaceAll(kubeFile, "/nowhere", "/x")).Overlay
	k := observed.Self{Self: kube.Self{PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::11")}}}
	for told, want := range map[string]string{"2001:db8::1": "2001:db8::1", "2001:db8::11": "2001:db8::11", "": "2001:db8::11"} {
		k.Told = netip.Addr{}
		if told != "" {
			k.Told = addr(told)
		}
		self := plan.SelfOf(&o, k, underlay(), netip.Addr{})
		if n := self.Node(); self.Source() != addr(want) || n.Address != addr("2001:db8::11") || n.Former.IsValid() != (told == "2001:db8::1") {
			t.Errorf("the others know %q: it sends from %s, and says %+v", told, self.Source(), n)
		}
	}
}
