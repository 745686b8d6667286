package doctor

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/feature"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// clusterNode is one with an uplink to a router, as the daemon leaves it.
func clusterNode(t *testing.T) *netns.NS {
	t.Helper()
	node, router := netns.New(t), netns.New(t)
	netns.Veth(t, node, "up0", router, "r0")
	router.Run(t, "ethtool", "-K", "r0", "gro", "off") // XDP's redirect would lose frames
	node.IP(t, "addr add 2001:db8::1/64 dev up0 nodad")
	node.IP(t, "route add default via 2001:db8::ff dev up0")
	node.IP(t, "link add culvert0 type veth peer name culvert1")
	node.IP(t, "link set culvert0 up")
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		node.Sysctl(t, name, "1")
	}
	for _, name := range []string{"all", "up0", "culvert0"} {
		node.Sysctl(t, "net.ipv4.conf."+name+".rp_filter", "0")
	}
	return node
}

func node(name, address, segment string) overlay.Node {
	return overlay.Node{Name: name, Address: netip.MustParseAddr(address), IPv6: []netip.Addr{netip.MustParseAddr(segment)}}
}

// What the data path cannot guard is said: IPVS, and SIDs of the kernel.
func TestPastTheGuards(t *testing.T) {
	ns := clusterNode(t)
	ns.IP(t, "link add kube-ipvs0 type veth peer name other")
	ns.IP(t, "-6 route add 2001:db8:51d::/64 encap seg6local action End.DT6 table 254 dev up0")
	checks := inside(t, ns, Options{Overlay: &Overlay{}})
	if c := find(t, checks, "kube-proxy"); c.Level != Fail || !strings.Contains(c.Detail, "kube-ipvs0") || !strings.Contains(c.Fix, "nftables") {
		t.Errorf("%+v", c)
	}
	if c := find(t, checks, "SIDs of the kernel"); c.Level != Warn || !strings.Contains(c.Detail, "pods reach 2001:db8:51d::/64 by Services") {
		t.Errorf("%+v", c)
	}
}

// A chain that drops what it forwards is found, and the commands have it accept pods' packets.
func TestForwardChains(t *testing.T) {
	for name, v := range map[string]struct {
		rules, accepted string // commands; accepted: others that the check has to understand
		place, fix      string
	}{
		"iptables": {"iptables -P FORWARD DROP", "iptables -I FORWARD -i culv+ -j ACCEPT; iptables -I FORWARD -o culv+ -j ACCEPT",
			"ip filter FORWARD", "iptables -I FORWARD -s 10.244.1.0/24 -j ACCEPT; iptables -I FORWARD -d 10.244.1.0/24 -j ACCEPT"},
		"ip6tables": {"ip6tables -P FORWARD DROP; ip6tables -A FORWARD -s fd00:10:244:1::/65 -j ACCEPT", "ip6tables -I FORWARD -m comment --comment pods -s fd00:10:244::/47 -j ACCEPT; ip6tables -I FORWARD -d fd00:10::/32 -j ACCEPT",
			"ip6 filter FORWARD", "ip6tables -I FORWARD -s fd00:10:244:1::/64 -j ACCEPT; ip6tables -I FORWARD -d fd00:10:244:1::/64 -j ACCEPT"},
		"Docker": {"iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -A FORWARD -i docker0 -j ACCEPT; iptables -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
			"iptables -A DOCKER-USER -s 10.244.0.0/16 -j ACCEPT; iptables -A DOCKER-USER -d 10.244.0.0/15 -j ACCEPT",
			"ip filter FORWARD", "iptables -I FORWARD -s 10.244.1.0/24 -j ACCEPT; iptables -I FORWARD -d 10.244.1.0/24 -j ACCEPT"},
		"nft": {"nft add table ip own; nft add chain ip own forward { type filter hook forward priority 0;policy drop;}; nft add rule ip own forward ip saddr { 10.9.0.0/16, 10.8.0.0/16 } drop",
			"nft add rule ip own forward ip saddr { 10.244.1.0/24, 10.250.1.0/24 } accept; nft add rule ip own forward ip daddr 10.244.1.0/24 counter accept",
			"ip own forward", "nft insert rule ip own forward ip saddr 10.244.1.0/24 accept; nft insert rule ip own forward ip daddr 10.244.1.0/24 accept"},
		"both families": {"nft add table inet own; nft add chain inet own forward { type filter hook forward priority 0;policy drop;}; nft add rule inet own forward meta nfproto ipv4 accept",
			"nft add rule inet own forward accept",
			"inet own forward", "nft insert rule inet own forward ip6 saddr fd00:10:244:1::/64 accept; nft insert rule inet own forward ip6 daddr fd00:10:244:1::/64 accept"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mend := range []string{v.fix, v.accepted} {
				ns := clusterNode(t)
				ns.IP(t, "route add unreachable 10.244.1.0/24 proto 84")
				ns.IP(t, "route add unreachable fd00:10:244:1::/64 proto 84")
				run := func(commands string) {
					for line := range strings.SplitSeq(commands, "; ") {
						ns.Run(t, strings.Fields(line)[0], strings.Fields(line)[1:]...)
					}
				}
				const fine = "netfilter: forwarded packets"
				find(t, inside(t, ns, Options{}), fine)
				run(v.rules)
				c := find(t, inside(t, ns, Options{}), "netfilter: "+v.place)
				if c.Level != Warn || !strings.Contains(c.Detail, "policy is drop") || c.Fix != v.fix {
					t.Errorf("%+v", c)
				}
				run(mend)
				if c := find(t, inside(t, ns, Options{}), fine); c.Level != OK || c.Fix != "" {
					t.Errorf("after %q: %+v", mend, c)
				}
			}
		})
	}
	ns := clusterNode(t)
	ns.Run(t, "iptables", "-P", "FORWARD", "DROP")
	if c := find(t, inside(t, ns, Options{}), "netfilter: ip filter FORWARD"); c.Level != Warn || !strings.HasPrefix(c.Fix, "iptables -I FORWARD -s PREFIX ") {
		t.Errorf("no member yet: %+v", c)
	}
	ns.IP(t, "route add unreachable fd00:10:244:1::/64 proto 84")
	find(t, inside(t, ns, Options{}), "netfilter: forwarded packets") // pods have no IPv4
}

