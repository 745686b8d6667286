package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// tenantSID is the End.DT46 of a tenant on a node.
func tenantSID(node int, tenant uint8) netip.Addr {
	return addr(fmt.Sprintf("fc00:%d:0:1%02x::", node, tenant))
}

// join has a node know a tenant: a SID of its own, a pod at .2 of 10.9.node.0/24, and
// the way to the same prefix of other nodes.
func (n *fabricNode) join(t testing.TB, tenant uint8, others ...*fabricNode) *fabricPod {
	t.Helper()
	var p *fabricPod
	n.Do(t, func() {
		must(t, n.d.SIDs.Put(srv6.LocalSID{SID: netip.PrefixFrom(tenantSID(n.number, tenant), 64), Behavior: srv6.EndDT46, Tenant: tenant}))
		for _, other := range others {
			name := fmt.Sprintf("tenant-%d:%d", tenant, other.number)
			lists := []srpolicy.SegmentList{{Segments: []netip.Addr{tenantSID(other.number, tenant)}}}
			must(t, n.d.Policies.Put(srpolicy.Policy{Name: name, Behavior: srv6.HEncapsRed, SegmentLists: lists}))
			for _, form := range []string{"10.9.%d.0/24", "fd09:%d::/64"} {
				must(t, n.d.Steering.Put(srpolicy.Steering{Prefix: prefix(fmt.Sprintf(form, other.number)), Tenant: tenant, Policy: name}))
			}
		}
		p = n.newPodOf(t, tenant, fmt.Sprintf("10.9.%d.2", n.number), fmt.Sprintf("fd09:%d::2", n.number))
	})
	return p
}

// dial is how a connection from a namespace begins: "connected", "refused" by the host that has
// the address, or "nothing" where no packet comes back.
func dial(t testing.TB, from *netns.NS, to netip.AddrPort) (result string) {
	t.Helper()
	from.Do(t, func() {
		conn, err := net.DialTimeout("tcp", to.String(), 300*time.Millisecond)
		switch {
		case err == nil:
			result = "connected"
			conn.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			result = "refused"
		default:
			result = "nothing"
		}
	})
	return result
}

// Two tenants have the same addresses on two nodes. Each reaches its own pods, and neither
// the other's nor anybody else.
func TestTenants(t *testing.T) {
	f := served(t, 2)
	one, two := f.nodes[0], f.nodes[1]
	const red, blue, port = 7, 8, 4000
	redOne, redTwo := one.join(t, red, two), two.join(t, red, one)
	blueOne := one.join(t, blue, two)
	two.join(t, blue, one)
	for _, a := range []netip.Addr{redTwo.ipv4, redTwo.ipv6} {
		transfer(t, redOne.NS, redTwo.NS, a, 1<<20)
		redTwo.Do(t, func() {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			must(t, err)
			t.Cleanup(func() { l.Close() })
		})
	}
	for _, drop := range strings.Split(one.drops(t)+", "+two.drops(t), ", ") {
		if drop != "" && !strings.HasSuffix(drop, " tenant") { // of neighbour discovery
			t.Errorf("dropped: %s", drop)
		}
	}
	plainOne := one.pods[0]
	for _, row := range []struct {
		name string
		from *fabricPod
		to   netip.Addr
		want string
	}{
		{"its own, IPv4", redOne, redTwo.ipv4, "connected"},
		{"its own, IPv6", redOne, redTwo.ipv6, "connected"},
		{"the other tenant has another pod there", blueOne, redTwo.ipv4, "refused"},
		{"the other tenant has another pod there, IPv6", blueOne, redTwo.ipv6, "refused"},
		{"a pod of the cluster", redOne, two.pods[0].ipv4, "nothing"},
		{"a pod of the cluster, IPv6", redOne, one.pods[1].ipv6, "nothing"},
		{"the node", redOne, addr("10.244.1.1"), "nothing"},
		{"the node, IPv6", redOne, addr("2001:db8:1::1"), "nothing"},
		{"another tenant's SID", redOne, tenantSID(2, blue), "nothing"},
		{"an address that nobody has", redOne, addr("192.0.2.1"), "nothing"},
		{"from a pod of the cluster", plainOne, redTwo.ipv4, "nothing"},
		{"from a pod of the cluster to its own node's", plainOne, redOne.ipv6, "nothing"},
	} {
		if got := dial(t, row.from.NS, netip.AddrPortFrom(row.to, port)); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if one.count(t, abi.ReasonREASON_TENANT) == 0 || !strings.Contains(one.drops(t), "sr_domain_edge") {
		t.Errorf("node 1 dropped %s", one.drops(t))
	}
	// A tenant's SID is for its own pods only.
	one.Do(t, func() {
		must(t, one.d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.244.2.0/24"), Tenant: red, Policy: "tenant-7:2"}))
	})
	before := two.count(t, abi.ReasonREASON_TENANT)
	if got := dial(t, redOne.NS, netip.AddrPortFrom(two.pods[0].ipv4, port)); got != "nothing" || two.count(t, abi.ReasonREASON_TENANT) == before {
		t.Errorf("a pod of the cluster by a tenant's SID: %s; node 2 dropped %s", got, two.drops(t))
	}
}

// A tenant's pods outlive the daemon, and what the next one does not put is swept.
func TestTenantsAreSwept(t *testing.T) {
	path := pinPath(t)
	inNamespace(t, podPorts, func() {
		open := func() *DataPlane {
			d, err := Open(Options{PinPath: path, Limits: smallLimits})
			must(t, err)
			return d
		}
		d := open()
		must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
		red, plain := podAt(21, "10.9.1.2"), podAt(22, "10.9.1.2")
		red.Tenant = 7
		must(t, d.Pods.Put(red))
		must(t, d.Pods.Put(plain)) // the same address, of the node's own
		must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.9.2.0/24"), Tenant: 7, Policy: "one"}))
		must(t, d.Close())
		d = open()
		if pods := d.Pods.List(); len(pods) != 2 || pods[0].Tenant != 7 || pods[1].Tenant != 0 {
			t.Errorf("pods of the daemon before: %v", pods)
		}
		must(t, d.Sweep())
		if left := maps.Collect(d.targets.All()); len(left) > 0 || len(d.Pods.List()) > 0 {
			t.Errorf("left behind: %v, %v", left, d.Pods.List())
		}
		must(t, d.Close())
	})
}
