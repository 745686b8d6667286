package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/bpffs"
)

// A large cluster: how many others there are, each with two prefixes, two policies
// and two candidate paths that somebody advertises.
const manyNodes = 1000

// bigNode is number i of it.
func bigNode(i int) overlay.Node {
	return overlay.Complete(overlay.Node{Name: fmt.Sprintf("node-%d", i), Address: addr(fmt.Sprintf("2001:db8::%x", i)), Locator: prefix(fmt.Sprintf("fc00:0:%x::/48", i)),
		Prefixes: []netip.Prefix{prefix(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)), prefix(fmt.Sprintf("fd00:%x::/64", i))}}, false)
}

// wayBy is a candidate path to node i through node hop.
func wayBy(i, hop int, color uint32) srpolicy.Advertised {
	n := bigNode(i)
	end := n.IPv4
	if color == overlay.ColorIPv6 {
		end = n.IPv6
	}
	return srpolicy.Advertised{Color: color, Endpoint: n.Address, Distinguisher: 7, Preference: 200,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: append([]netip.Addr{bigNode(hop).Address}, end...)}}}
}

// bigCluster is a daemon with the data path's own tables.
type bigCluster struct {
	*daemon
	put chan srpolicy.Policy // that are in the tables now
}

func newBigCluster(b *testing.B, yaml string) *bigCluster {
	b.Helper()
	c := &bigCluster{prepare(b, b.TempDir(), yaml, newFake()), make(chan srpolicy.Policy, 16*manyNodes)}
	c.options.PinPath = bpffs.Dir(b, dataplane.Remove)
	c.open.dataPath = func(o dataplane.Options, state *bbolt.DB) (*dataPath, error) {
		real, err := openDataPath(o, state) // tables that are real, on links that are not
		if err != nil {
			return nil, err
		}
		nothing := func(int) error { return nil }
		none := apply.Table[int, int]{Put: nothing, Delete: nothing}
		real.Uplinks, real.Entry, real.Devices.Put = none, none, nothing
		put := real.Policies.Put
		real.Policies.Put = func(p srpolicy.Policy) error {
			err := put(p)
			select {
			case c.put <- p:
			default:
			}
			return err
		}
		return real, nil
	}
	c.start(b, c.network())
	return c
}

// network is what the kernel has once all are there.
func (c *bigCluster) network() *netdev.Snapshot {
	s := c.routed()
	s.Neighbours = nil
	for i := 2; i < manyNodes+2; i++ {
		s.Neighbours = append(s.Neighbours, netdev.Neighbour{Ifindex: 1, Addr: bigNode(i).Address,
			MAC: []byte{2, 0, 0, 1, byte(i >> 8), byte(i)}, State: netdev.NUDReachable})
	}
	return s
}

// settle waits until all nodes and paths are known, and the kernel has the routes.
func (c *bigCluster) settle(b *testing.B) {
	b.Helper()
	c.until(b, "all are known", func() bool {
		return len(c.core.writer.Tables.Steering) == 3*manyNodes && len(c.core.goal.Observed.Paths) == 2*manyNodes
	})
	s := c.network()
	c.watcher.options.OnChange(s)
	c.until(b, "the ways are known", func() bool { return c.core.links == s })
	for len(c.put) > 0 { // what has come to be so far is no answer to a change
		<-c.put
	}
}

func (c *bigCluster) until(b *testing.B, what string, holds func() bool) {
	b.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		c.core.mu.RLock()
		ok := holds()
		c.core.mu.RUnlock()
		if ok {
			return
		}
	}
	b.Fatalf("after a minute still not so: %s", what)
}

