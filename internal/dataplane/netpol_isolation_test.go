package dataplane

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestIsolationOfConnections: when a pod becomes isolated it is known who began each of its
// connections. Its own go on, even if the other end sends first; those of others go on if
// the policy allows them.
func TestIsolationOfConnections(t *testing.T) {
	t.Run("direct", func(t *testing.T) { testIsolationOfConnections(t, newTenancy(t)) })
	t.Run("by the kernel", func(t *testing.T) {
		w := newTenancy(t)
		w.shape(t, w.client, w.server, w.far)
		for _, n := range w.nodes {
			n.Run(t, "nft", "add table inet x; add chain inet x x { type filter hook forward priority 0; }; add rule inet x x ct state new counter")
		}
		testIsolationOfConnections(t, w)
	})
}

func testIsolationOfConnections(t *testing.T, w *tenancy) {
	w.apply(t)
	listen := func(p *fabricPod, at netip.Addr) (l net.Listener) {
		var err error
		p.Do(t, func() { l, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()) })
		must(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	connect := func(from *fabricPod, l net.Listener) (c, s net.Conn) {
		var err error
		from.Do(t, func() { c, err = net.Dial("tcp", l.Addr().String()) })
		must(t, err)
		s, err = l.Accept()
		must(t, err)
		t.Cleanup(func() { c.Close(); s.Close() })
		return c, s
	}
	push := func(from, to net.Conn) {
		t.Helper()
		_, err := from.Write([]byte("news"))
		must(t, err)
		must(t, to.SetReadDeadline(time.Now().Add(20*time.Second)))
		if _, err := to.Read(make([]byte, 10)); err != nil {
			t.Errorf("%v; drops: %s", err, w.nodes[0].drops(t)+w.nodes[1].drops(t))
		}
	}
	for i, at := range w.far.addresses() {
		for _, peer := range []*fabricPod{w.far, w.server} {
			w.apply(t)
			_, s := connect(w.client, listen(peer, peer.addresses()[i]))
			c2, _ := connect(peer, listen(w.client, w.client.addresses()[i]))
			w.apply(t, `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress, Egress]}`)
			before := w.refusals(t)
			_, err := s.Write([]byte("news"))
			must(t, err)
			_, err = c2.Write([]byte("news"))
			must(t, err)
			for end := time.Now().Add(20 * time.Second); w.refusals(t) < before+2; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: connections go on", at)
				}
			}
			w.apply(t, `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress]}`)
			c, s := connect(w.client, listen(peer, peer.addresses()[i]))
			push(s, c)
			w.apply(t)
			c, s = connect(w.client, listen(peer, peer.addresses()[i]))
			c2, s2 := connect(peer, listen(w.client, w.client.addresses()[i]))
			w.apply(t, `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}`)
			push(s, c)
			push(s2, c2)
			push(c2, s2)
		}
	}
}
