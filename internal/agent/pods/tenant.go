package pods

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Tenant is a tenant as pods join it.
type Tenant struct {
	Name       string
	ID         uint8
	Namespaces []string // whose pods may join
	Prefixes   []netip.Prefix
	Routes     []netip.Prefix // what pods send to the tenant's network
}

// ErrTenant is for a pod that may not be attached to the tenant's network that it names.
var ErrTenant = errors.New("tenant")

// tenantOf is the tenant that a pod joins, the zero Tenant for none. Its namespace has to be
// one that the tenant lists: who may write a network is not always who may join a tenant.
func (s Settings) tenantOf(v Pod) (Tenant, error) {
	if v.Tenant == "" {
		return Tenant{}, nil
	}
	i := slices.IndexFunc(s.Tenants, func(t Tenant) bool { return t.Name == v.Tenant })
	switch {
	case i < 0:
		return Tenant{}, fmt.Errorf("%w %q: there is none of that name in overlay.tenants", ErrTenant, v.Tenant)
	case !slices.Contains(s.Tenants[i].Namespaces, v.Namespace):
		return Tenant{}, fmt.Errorf("%w %q: namespace %q is not among its namespaces", ErrTenant, v.Tenant, v.Namespace)
	case v.Shaped:
		return Tenant{}, fmt.Errorf("%w %q: the kernel, which limits the pod's bandwidth, does not carry a tenant's packets: remove the plugin bandwidth", ErrTenant, v.Tenant)
	}
	return s.Tenants[i], nil
}

// routesOf are what a pod reaches by its interface: everything, or what its tenant says.
func routesOf(t Tenant, addresses []netip.Addr) (out []netip.Prefix) {
	has := func(p netip.Prefix) bool {
		return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() })
	}
	all := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	if t.ID != 0 {
		all = t.Routes
	}
	for _, p := range all {
		if has(p) {
			out = append(out, p.Masked())
		}
	}
	return out
}
