package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// rolesToAdd returns the fix for an interface without roles: its line, and one for each
// neighbour that it may lead to where the configuration does not say which.
func (c *Config) rolesToAdd(in *Interface) string {
	roles := c.rolesOf(in.Name)
	if len(roles) == 0 {
		roles = slices.DeleteFunc(c.usualRoles(), func(r Role) bool { return !strings.HasPrefix(in.Name, string(r)) })
	}
	if len(roles) == 0 {
		roles = c.usualRoles()
	}
	if len(roles) == 0 { // nothing is configured yet
		roles = []Role{RoleN3, RoleN6, RoleSR, RoleEdge}
	}
	lines := make([]string, len(roles))
	for i, r := range roles {
		lines[i] = c.line(in, r) + " where it leads to " + neighbours[r]
	}
	fix := "write " + strings.Join(lines, ", or ")
	saysDomain := len(c.Domain) > 0 || c.Overlay.LocatorPool.IsValid()
	if !saysDomain && (slices.Contains(roles, RoleSR) || slices.Contains(roles, RoleEdge) && len(c.Locators)+len(c.SIDs) == 0) {
		fix += ", and domain: with the prefixes that the routers of the SR domain send from"
	}
	return fix
}

// neighbours says what is behind an interface with a role.
var neighbours = map[Role]string{
	RoleN3: "gNBs, which peers lists", RoleN9: "other UPFs, which peers lists", RoleN6: "the data network", RoleN4: "SMFs", RoleSR: "routers of the SR domain", RoleEdge: "customers",
}

// rolesOf returns the role that the uses of an interface need.
func (c *Config) rolesOf(name string) []Role {
	for _, s := range c.Steering {
		if s.Interface == name {
			return []Role{roleOfSteering(s)}
		}
	}
	for _, s := range c.Slices {
		if s.N6 != nil && s.N6.Interface == name {
			return []Role{RoleN6}
		}
	}
	for _, s := range c.SIDs {
		switch {
		case s.Interface != name:
		case s.Behavior == srv6.EndX:
			return []Role{RoleSR}
		default:
			return []Role{RoleEdge}
		}
	}
	return nil
}

// roleOfSteering returns the role by which the frames enter that are steered by interface.
func roleOfSteering(s srpolicy.Steering) Role {
	switch {
	case s.Tunnel != "":
		return RoleN6
	case s.GTP4D != nil:
		return RoleN3
	}
	return RoleEdge
}

// usualRoles returns the roles that the interfaces of such a node have.
func (c *Config) usualRoles() []Role {
	upf := len(c.GTPU.Addresses) > 0 || c.UPF.IsSet()
	n9 := func(t slice.Transport) bool {
		return slices.ContainsFunc(c.Slices, func(s slice.Slice) bool { return s.N9 != nil && s.N9.Transport == t })
	}
	mobile := func(s srv6.LocalSID) bool { return s.Behavior == srv6.EndMGTP6D || s.Behavior == srv6.EndMGTP6DDi }
	steers := func(so func(srpolicy.Steering) bool) bool { return slices.ContainsFunc(c.Steering, so) }
	binds := slices.ContainsFunc(c.Policies, func(p srpolicy.Policy) bool { return p.BindingSID.IsValid() })
	gateway := slices.ContainsFunc(c.SIDs, mobile) || steers(func(s srpolicy.Steering) bool { return s.GTP4D != nil })
	var roles []Role
	for _, of := range []struct {
		role Role
		has  bool
	}{
		{RoleN3, upf || gateway},
		{RoleN9, n9(slice.GTPU)},
		{RoleN6, upf || steers(func(s srpolicy.Steering) bool { return s.Tunnel != "" })},
		{RoleN4, c.UPF.IsSet()},
		{RoleSR, len(c.SIDs)+len(c.Locators) > 0 || c.Overlay.IsSet() || binds || n9(slice.SRv6)},
		{RoleEdge, steers(func(s srpolicy.Steering) bool { return s.Policy != "" })},
	} {
		if of.has {
			roles = append(roles, of.role)
		}
	}
	return roles
}

// line returns the line of an interface with a role.
func (c *Config) line(in *Interface, r Role) string {
	fields := []string{"name: " + cmp.Or(in.Name, "NAME")}
	if in.Mode != "" && in.Mode != "auto" {
		fields = append(fields, "mode: "+in.Mode)
	}
	fields = append(fields, fmt.Sprintf("roles: [%s]", r))
	if r == RoleN3 || r == RoleN9 {
		fields = append(fields, "peers: ["+c.peersToAdd()+"]")
	}
	if c.BGP.IsSet() && r != RoleN3 && r != RoleN4 {
		fields = append(fields, "host: [bgp]")
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// peersToAdd returns the far ends of the tunnels, or an example.
func (c *Config) peersToAdd() string {
	var peers []string
	for _, t := range c.Tunnels {
		if !t.Remote.IsValid() {
			continue
		}
		p := netip.PrefixFrom(t.Remote, t.Remote.BitLen()).String()
		if t.Remote.Is6() {
			p = `"` + p + `"`
		}
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	if len(peers) == 0 || len(peers) > maxPeers {
		return "192.0.2.0/24"
	}
	return strings.Join(peers, ", ")
}
