package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// A SID that hands packets to the kernel has to be an address of the host, as a whole.
func TestSIDsOfThisHost(t *testing.T) {
	ns := netns.New(t)
	netns.Veth(t, ns, "core", ns, "peer")
	c, err := config.Parse([]byte(`
interfaces: [{name: core, roles: [sr]}]
domain: ["2001:db8::/32"]
sids:
  - {sid: "2001:db8:a:1::1", behavior: End, allow_upper_layer: true}
  - {sid: "2001:db8:a:2::/64", behavior: End, allow_upper_layer: true}
  - {sid: "2001:db8:a:3::", behavior: End}
`))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Config: c, Interfaces: c.InterfaceNames()}
	ns.IP(t, "-6 route add default dev core") // leads to the SIDs, but not here
	for _, name := range []string{"SID 2001:db8:a:1::1/128", "SID 2001:db8:a:2::/64"} {
		before := find(t, inside(t, ns, o), name)
		if before.Level != Fail || len(before.Command) == 0 {
			t.Fatalf("%+v", before)
		}
		for range 2 { // as a user may who has done it already
			ns.Run(t, before.Command[0], before.Command[1:]...)
		}
		after := before // the kernel takes a moment to use a new address
		for end := time.Now().Add(5 * time.Second); after.Level != OK && time.Now().Before(end); {
			after = find(t, inside(t, ns, o), name)
		}
		if after.Level != OK {
			t.Errorf("after %v: %+v", before.Command, after)
		}
	}
	for _, check := range inside(t, ns, o) {
		if strings.Contains(check.Name, "2001:db8:a:3::") {
			t.Errorf("hands nothing to the kernel: %+v", check)
		}
	}
}
