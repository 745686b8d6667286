package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// hostIn is a Host of a namespace.
func hostIn(t *testing.T, ns *netns.NS) (h *Host) {
	t.Helper()
	ns.Do(t, func() {
		var err error
		if h, err = NewHost(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(h.Close)
	return h
}

func addresses(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestEntry(t *testing.T) {
	ns := netns.New(t)
	h := hostIn(t, ns)
	for range 2 { // it may be repeated
		e, err := h.PutEntry(addresses("10.244.1.1", "fd00:1::1"), 1460)
		if err != nil || e.Ifindex == 0 || e.Exit == 0 || e.Ifindex == e.Exit || !slices.Equal(e.MAC[:], ns.Interface(t, EntryName).HardwareAddr) {
			t.Fatalf("%+v, %v", e, err)
		}
		checkMACs(t, ns)
		if got := ns.IP(t, "addr show culvert0"); !strings.Contains(got, "inet 10.244.1.1/32 ") || !strings.Contains(got, "inet6 fd00:1::1/128 ") ||
			!strings.Contains(got, "NOARP,UP,LOWER_UP") || !strings.Contains(got, "mtu 1460") || strings.Contains(got, "tentative") {
			t.Errorf("%s", got)
		}
		if got := ns.Run(t, "ethtool", "-k", EntryName); !strings.Contains(got, "tx-sctp-segmentation: off") || !strings.Contains(got, "tx-ipxip6-segmentation: on") {
			t.Errorf("%s", got)
		}
	}
	ns.IP(t, "link set culvert0 address 02:00:00:00:00:99")
	e, err := h.PutEntry(addresses("10.244.9.1"), 1400)
	if err != nil {
		t.Fatal(err)
	}
	if got := ns.IP(t, "addr show culvert0"); strings.Contains(got, "10.244.1.1") || strings.Contains(got, "fd00:1::1") || !strings.Contains(got, "10.244.9.1/32") || !strings.Contains(got, "mtu 1400") {
		t.Errorf("changed: %s", got)
	}
	if want := (MAC{2, 0, 0, 0, 0, 0x99}); e.MAC != want {
		t.Errorf("MAC %x, want that which somebody set by hand, %x", e.MAC, want)
	}
	r := HostRoute{Prefix: netip.MustParsePrefix("10.244.2.0/24"), Ifindex: e.Ifindex, Source: netip.MustParseAddr("10.244.9.1")}
	for range 2 {
		if err := h.PutRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	if got := ns.IP(t, "route get 10.244.2.7"); !strings.Contains(got, "dev culvert0 src 10.244.9.1") {
		t.Errorf("route %q", got)
	}
	if got := ns.IP(t, fmt.Sprintf("route show proto %d", OverlayProtocol)); !strings.HasPrefix(got, "10.244.2.0/24 dev culvert0") {
		t.Errorf("routes %q", got)
	}
	for range 2 {
		if err := h.DeleteRoute(r); err != nil {
			t.Error(err)
		}
		if err := h.DeleteEntry(); err != nil {
			t.Error(err)
		}
	}
	if got := ns.IP(t, "link"); strings.Contains(got, "culvert") {
		t.Errorf("still there: %s", got)
	}
}

// checkMACs: udev's MACAddressPolicy leaves alone what somebody set (NET_ADDR_SET, 3), and replaces
// what the kernel chose (NET_ADDR_RANDOM, 1).
func checkMACs(t *testing.T, ns *netns.NS) {
	t.Helper()
	const script = "mount -t sysfs sysfs /sys && cat /sys/class/net/culvert[01]/addr_assign_type"
	if got := ns.Run(t, "unshare", "--mount", "sh", "-c", script); got != "3\n3\n" {
		t.Errorf("how the MACs of culvert0 and culvert1 were assigned: %q", got)
	}
	here, there := ns.Interface(t, EntryName).HardwareAddr, ns.Interface(t, exitName).HardwareAddr
	if slices.Equal(here, there) || here[0]&3 != 2 || there[0]&3 != 2 {
		t.Errorf("%s and %s: want two that are unicast and locally administered", here, there)
	}
}

// What comes in by culvert0 and leaves by it is forwarded, and nobody is told of a
// shorter way. An entry of an earlier version, which was, becomes like that.
func TestEntrySendsNoRedirects(t *testing.T) {
	ns := netns.New(t)
	h := hostIn(t, ns)
	netns.Veth(t, ns, EntryName, ns, exitName)
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	until(t, "culvert0 has a link-local address", func() bool {
		return strings.Contains(ns.IP(t, "-6 addr show dev culvert0 scope link -tentative"), "fe80:")
	})
	if before := sendThrough(t, ns, h); before != "Icmp6OutRedirects 1" {
		t.Errorf("a veth as the kernel makes it: %s", before)
	}
	e, err := h.PutEntry(addresses("fd00:1::1"), 1460)
	if err != nil {
		t.Fatal(err)
	}
	if got := ns.IP(t, "addr show culvert0"); strings.Contains(got, "fe80:") || !strings.Contains(got, "fd00:1::1/128") {
		t.Errorf("%d: %s", e.Ifindex, got)
	}
	if after := sendThrough(t, ns, h); after != "Icmp6OutRedirects 1" {
		t.Errorf("of an entry: %s", after)
	}
}

// sendThrough sends a UDP packet into culvert0, which is routed back into it, and
// returns how many Redirects this namespace has sent once it has been forwarded.
func sendThrough(t *testing.T, ns *netns.NS, h *Host) (redirects string) {
	t.Helper()
	in, out := ns.Interface(t, EntryName), ns.Interface(t, exitName)
	for _, p := range []string{"fd00:2::/64", "fd00:3::/64"} {
		if err := h.PutRoute(HostRoute{Prefix: netip.MustParsePrefix(p), Ifindex: in.Index}); err != nil {
			t.Fatal(err)
		}
	}
	counter := func(name string) string {
		return strings.Join(strings.Fields(ns.Run(t, "sed", "-n", "/^"+name+"\\b/p", "/proc/net/snmp6")), " ")
	}
	forwarded := counter("Ip6OutForwDatagrams")
	frame := packet.Frame(packet.Ethernet{Dst: packet.Hex(in.HardwareAddr)},
		packet.IPv6{Src: netip.MustParseAddr("fd00:3::7"), Dst: netip.MustParseAddr("fd00:2::7")}, packet.UDP{Sport: 1, Dport: 2})
	ns.Do(t, func() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: out.Index, Halen: 6}); err != nil {
			t.Fatal(err)
		}
	})
	until(t, "it is forwarded", func() bool { return counter("Ip6OutForwDatagrams") != forwarded })
	return counter("Icmp6OutRedirects")
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

func TestRouteByAGateway(t *testing.T) {
	ns, other := netns.New(t), netns.New(t)
	up, _ := netns.Veth(t, ns, "up0", other, "up0")
	ns.Addr(t, "up0", "2001:db8::1/64")
	h := hostIn(t, ns)
	r := HostRoute{Prefix: netip.MustParsePrefix("fc00:0:2::/48"), Gateway: netip.MustParseAddr("2001:db8::2"), Ifindex: up.Index}
	if err := h.PutRoute(r); err != nil {
		t.Fatal(err)
	}
	if got := ns.IP(t, "-6 route show proto 84"); !strings.HasPrefix(got, "fc00:0:2::/48 via 2001:db8::2 dev up0") {
		t.Errorf("routes %q", got)
	}
	r.Gateway = netip.MustParseAddr("2001:db8::3") // another takes its place
	if err := h.PutRoute(r); err != nil {
		t.Fatal(err)
	}
	if got := ns.IP(t, "-6 route show proto 84"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "via 2001:db8::3") {
		t.Errorf("routes %q", got)
	}
}

func TestRemoveOverlay(t *testing.T) {
	ns, other := netns.New(t), netns.New(t)
	up, _ := netns.Veth(t, ns, "up0", other, "up0")
	ns.Addr(t, "up0", "2001:db8::1/64")
	h := hostIn(t, ns)
	e, err := h.PutEntry(addresses("10.244.1.1"), 1460)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []HostRoute{
		{Prefix: netip.MustParsePrefix("fc00:0:2::/48"), Gateway: netip.MustParseAddr("2001:db8::2"), Ifindex: up.Index},
		{Prefix: netip.MustParsePrefix("10.244.2.0/24"), Ifindex: e.Ifindex},
		{Prefix: netip.MustParsePrefix("10.244.1.0/24"), Unreachable: true},
		{Prefix: netip.MustParsePrefix("fd00:1::/64"), Unreachable: true},
	} {
		if err := h.PutRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	ns.Do(t, func() {
		if err := h.Masquerade([]netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := RemoveOverlay(); err != nil {
				t.Error(err)
			}
		}
	})
	if got := ns.IP(t, "link") + ns.IP(t, "route") + ns.IP(t, "-6 route") + rules(ns); strings.Contains(got, EntryName) || strings.Contains(got, "fc00:") || strings.Contains(got, "unreachable") || strings.Contains(got, "table") {
		t.Errorf("left behind: %s", got)
	}
}

func TestForwarding(t *testing.T) {
	ns, other := netns.New(t), netns.New(t)
	netns.Veth(t, ns, "up0", other, "up0")
	ns.Sysctl(t, "net.ipv4.conf.all.rp_filter", "1")
	ns.Sysctl(t, "net.ipv6.conf.up0.accept_ra", "1")
	h := hostIn(t, ns)
	ns.Do(t, func() {
		if err := h.Forwarding([]string{"up0"}); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
			"net/ipv6/conf/up0/accept_ra": "2", "net/ipv4/conf/up0/rp_filter": "2"} {
			if got := read(name); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
	})
}

// masquerading is a pod, its node and a server. The pod's packets reach the server, and answers
// come to the node only.
func masquerading(t *testing.T) (pod, node, server *netns.NS, reached func(address string) bool) {
	t.Helper()
	pod, node, server = netns.New(t), netns.New(t), netns.New(t)
	netns.Veth(t, pod, "eth0", node, "pod0")
	netns.Veth(t, node, "up0", server, "eth0")
	node.Sysctl(t, "net.ipv4.ip_forward", "1")
	node.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	for _, a := range []struct {
		ns           *netns.NS
		link, prefix string
	}{{pod, "eth0", "10.244.1.2/24"}, {node, "pod0", "10.244.1.1/24"}, {node, "up0", "192.0.2.1/24"}, {server, "eth0", "192.0.2.9/24"}, {server, "eth0", "10.244.9.9/24"},
		{pod, "eth0", "fd00:1::2/64"}, {node, "pod0", "fd00:1::1/64"}, {node, "up0", "2001:db8::1/64"}, {server, "eth0", "2001:db8::9/64"}, {server, "eth0", "fd00:9::9/64"}} {
		a.ns.Addr(t, a.link, a.prefix)
	}
	pod.IP(t, "route add default via 10.244.1.1")
	pod.IP(t, "-6 route add default via fd00:1::1")
	node.IP(t, "route add 10.244.9.0/24 dev up0")
	node.IP(t, "-6 route add fd00:9::/64 dev up0")
	return pod, node, server, func(address string) bool { return pod.Command("ping", "-c1", "-W1", address).Run() == nil }
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// The server sees pods as the node where they leave the cluster, and as they are
// within it.
func TestMasquerade(t *testing.T) {
	_, node, _, reached := masquerading(t)
	h := hostIn(t, node)
	if reached("192.0.2.9") || reached("2001:db8::9") {
		t.Fatal("the server has a way back to the pod without it")
	}
	// As many as need several messages, and one within another.
	cluster := prefixes("10.244.0.0/16", "10.244.1.0/24", "fd00::/16")
	for i := range 600 {
		cluster = append(cluster, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i / 100), byte(2 * (i % 100)), 0}), 24))
	}
	for range 2 {
		node.Do(t, func() {
			if err := h.Masquerade(prefixes("10.244.1.0/24", "fd00:1::/64"), cluster); err != nil {
				t.Fatal(err)
			}
		})
	}
	if !reached("192.0.2.9") || !reached("2001:db8::9") {
		t.Errorf("the server has no way back; %s", rules(node))
	}
	if reached("10.244.9.9") || reached("fd00:9::9") {
		t.Errorf("masqueraded within the cluster; %s", rules(node))
	}
	for range 2 {
		node.Do(t, func() {
			if err := h.Masquerade(nil, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	if reached("192.0.2.9") || reached("2001:db8::9") {
		t.Error("still masqueraded")
	}
}

// A Service leads to a host of another node: the underlay carries nodes' addresses. What it leads to
// pods is from the pod.
func TestMasqueradeOfServices(t *testing.T) {
	_, node, server, reached := masquerading(t)
	netns.Veth(t, node, EntryName, server, "far")
	for link, prefix := range map[string]string{EntryName: "10.244.8.1/24", "far": "10.244.8.9/24"} {
		map[string]*netns.NS{EntryName: node, "far": server}[link].Addr(t, link, prefix)
	}
	server.Addr(t, "eth0", "10.244.1.9/32")
	node.IP(t, "route add 10.244.1.9/32 dev up0")
	for _, s := range [][3]string{{"ip", "10.96.0.1", "192.0.2.9"}, {"ip6", "fd00:96::1", "2001:db8::9"}, {"ip", "10.96.0.2", "10.244.8.9"}, {"ip", "10.96.0.3", "10.244.1.9"}} {
		node.Run(t, "nft", fmt.Sprintf("add table %[1]s services; add chain %[1]s services pre { type nat hook prerouting priority -100; }; add rule %[1]s services pre %[1]s daddr %[2]s dnat to %[3]s",
			s[0], s[1], s[2]))
	}
	h := hostIn(t, node)
	var err error
	node.Do(t, func() {
		err = h.Masquerade(prefixes("10.244.1.0/24", "fd00:1::/64"), prefixes("10.244.0.0/16", "192.0.2.9/32", "2001:db8::9/128"))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		to, what string
		want     bool
	}{
		{"192.0.2.9", "another node, from the pod", false},
		{"2001:db8::9", "another node, from the pod", false},
		{"10.96.0.1", "another node by a Service, from the node", true},
		{"fd00:96::1", "another node by a Service, from the node", true},
		{"10.96.0.2", "what culvert0 leads to, by a Service, from the pod", false},
		{"10.96.0.3", "a pod of this node, by a Service, from the pod", false},
	} {
		if got := reached(tt.to); got != tt.want {
			t.Errorf("%s: %s has a way back %v, want %v; %s", tt.to, tt.what, got, tt.want, rules(node))
		}
	}
}

// Whoever removes the tables, or one of them, is noticed. Without pods of a family none has to be there.
func TestMasqueradeRemoved(t *testing.T) {
	ns := netns.New(t)
	h := hostIn(t, ns)
	for _, tt := range []struct {
		pods    []netip.Prefix
		command string
		want    bool
	}{
		{prefixes("10.244.1.0/24", "fd00:1::/64"), "list ruleset", true},
		{prefixes("10.244.1.0/24", "fd00:1::/64"), "flush ruleset", false},
		{prefixes("10.244.1.0/24", "fd00:1::/64"), "delete table ip6 culvert", false},
		{prefixes("10.244.1.0/24", "fd00:1::/64"), "flush table ip culvert", false},
		{prefixes("fd00:1::/64"), "list ruleset", true},
	} {
		var err1, err2 error
		var there bool
		ns.Do(t, func() { err1 = h.Masquerade(tt.pods, nil) })
		ns.Run(t, "nft", strings.Fields(tt.command)...)
		ns.Do(t, func() { there, err2 = h.Masquerades(tt.pods) })
		if err1 != nil || err2 != nil || there != tt.want {
			t.Errorf("%s after %s: %v, want %v; %v, %v", tt.pods, tt.command, there, tt.want, err1, err2)
		}
	}
}

// rules are for the reader of a failure.
func rules(ns *netns.NS) string {
	out, err := exec.Command("nsenter", "--net="+ns.Path, "nft", "list", "ruleset").CombinedOutput()
	return fmt.Sprint(string(out), err)
}

func TestPodMTU(t *testing.T) {
	node, inside := netns.New(t), netns.New(t)
	netns.Veth(t, node, "pod0", inside, "eth0")
	inside.Addr(t, "eth0", "10.244.1.2/32")
	inside.Addr(t, "eth0", "fd00:1::2/128")
	inside.IP(t, "route add 169.254.1.1 dev eth0")
	inside.IP(t, "route add default via 169.254.1.1 dev eth0")
	inside.IP(t, "-6 route add default via fe80::1 dev eth0")
	h := hostIn(t, node)
	for _, tt := range []struct {
		mtu  int
		want int // routes that say so
	}{{1400, 2}, {1300, 2}, {1500, 0}} {
		if err := h.SetPodMTU(inside.Path, "eth0", tt.mtu); err != nil {
			t.Fatal(err)
		}
		got := inside.IP(t, "route") + inside.IP(t, "-6 route")
		if n := strings.Count(got, fmt.Sprintf("mtu %d", tt.mtu)); n != tt.want || strings.Count(got, "mtu") != tt.want || strings.Count(got, "default via") != 2 {
			t.Errorf("MTU %d: %s", tt.mtu, got)
		}
	}
	for path, name := range map[string]string{inside.Path: "eth1", inside.Path + "-gone": "eth0"} {
		if err := h.SetPodMTU(path, name, 1400); err != nil {
			t.Errorf("%s in %s: %v", name, path, err)
		}
	}
}

// A rule that asks for connection tracking comes and goes in one.
func TestRuleOfConntrack(t *testing.T) {
	ns := netns.New(t)
	var err error
	if ns.Do(t, func() { err = ruleOfConntrack() }); err != nil {
		t.Fatal(err)
	}
	if left := ns.Run(t, "nft", "list", "ruleset"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A prefix that a router advertisement says is on a link takes no pods and no locators away.
// A route of an earlier version, which it took, goes by its own metric.
func TestRoutesBeforeAdvertisedOnes(t *testing.T) {
	ns := netns.New(t)
	h := hostIn(t, ns)
	netns.Veth(t, ns, "uplink", ns, "veth0")
	netns.Veth(t, ns, "other", ns, "veth1")
	p := netip.MustParsePrefix("fd00:2::/64")
	r := HostRoute{Prefix: p, Ifindex: ns.Interface(t, "other").Index}
	earlier := r
	earlier.Metric = 1024
	leaves := func(by string) {
		t.Helper()
		if got := ns.IP(t, "route get fd00:2::7"); !strings.Contains(got, "dev "+by+" ") {
			t.Errorf("%q, want it by %s", got, by)
		}
	}
	ns.IP(t, "route add fd00:2::/64 dev uplink proto kernel metric 256") // as the kernel does
	if err := h.PutRoute(earlier); err != nil {
		t.Fatal(err)
	}
	leaves("uplink")
	if err := h.PutRoute(r); err != nil {
		t.Fatal(err)
	}
	leaves("other")
	if err := h.DeleteRoute(HostRoute{Prefix: p, Metric: 1024}); err != nil {
		t.Fatal(err)
	}
	if got := ns.IP(t, fmt.Sprintf("-6 route show proto %d", OverlayProtocol)); strings.Count(got, "\n") != 1 || !strings.Contains(got, "metric 128") {
		t.Errorf("routes %q", got)
	}
	pod := Pod{Name: "other", Ifindex: r.Ifindex, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Addresses: addresses("fd00:2::7")}
	ns.IP(t, "route add fd00:2::7/128 dev uplink proto kernel metric 256")
	leaves("uplink")
	if err := h.PutPod(pod); err != nil {
		t.Fatal(err)
	}
	leaves("other")
	if err := h.ForgetPod(pod); err != nil {
		t.Fatal(err)
	}
	leaves("uplink")
}
