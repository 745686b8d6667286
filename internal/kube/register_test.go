package kube

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/culvert-net/culvert/internal/overlay"
)

// member makes a Node all of which the cluster vouches for, made at a second of an hour, that
// says something else of itself.
func (c *cluster) member(i, second string, change func(*overlay.Node)) {
	c.t.Helper()
	n := overlay.Complete(overlay.Node{Name: "node-" + i, Address: addr("2001:db8::" + i), Locator: prefix("fc00:0:" + i + "::/48"),
		Prefixes: []netip.Prefix{prefix("10.244." + i + ".0/24")}}, false)
	is := n
	if change != nil {
		change(&n)
	}
	c.node(n.Name, map[string]any{
		"metadata": map[string]any{"creationTimestamp": "2026-11-26T12:00:" + second + "Z", "annotations": map[string]any{NodeAnnotation: c.json(n)}},
		"spec":     map[string]any{"podCIDRs": []any{is.Prefixes[0].String()}},
		"status":   map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": is.Address.String()}}},
	})
}

// judges starts a watcher that accepts nothing without the cluster's word.
func (c *cluster) judges() (*Watcher, *observed) {
	w, h, _ := starts(c.t, c.connection(), Config{Node: me, Namespace: namespace, Trust: Trust{Pool: prefix(testPool)}}, Known{})
	return w, h
}

func (h *observed) refused(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[name].Refused
}

// A node that says of itself what is not its own is refused, and the others stay.
func TestThieves(t *testing.T) {
	c := newCluster(t)
	c.put(configMapResource, claimOf("node-2", "fc00:0:2::/48"))
	c.put(configMapResource, claimOf("node-3", "fc00:0:3::/48"))
	c.put(configMapResource, claimOf("node-6", "fc00:0:6::/48"))
	stale := claimOf("node-7", "fc00:0:7::/48")
	stale.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-7", UID: "former"}})
	c.put(configMapResource, stale)
	c.member("2", "30", nil)
	c.member("3", "10", func(n *overlay.Node) { // older than node-2
		n.Locator = prefix("fc00:0:2::/48")
		n.IPv4 = []netip.Addr{addr("fc00:0:2:4::")}
	})
	c.member("4", "10", nil)
	c.member("5", "10", func(n *overlay.Node) {
		n.Address, n.Locator, n.IPv4, n.BSID4 = addr("2001:db8::2"), netip.Prefix{}, nil, netip.Addr{}
	})
	c.member("6", "10", func(n *overlay.Node) { n.Prefixes = append(n.Prefixes, prefix("8.8.8.0/24"), prefix("10.244.2.0/24")) })
	c.member("7", "10", nil)
	c.put(configMapResource, claimOf("node-8", "2001:db8:7::/48")) // the prefix of servers
	c.member("8", "10", func(n *overlay.Node) {
		n.Locator, n.IPv4, n.BSID4 = prefix("2001:db8:7::/48"), []netip.Addr{addr("2001:db8:7:4::")}, netip.Addr{}
	})
	c.member("9", "10", func(n *overlay.Node) {
		n.Locator, n.IPv4, n.BSID4 = netip.Prefix{}, []netip.Addr{n.Address, n.IPv4[0]}, netip.Addr{}
		for i := range 10000 {
			n.Prefixes = append(n.Prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 9, byte(i)}), 32))
		}
	})
	_, h := c.judges()
	waits(t, "all are judged", func() bool { return h.has(func(h *observed) bool { return len(h.nodes) == 8 }) })
	for name, want := range map[string]string{
		"node-2": "", "node-3": "locator fc00:0:2::/48 is that of node-2", "node-4": "locator fc00:0:4::/48 is not claimed by the node",
		"node-5": "address 2001:db8::2 is that of node-2", "node-6": "", "node-7": "locator fc00:0:7::/48 is not claimed by the node",
		"node-8": "locator 2001:db8:7::/48 is not in overlay.locator_pool", "node-9": "",
	} {
		if got := h.refused(name); got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: refused %q, want %q", name, got, want)
		}
	}
	six := h.nodes["node-6"]
	if !slices.Equal(six.Prefixes, []netip.Prefix{prefix("10.244.6.0/24")}) || len(six.Faults) != 2 || !strings.Contains(six.Faults[1], "that of node-2") {
		t.Errorf("node-6: %+v", six)
	}

	if nine := h.nodes["node-9"]; len(nine.Prefixes) != overlay.MaxAnnounced || !slices.Equal(nine.Faults, []string{"9937 of its 10001 prefixes are not used: a node may have 64"}) {
		t.Errorf("node-9 has %d prefixes; %q", len(nine.Prefixes), nine.Faults)
	}

	// A claim that comes makes a node one of the cluster; one that goes does not lose it.
	c.put(configMapResource, claimOf("node-4", "fc00:0:4::/48"))
	waits(t, "node-4 has claimed its locator", func() bool { return h.refused("node-4") == "" })
	c.must(c.objects.Tracker().Delete(configMapResource, namespace, ClaimName(prefix("fc00:0:4::/48"))))
	c.must(c.objects.Tracker().Delete(configMapResource, namespace, ClaimName(prefix("fc00:0:2::/48"))))
	c.put(configMapResource, claimOf("node-3", "fc00:0:2::/48")) // the only one that has no claim takes it
	waits(t, "node-2 has lost its locator", func() bool { return strings.Contains(h.refused("node-2"), "is that of node-3") })
	if why := h.refused("node-4"); why != "" {
		t.Errorf("node-4: refused %q, and nobody else claims what it has", why)
	}
}

