package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"

	"github.com/culvert-net/culvert/internal/overlay"
)

// BenchmarkReflected is how much a node holds of a cluster of a thousand behind a
// route reflector: of each node two prefixes, and eight updates that name all the
// others.
func BenchmarkReflected(b *testing.B) {
	const nodes = 1000
	var ids []netip.Addr
	for i := range nodes {
		ids = append(ids, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	rr, err := Start(b.Context(), Config{ASN: 65001, RouterID: addr("10.0.0.9"), Listen: []netip.Addr{addr("127.94.77.9")}, Port: testPort,
		Peers: []Peer{{Address: addr("127.94.77.1"), ASN: 65001, Passive: true, Client: true}}, Cluster: &Cluster{Handler: newRoutes()}}, newObserved())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(rr.Stop)
	for i, id := range ids {
		a := announcer{routerID: id, reflected: true}
		n := overlay.Complete(overlay.Node{Name: fmt.Sprintf("node-%d", i), Address: addr(fmt.Sprintf("2001:db8::%x", i+10)),
			Locator:  prefix(fmt.Sprintf("fc00:0:%x::/48", i+10)),
			Prefixes: []netip.Prefix{prefix(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)), prefix(fmt.Sprintf("fd00:%x::/64", i+10))}}, false)
		adverts, err := a.adverts(n, nil, append([]netip.Addr{addr("10.0.0.1")}, ids...))
		if err != nil {
			b.Fatal(err)
		}
		for _, v := range adverts {
			if _, err := rr.server.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{v.path}}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := rr.Connect(); err != nil {
		b.Fatal(err)
	}
	before := heap()
	for b.Loop() {
		h, r := newObserved(), newRoutes()
		s, err := Start(b.Context(), Config{ASN: 65001, RouterID: addr("10.0.0.1"), Cluster: &Cluster{Handler: r}, Port: testPort,
			Peers: []Peer{{Address: addr("127.94.77.9"), Port: testPort, ASN: 65001, Local: addr("127.94.77.1"), RouteReflector: true}}}, h)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.SetNode(nodeOf("1")); err != nil {
			b.Fatal(err)
		}
		known := func() int { h.mu.Lock(); defer h.mu.Unlock(); return len(h.paths) }
		for end := time.Now().Add(2 * time.Minute); r.count() < 2*nodes || known() < 2*nodes; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				b.Fatalf("after two minutes %d prefixes and %d paths", r.count(), known())
			}
		}
		time.Sleep(time.Second) // the rest are for others
		b.ReportMetric(float64(heap()-before)/1e6, "MB")
		if err := s.server.StopBgp(context.Background(), &api.StopBgpRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}

// heap is what is alive.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
