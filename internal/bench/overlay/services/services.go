// Package services gives nodes of a benchmark the rules that kube-proxy makes of Services.
package services

import (
	"fmt"
	"os/exec"
	"strings"
)

// Most leaves room in the addresses that they have.
const Most = 10_000

// Rules are those of a node with so many Services of two endpoints each, as kube-proxy
// makes them for nftables: maps from a Service to its chain, chains that choose an endpoint, and
// marks for what has to be masqueraded. None of the Services is anybody's here; what costs is that
// the kernel tracks connections, and looks for each new one in the maps.
func Rules(n int) string {
	var b strings.Builder
	for _, f := range []struct{ family, saddr, daddr, address, service, endpoint string }{
		{"ip", "ip saddr", "ip daddr", "ipv4_addr", "10.96.%d.%d", "10.250.%d.%d"},
		{"ip6", "ip6 saddr", "ip6 daddr", "ipv6_addr", "fd00:10:96::%d:%d", "fd00:10:250::%d:%d"},
	} {
		w := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
		w("table %s bench-proxy {}\ndelete table %s bench-proxy", f.family, f.family)
		if n == 0 {
			continue
		}
		w("table %s bench-proxy {", f.family)
		for i := range n {
			for j := range 2 {
				to := fmt.Sprintf(f.endpoint, i/100, 2*(i%100)+j+1)
				w("chain endpoint-%d-%d { %s %s jump mark-for-masquerade; meta l4proto tcp dnat to %s; }", i, j, f.saddr, to, endpointPort(to))
			}
			w("chain service-%d { numgen random mod 2 vmap { 0 : goto endpoint-%d-0, 1 : goto endpoint-%d-1 }; }", i, i, i)
		}
		elements := make([]string, n)
		for i := range elements {
			elements[i] = fmt.Sprintf(f.service+" . tcp . 80 : goto service-%d", i/100, i%100+1, i)
		}
		w("map service-ips { type %s . inet_proto . inet_service : verdict; elements = { %s }; }", f.address, strings.Join(elements, ", "))
		w(`map no-endpoint-services { type %s . inet_proto . inet_service : verdict; }
chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
chain services {
  %s . meta l4proto . th dport vmap @service-ips
}
chain masquerading { meta mark & 0x4000 == 0 return; meta mark set meta mark xor 0x4000; masquerade fully-random; }
chain service-endpoints-check { %s . meta l4proto . th dport vmap @no-endpoint-services; }
chain filter-forward { type filter hook forward priority -110; ct state new jump service-endpoints-check; }
chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
chain nat-output { type nat hook output priority -100; jump services; }
chain nat-postrouting { type nat hook postrouting priority srcnat; jump masquerading; }
}`, f.address, f.daddr, f.daddr)
	}
	return b.String()
}

// endpointPort is the port of an endpoint at an address.
func endpointPort(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]:8080"
	}
	return address + ":8080"
}

// Load gives the network namespace of the caller rules for nft.
func Load(rules string) error {
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(rules)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %.500s", err, out)
	}
	return nil
}
