package doctor

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/netdev"
)

// sids looks at those whose packets may end in this host's kernel.
func sids(n *network) (checks []Check) {
	if n.Config == nil {
		return nil
	}
	for _, s := range n.Config.SIDs {
		if s.AllowUpperLayer {
			checks = append(checks, ends(n.Inspector, s.SID))
		}
	}
	return checks
}

// ends: a packet that ends at a SID is for this host only if the kernel has its address.
// Otherwise the kernel forwards it, or says that no route leads there.
func ends(host *netdev.Inspector, sid netip.Prefix) Check {
	fix := command("ip -6 route replace local %s dev lo", sid)
	if sid.IsSingleIP() {
		fix = command("ip -6 address replace %s dev lo", sid)
	}
	is, err := netdev.IsLocal(host, sid.Addr())
	name := "SID " + sid.String()
	if err != nil {
		return Check{Name: name, Level: Warn, Detail: err.Error()}
	}
	return check(name, "is an address of this host", problem{!is, Fail,
		"allow_upper_layer hands packets to the kernel, which does not have the address", fix})
}
