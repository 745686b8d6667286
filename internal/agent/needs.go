package agent

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// hostNeeds says what sessions lack from the host. proc is where procfs is mounted.
func hostNeeds(c *config.Config, links *netdev.Snapshot, proc string) (lines []string) {
	if !c.UPF.IsSet() {
		return nil
	}
	for _, key := range netdev.ForwardingOff(proc) {
		lines = append(lines, fmt.Sprintf("%s is 0: packets that only the kernel can send on (neighbour not resolved, devices without XDP) are dropped as no_forwarding: run sysctl -w %s=1", key, key))
	}
	for _, n := range c.N6Tables() {
		if !links.LeadsAway(n.Table, n.IPv4) {
			lines = append(lines, fmt.Sprintf("table %d has no route to a router of N6 for %s: what UEs send to other networks is dropped as no_route: add a default route to the table", n.Table, familyName(n.IPv4)))
		}
	}
	return lines
}

func familyName(v4 bool) string {
	if v4 {
		return "IPv4"
	}
	return "IPv6"
}