// measure changes one path after the other, and waits until the table holds it. A
// machine that does other things too makes latency longer, but not the time of the
// CPU.
func (c *bigCluster) measure(b *testing.B, change func(to, hop int)) {
	b.Helper()
	var took []time.Duration
	before := cpuTime(b)
	for b.Loop() {
		n := len(took)
		to, hop := 2+n%manyNodes, 2+(n*7+n/manyNodes+1)%manyNodes
		begun := time.Now()
		change(to, hop)
		c.await(b, bigNode(hop).Address)
		took = append(took, time.Since(begun))
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(len(took)), "cpu-ms/op")
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[(len(took)-1)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}

// await is for a policy whose first segment is that one.
func (c *bigCluster) await(b *testing.B, first netip.Addr) {
	b.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case p := <-c.put:
			if len(p.SegmentLists) > 0 && p.SegmentLists[0].Segments[0] == first {
				return
			}
		case <-limit:
			b.Fatalf("after a minute no policy goes by %s", first)
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// own makes the policy to a node one of the operator's, in place of the one before.
func (c *bigCluster) own(b *testing.B, to, hop int) {
	b.Helper()
	if to > 2 {
		if _, err := c.Delete(b.Context(), []desired.Ref{{Kind: desired.KindPolicy, Key: fmt.Sprintf("own-%d", to-1)}}); err != nil {
			b.Fatal(err)
		}
	}
	list := wayBy(to, hop, overlay.ColorIPv4).SegmentLists[0].Segments
	fragment, err := config.Decode(fmt.Appendf(nil, "policies: [{name: own-%d, color: 4, endpoint: '%s', preference: 300, source: '2001:db8::1', segment_lists: [{segments: ['%s', '%s']}]}]",
		to, bigNode(to).Address, list[0], list[1]))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Add(b.Context(), fragment); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPolicyChange is from what somebody says of one path to the table, with a
// thousand nodes and two paths to each of them known: through the API; by a BGP
// peer; by the Kubernetes API, as a resource and in the node's ConfigMap.
func BenchmarkPolicyChange(b *testing.B) {
	b.Run("api", func(b *testing.B) {
		c, _ := bigByKubernetes(b, false)
		c.measure(b, func(to, hop int) {
			way := wayBy(to, hop, overlay.ColorIPv4)
			list := fmt.Sprintf("[{segments: ['%s', '%s']}]", way.SegmentLists[0].Segments[0], way.SegmentLists[0].Segments[1])
			fragment, err := config.Decode([]byte("policies: [{name: chosen, color: 44, endpoint: '2001:db8::2', source: '2001:db8::1', segment_lists: " + list + "}]"))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Add(b.Context(), fragment); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("own", func(b *testing.B) {
		c, _ := bigByKubernetes(b, false)
		c.measure(b, func(to, hop int) { c.own(b, to, hop) })
	})
	b.Run("bgp", func(b *testing.B) {
		c, peer := bigByBGP(b)
		c.measure(b, func(to, hop int) {
			if err := peer.Advertise(wayBy(to, hop, overlay.ColorIPv4), nil); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("resource", func(b *testing.B) {
		c, api := bigByKubernetes(b, false)
		c.measure(b, func(to, hop int) { api.policy(to, hop, overlay.ColorIPv4) })
	})
	b.Run("configmap", func(b *testing.B) {
		c, api := bigByKubernetes(b, true)
		c.measure(b, func(to, hop int) {
			api.list(to, hop, overlay.ColorIPv4)
			api.listing()
		})
	})
}

// bigByBGP has nodes advertised as by a route reflector, and paths by a peer.
func bigByBGP(b *testing.B) (*bigCluster, *bgp.Speaker) {
	c := newBigCluster(b, strings.Replace(byBGPFile, "10.244.1.0/24", "10.0.1.0/24, 'fd00:1::/64'", 1))
	for i := 2; i < manyNodes+2; i++ {
		n := bigNode(i)
		for _, p := range n.Prefixes {
			c.sources.BGP().PutReach(overlay.Destination{Prefix: p}, []bgp.Route{{Reach: overlay.Reach{Prefix: p, Address: n.Address, From: addr("127.95.0.19")}, Best: true}})
		}
	}
	peer, err := bgp.Start(b.Context(), bgp.Config{ASN: 65001, RouterID: addr("10.0.0.9"), Log: slog.New(slog.DiscardHandler),
		Peers: []bgp.Peer{{Address: addr("127.95.0.15"), Port: 1180, ASN: 65001, Local: addr("127.95.0.19")}}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(peer.Stop)
	for i := 2; i < manyNodes+2; i++ {
		for _, color := range []uint32{overlay.ColorIPv4, overlay.ColorIPv6} {
			if err := peer.Advertise(wayBy(i, i, color), nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	c.settle(b)
	return c, peer
}

func bigByKubernetes(b *testing.B, listed bool) (*bigCluster, *fakeAPI) {
	api := newFakeAPI(b)
	for i := 2; i < manyNodes+2; i++ {
		api.node(i)
		for _, color := range []uint32{overlay.ColorIPv4, overlay.ColorIPv6} {
			if listed {
				api.list(i, i, color)
			} else {
				api.policy(i, i, color)
			}
		}
	}
	if listed {
		api.listing()
	}
	c := newBigCluster(b, strings.NewReplacer("/nowhere", api.kubeconfig(b), "locator_pool: 'fc00::/32'", "locator: 'fc00:0:1::/48'").Replace(kubeFile))
	c.settle(b)
	return c, api
}

// fakeAPI answers lists and watches, and takes whatever is written.
type fakeAPI struct {
	server *httptest.Server
	listed [2 * manyNodes]string // entries of the ConfigMap

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]map[string]any // by resource and name
	watchers map[string][]chan []byte             // by resource
}

func newFakeAPI(tb testing.TB) *fakeAPI {
	f := &fakeAPI{objects: map[string]map[string]map[string]any{}, watchers: map[string][]chan []byte{}}
	f.server = httptest.NewServer(http.HandlerFunc(f.serve))
	tb.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	f.put("nodes", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-1", "uid": "1"},
		"spec":   map[string]any{"podCIDRs": []any{"10.0.1.0/24", "fd00:1::/64"}},
		"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": "2001:db8::1"}}}})
	return f
}

func (f *fakeAPI) kubeconfig(tb testing.TB) string {
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, f.server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// put makes an object, or replaces it.
func (f *fakeAPI) put(resource string, o map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	meta := o["metadata"].(map[string]any)
	meta["resourceVersion"], meta["generation"] = fmt.Sprint(f.version), f.version
	if f.objects[resource] == nil {
		f.objects[resource] = map[string]map[string]any{}
	}
	name, event := meta["name"].(string), "ADDED"
	if f.objects[resource][name] != nil {
		event = "MODIFIED"
	}
	f.objects[resource][name] = o
	line := encode(map[string]any{"type": event, "object": o})
	for _, w := range f.watchers[resource] {
		w <- line
	}
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func (f *fakeAPI) node(i int) {
	n := bigNode(i)
	f.put("nodes", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
		"name": n.Name, "uid": fmt.Sprint(i), "annotations": map[string]any{kube.NodeAnnotation: string(encode(n))}},
		"spec":   map[string]any{"podCIDRs": n.Prefixes},
		"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": n.Address}}}})
}

// policy is the resource of a path.
func (f *fakeAPI) policy(to, hop int, color uint32) {
	way, traffic := wayBy(to, hop, color), map[uint32]string{overlay.ColorIPv4: "IPv4", overlay.ColorIPv6: "IPv6"}[color]
	f.put("srv6policies", map[string]any{"apiVersion": kube.Group + "/v1alpha1", "kind": "SRv6Policy",
		"metadata": map[string]any{"name": fmt.Sprintf("to-%d-%d", to, color), "uid": fmt.Sprintf("%d-%d", to, color)},
		"spec": map[string]any{"node": "node-1", "egressNode": way.Endpoint.String(), "traffic": traffic,
			"segmentLists": []any{map[string]any{"segments": way.SegmentLists[0].Segments}}}})
}

// list is an entry of the ConfigMap.
func (f *fakeAPI) list(to, hop int, color uint32) {
	way, at := wayBy(to, hop, color), to-2
	if color == overlay.ColorIPv6 {
		at += manyNodes
	}
	f.listed[at] = fmt.Sprintf("- {egress_node: node-%d, traffic: IPv%d, segment_list: ['%s', '%s']}\n", to, color, way.SegmentLists[0].Segments[0], way.SegmentLists[0].Segments[1])
}

// listing is the ConfigMap.
func (f *fakeAPI) listing() {
	text := "node: node-1\npolicies:\n" + strings.Join(f.listed[:], "")
	f.put("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "srv6-policies-node-1", "namespace": "kube-system"}, "data": map[string]any{"paths": text}})
}

func (f *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	resource := filepath.Base(r.URL.Path)
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method != http.MethodGet: // what nodes write is of no interest
		w.Write([]byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}`))
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`))
	case query.Get("watch") != "":
		f.watch(w, r, resource)
	default:
		f.answer(w, resource, query.Get("fieldSelector"))
	}
}

func (f *fakeAPI) answer(w http.ResponseWriter, resource, fields string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []any{}
	for name, o := range f.objects[resource] {
		if selected(fields, name) {
			items = append(items, o)
		}
	}
	w.Write(encode(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": fmt.Sprint(f.version)}, "items": items}))
}

// selected says whether a selector of fields, of a name or a node, has an object.
func selected(fields, name string) bool {
	want, byName := strings.CutPrefix(fields, "metadata.name=")
	return fields != "spec.node=" && (!byName || want == name)
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource string) {
	events := make(chan []byte, 16*manyNodes)
	if selected(r.URL.Query().Get("fieldSelector"), "srv6-policies-node-1") {
		f.mu.Lock()
		f.watchers[resource] = append(f.watchers[resource], events)
		f.mu.Unlock()
	}
	flusher := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case line := <-events:
			w.Write(line)
			flusher.Flush()
		}
	}
}
