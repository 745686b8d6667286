package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

func TestN4Ports(t *testing.T) {
	links := links("n4", "n6", "n3", "bond", "other") // 1 to 5
	links.Links[2].Master = 4
	lo, dummy, vlan := link(6, "lo"), link(7, "dummy0"), link(8, "bond.5")
	lo.Loopback, dummy.Kind, vlan.Kind, vlan.Parent = true, "dummy", "vlan", 4
	links.Links = append(links.Links, lo, dummy, vlan)
	address := netip.MustParseAddr("192.0.2.1")
	with := func(n6, n3 config.Role) map[string]config.Interface {
		return map[string]config.Interface{"n6": {Roles: []config.Role{n6}}, "n3": {Roles: []config.Role{n3}}}
	}
	for name, tt := range map[string]struct {
		at     []int // where the address is
		want   []int
		n6, n3 config.Role
	}{
		"an unlisted interface":  {[]int{5}, []int{5}, config.RoleN6, config.RoleN3},
		"one of another role":    {[]int{2}, nil, config.RoleN6, config.RoleN3},
		"the role":               {[]int{3}, []int{3, 4, 8}, config.RoleN6, config.RoleN4},
		"any":                    {[]int{3}, []int{3, 4, 8}, config.RoleN6, config.RoleAny},
		"the role elsewhere":     {[]int{2}, []int{3, 4, 8}, config.RoleN6, config.RoleN4},
		"both":                   {[]int{1}, []int{1, 3, 4, 8}, config.RoleN6, config.RoleN4},
		"the loopback":           {[]int{6}, []int{3, 4, 6, 8}, config.RoleN6, config.RoleN4},
		"the loopback, no role":  {[]int{6}, []int{6}, config.RoleN6, config.RoleN3},
		"nowhere any more":       {nil, nil, config.RoleN6, config.RoleN3},
		"an interface that went": {[]int{9}, nil, config.RoleN6, config.RoleN3},
	} {
		links.Addresses = []netdev.Address{{Ifindex: 5, Prefix: netip.MustParsePrefix("192.0.2.2/24")}}
		for _, index := range tt.at {
			links.Addresses = append(links.Addresses, netdev.Address{Ifindex: index, Prefix: netip.PrefixFrom(address, 24)})
		}
		if got := n4Ports([]netip.Addr{address}, with(tt.n6, tt.n3), links); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// PFCP comes in by the interface that has the address of N4, also after that was
// deleted and made again.
func TestN4PortFollowsLinks(t *testing.T) {
	node, core := netns.New(t), netns.New(t)
	d := prepare(t, t.TempDir(), strings.Replace(withN9(byGTPU), "127.92.0.0/24", "192.0.2.20/32", 1), newFake())
	wire := func() *netdev.Snapshot {
		n4, _ := netns.Veth(t, node, "n4", core, "core")
		node.Addr(t, "n4", "192.0.2.1/24")
		core.Addr(t, "core", "192.0.2.20/24")
		s := links("eth0", "eth1")
		s.Links = append(s.Links, link(n4.Index, "n4"))
		s.Addresses = []netdev.Address{{Ifindex: n4.Index, Prefix: netip.MustParsePrefix("192.0.2.1/24")}}
		return s
	}
	first := wire()
	d.open.server = func(c pfcp.Config) (s *pfcp.Server, err error) {
		node.Do(t, func() { s, err = pfcp.Open(c) })
		return s, err
	}
	d.start(t, first)
	associates := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		core.Do(t, func() {
			var c *smf.Client
			if c, err = smf.Dial(smf.Options{
				UPF: netip.MustParseAddrPort("192.0.2.1:8805"), Local: netip.MustParseAddrPort("192.0.2.20:8805"), NodeID: "smf.example",
			}); err == nil {
				defer c.Close()
				_, err = c.Associate(ctx)
			}
		})
		return err == nil
	}
	becomesHeard := func(by string) {
		for start := time.Now(); !associates(); {
			if time.Since(start) > 10*time.Second {
				t.Fatalf("the SMF is not heard by the %s interface", by)
			}
		}
	}
	becomesHeard("first")
	node.IP(t, "link del n4")
	second := wire()
	if associates() {
		t.Error("heard by an interface that the daemon does not know yet")
	}
	d.watcher.options.OnChange(second)
	becomesHeard("new")
}
