package netdev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// forwardingKeys are what has the kernel forward, as sysctl(8) names it.
var forwardingKeys = []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"}

// ForwardingOff lists, as sysctl(8) names it, what keeps the kernel from forwarding. proc is
// where procfs is mounted.
func ForwardingOff(proc string) (off []string) {
	for _, key := range forwardingKeys {
		v, err := os.ReadFile(filepath.Join(proc, "sys", strings.ReplaceAll(key, ".", "/")))
		if err == nil && strings.TrimSpace(string(v)) == "0" {
			off = append(off, key)
		}
	}
	return off
}

// LeadsAway says whether a routing table has a route of an address family by a gateway, or
// a default route.
func (s *Snapshot) LeadsAway(table uint32, v4 bool) bool {
	return slices.ContainsFunc(s.Routes, func(r Route) bool {
		away := r.Prefix.Bits() == 0 || slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Gateway.IsValid() })
		return r.Table == table && r.Type == RouteUnicast && r.Prefix.Addr().Is4() == v4 && away
	})
}
