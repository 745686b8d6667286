package doctor

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

const userPlaneFile = `interfaces: [{name: n3}, {name: n6}]
gtpu: {addresses: [10.3.0.1]}
upf:
  n4: [10.4.0.1]
  smfs: [10.4.0.2/32]
  protected: [10.4.0.0/24]
`

// Each way by which others reach N4 is found, and fixed by what the check suggests.
func TestUserPlane(t *testing.T) {
	ns, others := netns.New(t), netns.New(t)
	for i, name := range []string{"n3", "n4", "n6"} {
		netns.Veth(t, ns, name, others, name)
		ns.Addr(t, name, []string{"10.3.0.1/24", "10.4.0.1/24", "10.6.0.1/24"}[i])
	}
	ns.IP(t, "route add default via 10.6.0.2")
	ns.Sysctl(t, "net.ipv4.conf.n4.rp_filter", "0")
	examine := func(from, to string) []Check {
		c, err := config.Parse([]byte(strings.Replace(userPlaneFile, from, to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return inside(t, ns, Options{Interfaces: c.InterfaceNames(), UPF: c})
	}
	const filter = "n4: reverse path filter of N4"
	c := find(t, examine("", ""), filter)
	if c.Level != Warn || len(c.Command) == 0 {
		t.Fatalf("%+v", c)
	}
	ns.Run(t, c.Command[0], c.Command[1:]...)
	for _, name := range []string{"N4: senders", "N4: UEs", "N4: 10.4.0.1", filter} {
		if c := find(t, examine("", ""), name); c.Level != OK {
			t.Errorf("%+v", c)
		}
	}
	for _, tt := range []struct {
		from, to, name, detail string
		level                  Level
	}{
		{"[10.4.0.2/32]", "any", "N4: senders", "every sender", Warn},
		{"  protected: [10.4.0.0/24]\n", "", "N4: UEs", "10.4.0.2/32", Fail},
		{"10.4.0.0/24", "10.4.0.2/32", "N4: UEs", "do not reach", OK},
		{"[10.4.0.2/32]", "[10.4.0.2/32, 10.5.0.0/30]", "N4: UEs", "[10.5.0.0/30]", Fail},
		{"n4: [10.4.0.1]", "n4: [10.3.0.1]", "N4: 10.3.0.1", "shares n3 with a GTP-U address", Fail},
		{"n4: [10.4.0.1]", "n4: [10.6.0.1]", "N4: 10.6.0.1", "shares n6 with N6", Fail},
		{"n4: [10.4.0.1]", "n4: [10.9.0.1]", "N4: 10.9.0.1", "no interface has the address", Fail},
	} {
		if c := find(t, examine(tt.from, tt.to), tt.name); c.Level != tt.level || !strings.Contains(c.Detail, tt.detail) {
			t.Errorf("%s: %+v", tt.to, c)
		}
	}
	ns.IP(t, "address add 10.9.0.1/32 dev lo")
	if c := find(t, examine("n4: [10.4.0.1]", "n4: [10.9.0.1]"), "N4: 10.9.0.1"); c.Level != Warn || !strings.Contains(c.Detail, "is on lo") {
		t.Errorf("on the loopback: %+v", c)
	}
}
