package cli

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func TestTopologyByBGPErrors(t *testing.T) {
	t.Parallel()
	alone := filepath.Join(t.TempDir(), "alone.yaml")
	text := "engine: {bgp: {asn: 65001, router_id: 10.0.0.9, wait: 1s, peers: [{address: 127.95.9.1, port: 1179, asn: 65001, source: 127.95.9.9}]}}"
	if err := os.WriteFile(alone, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte(strings.Replace(text, "port: 1179", "password_file: /none", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"te show --topology bgp-ls " + network8: "engine.bgp: is missing",
		"te show --topology bgp-ls " + alone:    "no BGP peer advertises a topology: the session with 127.95.9.1 is",
		"te plan --topology bgp-ls " + secret:   "engine.bgp.peers[0].password_file",
		"te run --topology bgp-ls " + network8:  "no node has an address",
	} {
		if r := command(t.Context(), "", strings.Fields(args)...); r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s, want %q", args, r.code, r.stderr, want)
		}
	}
}

// received is a bgp.Handler that keeps candidate paths.
type received struct {
	mu        sync.Mutex
	paths     []bgp.Path
	withdrawn []srpolicy.Advertised
}

func (r *received) Put(p bgp.Path) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths = append(r.paths, p)
}

func (r *received) Withdraw(a srpolicy.Advertised) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdrawn = append(r.withdrawn, a)
}

func (r *received) Complete(netip.Addr)         {}
func (r *received) Speaks(netip.Addr, []string) {}

func (r *received) list() []bgp.Path {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.paths)
}

func (r *received) gone() []srpolicy.Advertised {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.withdrawn)
}

// listenAt is a headend that receives candidate paths from the engine.
func listenAt(t *testing.T, last int) *received {
	t.Helper()
	r := &received{}
	s, err := bgp.Start(t.Context(), bgp.Config{
		ASN: 65001, RouterID: netip.AddrFrom4([4]byte{10, 0, 0, byte(last)}), Listen: []netip.Addr{netip.AddrFrom4([4]byte{127, 95, 8, byte(last)})}, Port: 1179,
		Peers: []bgp.Peer{{Address: netip.MustParseAddr("127.95.8.9"), ASN: 65001, Passive: true, Families: []bgp.Family{bgp.SRPolicy}}}, Log: slog.New(slog.DiscardHandler),
	}, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return r
}

// wait waits for something.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("after 30 s still not so: %s", what)
}

