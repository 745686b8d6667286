package agent

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// towards is a network with routes to the locators of some nodes.
func towards(prefixes ...string) *netdev.Snapshot {
	s := withRoute(links("eth0", "eth1"))
	for _, p := range prefixes {
		s.Routes = append(s.Routes, netdev.Route{Table: netdev.TableMain, Prefix: prefix(p), Type: netdev.RouteUnicast,
			Hops: []netdev.Hop{{Gateway: addr("192.0.2.9"), Ifindex: 1, Weight: 1}}})
	}
	return s
}

// first is the first segment that packets of policy south take.
func (d *daemon) first() string {
	return d.dp.policies["south"].SegmentLists[0].Segments[0].String()
}

// What packets take follows the routes and what is added and deleted; what is
// shown says why.
func TestActiveCandidatePath(t *testing.T) {
	ctx := context.Background()
	d := prepare(t, t.TempDir(), strings.Replace(gateway, "steering:", `candidate_paths:
  - {name: preferred, policy: south, preference: 200, segment_lists: [{segments: ['fc00:a::1']}]}
  - {name: spare, policy: south, preference: 50, segment_lists: [{segments: ['fc00:b::1']}]}
steering:`, 1), newFake()).start(t, towards("fc00:2::/32", "fc00:4::/32", "fc00:a::/32", "fc00:b::/32"))
	if got := d.first(); got != "fc00:a::1" {
		t.Fatalf("packets take %s first", got)
	}
	d.change(t, towards("fc00:2::/32", "fc00:4::/32", "fc00:b::/32"), "the policy's own lists are next",
		func() bool { return d.first() == "fc00:2:0:1::" && len(d.dp.policies["south"].SegmentLists) == 2 })
	d.change(t, towards("fc00:4::/32", "fc00:b::/32"), "one of them goes on alone, and the other keeps its place", func() bool {
		p := d.dp.policies["south"]
		return len(p.SegmentLists) == 2 && strings.Contains(p.DownAt(0), "no route") && p.DownAt(1) == ""
	})
	if s, err := d.Policies(); err != nil || len(s[0].Down) != 2 || s[0].Down[0] == "" || len(s[0].Lists) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	d.change(t, towards("fc00:b::/32"), "the spare one is the last", func() bool { return d.first() == "fc00:b::1" })
	down := towards()
	down.Routes = append(down.Routes, netdev.Route{Table: netdev.TableMain, Prefix: prefix("::/0"), Type: netdev.RouteUnreachable})
	d.change(t, down, "where none is valid the preferred one stays", func() bool { return d.first() == "fc00:a::1" })

	policies, err := d.Policies()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range policies[0].Paths {
		names = append(names, v.Path)
		if v.Valid || v.Active != (v.Path == "preferred") || !strings.Contains(v.Why, "unreachable") {
			t.Errorf("verdict %+v", v)
		}
	}
	if !slices.Equal(names, []string{"preferred", "", "spare"}) {
		t.Errorf("verdicts on %q", names)
	}

	d.change(t, towards("fc00:2::/32", "fc00:4::/32", "fc00:a::/32", "fc00:b::/32", "fc00:c::/32"), "all is back", func() bool {
		return d.core.writer.Tables.Verdicts["south"][0].Valid
	})
	added, err := config.Decode([]byte("candidate_paths: [{name: best, policy: south, preference: 300, segment_lists: [{segments: ['fc00:c::1']}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(ctx, added); err != nil || d.first() != "fc00:c::1" {
		t.Errorf("added: %v, packets take %s first", err, d.first())
	}
	paths, err := d.CandidatePaths()
	if err != nil || len(paths) != 3 || paths[2].Origin != desired.OriginAPI || !paths[2].Verdict.Active {
		t.Fatalf("candidate paths %+v, %v", paths, err)
	}
	if next, last := paths[0].Verdict, paths[1].Verdict; !next.Protects || next.Why != "stands by, held ready" || last.Protects || last.Why != "stands by" {
		t.Errorf("the next path protects the active one, and no other does: %+v, %+v", next, last)
	}
	if _, err := d.Delete(ctx, []desired.Ref{{Kind: desired.KindCandidatePath, Key: "best"}}); err != nil || d.first() != "fc00:a::1" {
		t.Errorf("deleted: %v, packets take %s first", err, d.first())
	}
	if _, err := d.Delete(ctx, []desired.Ref{{Kind: desired.KindCandidatePath, Key: "spare"}}); err == nil || !strings.Contains(err.Error(), "is in the configuration file") {
		t.Errorf("one of the file: %v", err)
	}
}

// What was added stays over a restart.
func TestCandidatePathIsKept(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := prepare(t, dir, gateway, dp).start(t, towards("fc00:2::/32", "fc00:c::/32"))
	added, err := config.Decode([]byte("candidate_paths: [{name: best, policy: south, preference: 300, segment_lists: [{segments: ['fc00:c::1']}]}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(context.Background(), added); err != nil {
		t.Fatal(err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = prepare(t, dir, gateway, dp).start(t, towards("fc00:2::/32", "fc00:c::/32"))
	if d.first() != "fc00:c::1" {
		t.Errorf("after a restart packets take %s first", d.first())
	}
}
