package netdev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ForwardingKeys are what has the kernel forward packets of address families, as sysctl(8)
// names it.
func ForwardingKeys(v4, v6 bool) (keys []string) {
	if v4 {
		keys = append(keys, "net.ipv4.ip_forward")
	}
	if v6 {
		keys = append(keys, "net.ipv6.conf.all.forwarding")
	}
	return keys
}

// swapDots turns a name of sysctl(8) into a path, and back: a dot in an interface's
// name is a slash in the one.
var swapDots = strings.NewReplacer(".", "/", "/", ".")

// Sysctl is the value of what sysctl(8) calls name; empty: nobody can see it. proc is where
// procfs is mounted.
func Sysctl(proc, name string) string {
	v, err := os.ReadFile(filepath.Join(proc, "sys", swapDots.Replace(name)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(v))
}

// SysctlOf is the name of an IPv4 sysctl of an interface, or of "all".
func SysctlOf(name, what string) string {
	return "net.ipv4.conf." + strings.ReplaceAll(name, ".", "/") + "." + what
}

// FiltersStrictly says whether the kernel drops what comes in by an interface and would not be
// sent back by it. The larger of the two values counts (Linux, ip-sysctl).
func FiltersStrictly(proc, name string) bool {
	return max(Sysctl(proc, SysctlOf(name, "rp_filter")), Sysctl(proc, SysctlOf("all", "rp_filter"))) == "1"
}

// LeadsAway says whether a routing table has a route of an address family by a gateway, or
// a default route.
func (s *Snapshot) LeadsAway(table uint32, v4 bool) bool {
	return slices.ContainsFunc(s.Routes, func(r Route) bool {
		away := r.Prefix.Bits() == 0 || slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Gateway.IsValid() })
		return r.Table == table && r.Type == RouteUnicast && r.Prefix.Addr().Is4() == v4 && away
	})
}