// A node whose uplink is a veth is in order, and nobody asks it for XDP: neither
// where the configuration is known, nor where culvert0 alone tells what it is.
func TestHealthyMember(t *testing.T) {
	ns := clusterNode(t)
	for name, o := range map[string]Options{
		"found":  {},
		"named":  {Interfaces: []string{"up0"}},
		"member": {Overlay: &Overlay{Uplinks: []string{"up0"}, Nodes: []overlay.Node{node("node-2", "2001:db8::2", "fc00:0:2:4::")}}},
	} {
		o.Features, o.PodFeatures = feature.XDP, feature.Pods
		checks := inside(t, ns, o)
		for _, c := range checks {
			if c.Level != OK && c.Name != "BPF JIT" {
				t.Errorf("%s: %+v", name, c)
			}
			if strings.Contains(c.Name, "XDP") || strings.Contains(c.Name, "redirect target") || strings.HasPrefix(c.Name, "culvert1") {
				t.Errorf("%s: looked at %s", name, c.Name)
			}
		}
		if c := find(t, checks, "up0: MTU"); c.Detail != "1500: leaves 1460 bytes for pods' packets, and room for paths of 11 segments" {
			t.Errorf("%s: %+v", name, c)
		}
		find(t, checks, "kernel: pods: conntrack")
	}
	// What has XDP beside is looked at as ever.
	checks := inside(t, ns, Options{Interfaces: []string{"culvert1"}, Overlay: &Overlay{}})
	find(t, checks, "culvert1: native XDP")
}

func TestMemberFixesMend(t *testing.T) {
	ns := clusterNode(t)
	ns.IP(t, "link set up0 mtu 1300")
	ns.Sysctl(t, "net.ipv4.ip_forward", "0")
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "0")
	ns.Sysctl(t, "net.ipv4.conf.up0.rp_filter", "1")
	ns.Sysctl(t, "net.ipv4.conf.culvert0.rp_filter", "1")
	ns.Sysctl(t, "net.ipv6.conf.up0.accept_ra", "1")
	ns.IP(t, "-6 route add 2001:db8:9::/64 via 2001:db8::ff dev up0 proto ra")
	for name, level := range map[string]Level{
		"net.ipv4.ip_forward": Fail, "net.ipv6.conf.all.forwarding": Fail, "up0: MTU": Fail, "culvert0, up0: reverse path filter": Warn,
		"up0: routes of routers": Warn,
	} {
		c := find(t, inside(t, ns, Options{}), name)
		if c.Level != level || len(c.Command) == 0 {
			t.Errorf("%s: %+v, want %s and a command", name, c, level)
			continue
		}
		ns.Run(t, c.Command[0], c.Command[1:]...)
		if after := find(t, inside(t, ns, Options{}), strings.TrimPrefix(name, "culvert0, ")); after.Level != OK || after.Fix != "" {
			t.Errorf("%s: after %q: %+v", name, c.Fix, after)
		}
	}
	// Before the daemon's first start it is the daemon that does it.
	ns.Sysctl(t, "net.ipv4.ip_forward", "0")
	ns.IP(t, "link del culvert0")
	if c := find(t, inside(t, ns, Options{Overlay: &Overlay{}}), "net.ipv4.ip_forward"); c.Level != Warn || !strings.Contains(c.Detail, "the daemon turns it on") {
		t.Errorf("%+v", c)
	}
}

