package doctor

import "net/netip"

// sids looks at those whose packets may end in this host's kernel.
func (n *network) sids() (checks []Check) {
	if n.Config == nil {
		return nil
	}
	for _, s := range n.Config.SIDs {
		if s.AllowUpperLayer {
			checks = append(checks, n.ends(s.SID))
		}
	}
	return checks
}

// ends: a packet that ends at a SID is for this host only if the kernel has its address.
// Otherwise the kernel forwards it, or says that no route leads there.
func (n *network) ends(sid netip.Prefix) Check {
	fix := command("ip -6 route replace local %s dev lo", sid)
	if sid.IsSingleIP() {
		fix = command("ip -6 address replace %s dev lo", sid)
	}
	is, err := n.IsLocal(sid.Addr())
	name := "SID " + sid.String()
	if err != nil {
		return Check{Name: name, Level: Warn, Detail: err.Error()}
	}
	return check(name, "is an address of this host", problem{!is, Fail,
		"allow_upper_layer hands packets to the kernel, which does not have the address", fix})
}
