package dataplane

import (
	"net/netip"
	"testing"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func TestSmoke(t *testing.T) {
	d, err := Open(Options{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer d.Close()
	if err := d.SetSettings(Settings{Source: netip.MustParseAddr("fc00::1"), Locators: []Locator{{Prefix: netip.MustParsePrefix("fc00:1::/32")}}}); err != nil {
		t.Fatal(err)
	}
	if err := d.PutPolicy(srpolicy.Policy{Name: "p", SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{netip.MustParseAddr("fc00:2::1")}}}}); err != nil {
		t.Fatal(err)
	}
	if err := d.PutSID(srv6.LocalSID{SID: netip.MustParsePrefix("fc00:1:2::/48"), Behavior: srv6.End}); err != nil {
		t.Fatal(err)
	}
	v, out, err := d.TestRun(make([]byte, 64), 1)
	t.Log(v, len(out), err)
	t.Log(d.Usage(), d.AdjacencyKeys())
}