func TestUplinksThatAreNotThere(t *testing.T) {
	ns := netns.New(t)
	checks := inside(t, ns, Options{Overlay: &Overlay{}})
	for _, name := range []string{"uplink", "address in the underlay"} {
		if c := find(t, checks, name); c.Level != Fail || c.Fix == "" {
			t.Errorf("%+v", c)
		}
	}
	checks = inside(t, ns, Options{Overlay: &Overlay{Uplinks: []string{"eth9"}}})
	if c := find(t, checks, "eth9: present"); c.Level != Fail || c.Fix == "" {
		t.Errorf("%+v", c)
	}
	other := clusterNode(t)
	other.IP(t, "addr del 2001:db8::1/64 dev up0")
	checks = inside(t, other, Options{Overlay: &Overlay{Uplinks: []string{"up0"}}})
	if c := find(t, checks, "address in the underlay"); c.Level != Fail || c.Fix != "ip -6 address add ADDRESS/64 dev up0, or set overlay.address" {
		t.Errorf("%+v", c)
	}
	checks = inside(t, other, Options{Overlay: &Overlay{Uplinks: []string{"up0"}, Address: netip.MustParseAddr("2001:db8::7")}})
	if c := find(t, checks, "address in the underlay"); c.Level != Fail || !strings.Contains(c.Detail, "no interface has 2001:db8::7") {
		t.Errorf("%+v", c)
	}
}

// The underlay has to lead to the first segment of each way.
func TestRoutesToNodes(t *testing.T) {
	ns := clusterNode(t)
	ways := func(nodes ...overlay.Node) Check {
		return find(t, inside(t, ns, Options{Overlay: &Overlay{Nodes: nodes}}), "routes to nodes")
	}
	near, far, double := node("near", "2001:db8::2", "fc00:0:2:4::"), node("far", "2001:db8:3::1", "fc00:0:3:4::"), node("double", "2001:db8:4::1", "2001:db8:4::1")
	if c := ways(near, double); c.Level != OK {
		t.Errorf("%+v", c)
	}
	if c := ways(near, far); c.Level != Warn || !strings.Contains(c.Detail, "to far (fc00:0:3:4::)") || !strings.Contains(c.Fix, "double") {
		t.Errorf("by the default route: %+v", c)
	}
	ns.IP(t, "-6 route add fc00:0:3::/48 via 2001:db8::fe dev up0")
	if c := ways(near, far); c.Level != OK {
		t.Errorf("with a route: %+v", c)
	}
	ns.IP(t, "-6 route add unreachable fc00:0:3:4::/64")
	ns.IP(t, "-6 route add unreachable 2001:db8:4::/64")
	if c := ways(near, far, double); c.Level != Fail || c.Detail != "there are none to far (fc00:0:3:4::), double (2001:db8:4::1)" {
		t.Errorf("unreachable: %+v", c)
	}
	if got := some(strings.Fields("a b c d e")); got != "a, b, c and 2 more" {
		t.Errorf("%q", got)
	}
}

func TestRuntimesFolders(t *testing.T) {
	o := &Overlay{BinDir: t.TempDir(), ConfDir: filepath.Join(t.TempDir(), "net.d")}
	levels := func() (out []Level) {
		for _, c := range o.plugins() {
			if c.Level != OK && c.Fix == "" {
				t.Errorf("no fix: %+v", c)
			}
			out = append(out, c.Level)
		}
		return out
	}
	is := func(what string, want ...Level) {
		t.Helper()
		got := levels()
		for i, level := range want {
			if got[i] != level {
				t.Errorf("%s: %+v", what, o.plugins()[i])
			}
		}
	}
	is("nothing", Warn, Warn, Warn, OK)
	for _, name := range []string{"culvert-cni", "portmap", "bandwidth"} {
		if err := os.WriteFile(filepath.Join(o.BinDir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(o.ConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	is("installed", OK, OK, OK, OK)
	for _, name := range []string{"10-culvert.conflist", "87-podman.conflist", "05-notes.txt"} {
		if err := os.WriteFile(filepath.Join(o.ConfDir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is("configured", OK, OK, OK, OK)
	if err := os.WriteFile(filepath.Join(o.ConfDir, "05-other.conf"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	is("another network", OK, OK, OK, Warn)
	if err := os.Remove(filepath.Join(o.BinDir, "portmap")); err != nil {
		t.Fatal(err)
	}
	if c := o.chained(); c.Level != Warn || c.Detail != "portmap is not there: no hostPort" {
		t.Errorf("%+v", c)
	}
	o.ConfDir = "/proc/sys"
	if c := o.writable(); c.Level != Fail {
		t.Errorf("a folder that nobody can write to: %+v", c)
	}
}

// What no device here can show.
func TestUplinkDevices(t *testing.T) {
	physical := device{Link: netdev.Link{Name: "eth0", Kind: "device", Driver: "ixgbe", MTU: 1340}}
	if c := physical.gro(); c.Level != Warn || c.Fix != "ethtool -K eth0 gro on" {
		t.Errorf("%+v", c)
	}
	if c := physical.underlayMTU(); c.Level != OK || !strings.Contains(c.Detail, "no room for paths of more than one segment") {
		t.Errorf("%+v", c)
	}
	physical.GRO = true
	if c := physical.gro(); c.Level != OK {
		t.Errorf("%+v", c)
	}
}
