package doctor

import (
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// A policy that takes all frames of an interface takes those of the host's VLANs, too.
func TestVLANsOfAWire(t *testing.T) {
	c, err := config.Parse([]byte(`
interfaces: [{name: a, roles: [edge]}, {name: b, roles: [edge]}]
domain: ["2001:db8::/32"]
encapsulation: {source: "2001:db8:5::1"}
policies: [{name: wire, behavior: H.Encaps.L2.Red, segment_lists: [{segments: ["2001:db8:e:1::"]}]}]
steering: [{interface: a, policy: wire}, {interface: b, vlans: [7], policy: wire}]
`))
	if err != nil {
		t.Fatal(err)
	}
	n := &network{Snapshot: &netdev.Snapshot{Links: []netdev.Link{{Index: 1, Name: "a"}, {Index: 2, Name: "b"}}}, Options: Options{Config: c}}
	if got := find(t, n.ports(), "a: VLANs"); got.Level != OK {
		t.Errorf("no VLAN: %+v", got)
	}
	n.Snapshot = &netdev.Snapshot{Links: append(n.Snapshot.Links,
		netdev.Link{Index: 3, Name: "a.7", Kind: "vlan", Parent: 1}, netdev.Link{Index: 4, Name: "b.7", Kind: "vlan", Parent: 2})}
	if got := find(t, n.ports(), "a: VLANs"); got.Level != Warn || got.Fix == "" {
		t.Errorf("with a VLAN: %+v", got)
	}
	for _, check := range n.ports() {
		if check.Name == "b: VLANs" {
			t.Errorf("its entry names the VLANs: %+v", check)
		}
	}
}