// The engine's path of a policy arrives at its headend, and counts at no other one.
func TestWriteByBGP(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(squarePolicies))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "a.sock")
	serve(t, apitest.New(c), socket)
	named, other := listenAt(t, 1), listenAt(t, 2)
	peers := ""
	for _, last := range []int{1, 2} {
		peers += fmt.Sprintf("{address: 127.95.8.%d, port: 1179, asn: 65001, source: 127.95.8.9}, ", last)
	}
	file, err := netfile.Parse(fmt.Appendf(nil, "nodes: [{name: a, api: %q, router_id: 10.0.0.1}, {name: b}]\n"+
		"engine: {write: bgp, bgp: {asn: 65001, router_id: 10.0.0.9, peers: [%s]}}", socket, peers))
	if err != nil {
		t.Fatal(err)
	}
	a := &app{}
	s, paths, err := a.startEngine(t.Context(), file, nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	all, err := a.headends(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := written(file, all, paths)["a"]
	red := headend.Policy{Name: "red", Color: 1, Endpoint: netip.MustParseAddr("fc00:d::d1")}
	lists := []srpolicy.SegmentList{
		{Weight: 3, Segments: []netip.Addr{netip.MustParseAddr("fc00:b::1"), netip.MustParseAddr("fc00:d::d1")}},
		{Weight: 1, Segments: []netip.Addr{netip.MustParseAddr("fc00:d::d1")}},
	}
	for name, bad := range map[string]srpolicy.CandidatePath{
		"segment_lists: is missing":    {Name: "te:red", Policy: "red", Preference: 150},
		"segment_lists: has 9 lists":   {Name: "te:red", Policy: "red", Preference: 150, SegmentLists: slices.Repeat(lists[:1], 9)},
		"segments[0]: ff02::1 is a mu": {Name: "te:red", Policy: "red", SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{netip.MustParseAddr("ff02::1")}}}},
	} {
		if err := h.Put(t.Context(), []headend.Path{{CandidatePath: bad, Of: red}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	want := srpolicy.Advertised{Color: 1, Endpoint: netip.MustParseAddr("fc00:d::d1"), Distinguisher: 0x0a000001, Name: "te:red", Preference: 150, SegmentLists: lists}
	if err := h.Put(t.Context(), []headend.Path{{CandidatePath: srpolicy.CandidatePath{Policy: "red", Preference: 150, SegmentLists: lists}, Of: red}}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the path arrives", func() bool { return len(named.list()) > 0 })
	if got := named.list(); len(got) != 1 || fmt.Sprint(got[0].Advertised) != fmt.Sprint(want) || got[0].Node != netip.MustParseAddr("10.0.0.9") {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	wait(t, "all sessions are up", func() bool {
		peers, err := s.speaker.Peers(t.Context())
		return err == nil && !slices.ContainsFunc(peers, func(p bgp.PeerStatus) bool { return p.State != "established" })
	})
	for i, preference := range []uint32{151, 152} { // a later update arrives after an earlier one
		if err := h.Put(t.Context(), []headend.Path{{CandidatePath: srpolicy.CandidatePath{Policy: "red", Preference: preference, SegmentLists: lists}, Of: red}}); err != nil {
			t.Fatal(err)
		}
		wait(t, "a change arrives", func() bool { return len(named.list()) == i+2 })
	}
	ready := headend.Path{CandidatePath: srpolicy.CandidatePath{Policy: "red", Preference: 149, SegmentLists: lists[:1]}, Of: red, Repair: true}
	if err := h.Put(t.Context(), []headend.Path{ready}); err != nil {
		t.Fatal(err)
	}
	wait(t, "a repair path arrives", func() bool { return len(named.list()) == 4 })
	want = srpolicy.Advertised{Color: 1, Endpoint: red.Endpoint, Distinguisher: ^uint32(0x0a000001), Name: "te:repair:red", Preference: 149, SegmentLists: lists[:1]}
	if got := named.list()[3]; fmt.Sprint(got.Advertised) != fmt.Sprint(want) || h.RepairName("te", red) != observed.PathName(got.Node, got.Advertised) || h.RepairName("te", red) == h.PathName("te", red) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if err := h.Remove(t.Context(), []headend.Path{ready}); err != nil {
		t.Fatal(err)
	}
	wait(t, "it goes", func() bool { return len(named.gone()) > 0 })
	if got := named.gone(); len(got) != 1 || got[0].Distinguisher != want.Distinguisher || len(paths.paths) != 1 {
		t.Errorf("%+v are withdrawn, %+v are left", got, paths.paths)
	}
	if got := other.list(); len(got) > 0 {
		t.Errorf("another headend takes %+v", got)
	}
}

// A headend that does not answer keeps nobody from reading the others, nor the engine from starting.
func TestAdoptWithoutAnswer(t *testing.T) {
	t.Parallel()
	c, err := config.Parse([]byte(squarePolicies))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "b.sock")
	serve(t, apitest.New(c), socket)
	file := &netfile.Network{Engine: netfile.Engine{Write: netfile.WriteBGP}, Nodes: []netfile.Node{{Name: "a", API: "/none.sock"}, {Name: "b", API: socket}}}
	headends, err := (&app{}).headends(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	if list := adopt(t.Context(), written(file, headends, nil), 5*time.Second, slog.New(slog.NewTextHandler(&log, nil))); len(list) > 0 || !strings.Contains(log.String(), "headends=a\n") {
		t.Errorf("%+v: %s", list, &log)
	}
}

// Who writes is said in one place; without a word it is the API.
func TestWritten(t *testing.T) {
	file := &netfile.Network{Nodes: []netfile.Node{{Name: "a", API: "/run/a.sock", RouterID: netip.MustParseAddr("10.0.0.1")}}}
	headends, err := (&app{}).headends(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, byAPI := written(file, headends, nil)["a"].(remote); !byAPI {
		t.Error("without engine.write the API does not write")
	}
	file.Engine.Write = netfile.WriteBGP
	if _, is := written(file, headends, nil)["a"].(byBGP); !is {
		t.Error("BGP does not write")
	}
}