// A node that moves to another address is followed once the cluster vouches for it. What it had
// before stays meanwhile, and the address from which it still sends stays known.
func TestMovingNode(t *testing.T) {
	c := newCluster(t)
	c.put(configMapResource, claimOf("node-2", "fc00:0:2::/48"))
	c.member("2", "30", nil)
	_, h := c.judges()
	two := func() (n overlay.Node) {
		h.has(func(h *observed) bool { n = h.nodes["node-2"]; return true })
		return n
	}
	waits(t, "it is known", func() bool { return two().Address == addr("2001:db8::2") })
	moves := func(is, former string) {
		n := overlay.Complete(overlay.Node{Name: "node-2", Address: addr("2001:db8::22"), Locator: prefix("fc00:0:2::/48"), Prefixes: []netip.Prefix{prefix("10.244.2.0/24")}}, false)
		c.node("node-2", map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{NodeAnnotation: c.json(publication{n, addr(former)})}},
			"spec":     map[string]any{"podCIDRs": []any{"10.244.2.0/24"}},
			"status":   map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": is}}},
		})
	}
	moves("2001:db8::2", "2001:db8::2")
	waits(t, "its new address is not used", func() bool {
		n := two()
		return len(n.Faults) == 1 && n.Faults[0] == "what it says now is not used: address 2001:db8::22 is no InternalIP of its Node (overlay.accept.addresses)"
	})
	if n := two(); n.Address != addr("2001:db8::2") || n.Refused != "" || len(n.Prefixes) != 1 {
		t.Errorf("what it had is lost: %+v", n)
	}
	moves("2001:db8::22", "2001:db8::2")
	waits(t, "its new address is used", func() bool { return two().Address == addr("2001:db8::22") })
	if n := two(); n.Former != addr("2001:db8::2") || len(n.Faults) > 0 {
		t.Errorf("it still sends from 2001:db8::2: %+v", n)
	}
	moves("2001:db8::22", "2001:db8::99")
	waits(t, "an address that it never had", func() bool {
		return slices.Equal(two().Faults, []string{"former address 2001:db8::99 was not its address"})
	})
	if n := two(); n.Former.IsValid() || n.Refused != "" {
		t.Errorf("%+v", n)
	}
}

// A path to a node by its name waits until the node has an address that it may have.
func TestPathToARefusedNode(t *testing.T) {
	c := newCluster(t)
	c.listing("node: node-1\npolicies:\n- {egress_node: node-2, traffic: IPv4, segment_list: [\"fcff:4::1\"]}\n")
	c.member("2", "30", nil)
	w, h := c.judges()
	waits(t, "it is refused", func() bool { return h.refused("node-2") != "" })
	c.waitsListing("why", func(s listingStatus) bool {
		return len(s.Paths) == 1 && strings.HasPrefix(s.Paths[0].Reason, "node node-2 is not used: locator")
	})
	c.put(configMapResource, claimOf("node-2", "fc00:0:2::/48"))
	waits(t, "the path", func() bool { return w.Status().Paths == 1 && h.refused("node-2") == "" })
}

// What an earlier watcher reported stays until everything is known.
func TestJudgesNobodyEarly(t *testing.T) {
	c := newCluster(t)
	c.member("2", "30", nil)
	w, err := newWatcher(Config{Node: me, Namespace: namespace, Trust: Trust{Pool: prefix(testPool)}}, c.connection())
	if err != nil {
		t.Fatal(err)
	}
	known := overlay.Node{Name: "node-2"}
	w.reported.nodes = map[string]overlay.Node{"node-2": known}
	h := newObserved(Known{Nodes: []overlay.Node{known}})
	w.observeNodes(h)
	w.observeNode("node-2", h)
	if said := h.take(); said != "" {
		t.Errorf("nothing was received, and it reported %s", said)
	}
}
