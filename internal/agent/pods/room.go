package pods

import "net/netip"

// Pool is how full a prefix is that pods have addresses of.
type Pool struct {
	Prefix     netip.Prefix
	Tenant     string // empty: the cluster's own
	Used, Size uint64 // addresses
}

// Pools are those of the cluster's own network and of tenants.
func (p *Pods) Pools() (out []Pool) {
	tenants := map[uint8]string{}
	for _, t := range p.now().Tenants {
		tenants[t.ID] = t.Name
	}
	for _, of := range p.book.Pools() {
		out = append(out, Pool{Prefix: of.Prefix, Tenant: tenants[of.Tenant], Used: of.Used, Size: of.Size})
	}
	return out
}

// Room returns why no other pod of the cluster's own network could get an address, or nil.
func (p *Pods) Room() error { return p.book.Room() }
