package dataplane

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// marked sends a datagram with a DSCP.
func marked(t *testing.T, from *netns.NS, to netip.AddrPort, dscp int) {
	t.Helper()
	from.Do(t, func() {
		conn, err := net.Dial("udp", to.String())
		must(t, err)
		defer conn.Close()
		raw, err := conn.(*net.UDPConn).SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, dscp<<2) }))
		must(t, err)
		_, err = conn.Write([]byte("x"))
		must(t, err)
	})
}

// A class keeps its packets in the network of their sender, whatever its policy to the same node ends
// at: the cluster and a tenant have pods of the same address there.
func TestTenantsWithClasses(t *testing.T) {
	const red, dscp = 7, 46
	for _, tt := range []struct {
		name string
		gold netip.Addr // where the class's policy ends
	}{{"in the cluster", sidOf(dt4SID, 2)}, {"in the tenant", tenantSID(2, red)}} {
		t.Run(tt.name, func(t *testing.T) {
			f := served(t, 2)
			one, two := f.nodes[0], f.nodes[1]
			redOne, redTwo := one.join(t, red, two), two.join(t, red, one)
			one.reach(t, two, srv6.HEncapsRed)
			var plainTwo *fabricPod
			two.Do(t, func() { plainTwo = two.newPodOf(t, 0, redTwo.ipv4.String(), "fd00:2::9") })
			table, err := class.Compile([]class.Class{{Name: "gold", Color: 100, Match: class.Match{DSCP: []uint16{dscp}}}}, nil)
			must(t, err)
			endpoint := addr("2001:db8:2::1")
			policies := map[string]srpolicy.Policy{}
			for name, end := range map[string]netip.Addr{"node-2/ipv4": sidOf(dt4SID, 2), "tenant-7:2": tenantSID(2, red), "gold": tt.gold} {
				policies[name] = srpolicy.Policy{Name: name, Color: 1, Endpoint: endpoint, Behavior: srv6.HEncapsRed, SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{end}}}}
			}
			gold := policies["gold"]
			gold.Color = 100
			policies["gold"] = gold
			ends := overlay.NewEnds([]overlay.Node{{
				Name: "node-2", Address: endpoint, Locator: prefix("fc00:2::/48"), IPv4: []netip.Addr{sidOf(dt4SID, 2)}, IPv6: []netip.Addr{sidOf(dt6SID, 2)},
			}})
			one.Do(t, func() {
				must(t, one.d.Policies.Put(gold))
				must(t, one.d.Classes.Set([]string{"gold"}))
				for _, e := range table.Steer([]srpolicy.Steering{
					{Prefix: prefix("10.9.2.0/24"), Tenant: red, Policy: "tenant-7:2"}, {Prefix: prefix("10.9.2.0/24"), Policy: "node-2/ipv4"},
				}, policies, func(string) bool { return true }, ends.Lost) {
					must(t, one.d.Steering.PutClassified(e))
				}
				for _, p := range []*fabricPod{redOne, one.pods[0]} {
					m := p.model()
					m.Classifier = table.Classifier(class.Source{Kind: class.SourcePod})
					must(t, one.d.Pods.Put(m))
				}
			})
			at := netip.AddrPortFrom(redTwo.ipv4, 4000)
			for _, row := range []struct{ from, to, not *fabricPod }{{redOne, redTwo, plainTwo}, {one.pods[0], plainTwo, redTwo}} {
				right, wrong := listen(t, row.to.NS, at), listen(t, row.not.NS, at)
				marked(t, row.from.NS, at, dscp)
				must(t, right.SetReadDeadline(time.Now().Add(5*time.Second)))
				if _, err := right.Read(make([]byte, 1)); err != nil {
					t.Errorf("from tenant %d: the pod of tenant %d gets nothing: %v; drops: %s", row.from.tenant, row.to.tenant, err, two.drops(t))
				}
				must(t, wrong.SetReadDeadline(time.Now().Add(time.Millisecond)))
				if _, err := wrong.Read(make([]byte, 1)); err == nil {
					t.Errorf("from tenant %d: the pod of tenant %d gets it", row.from.tenant, row.not.tenant)
				}
				right.Close()
				wrong.Close()
			}
		})
	}
}

// listen takes datagrams in a namespace.
func listen(t *testing.T, in *netns.NS, at netip.AddrPort) (conn *net.UDPConn) {
	t.Helper()
	in.Do(t, func() {
		var err error
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		must(t, err)
	})
	return conn
}
