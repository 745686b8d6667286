package agent

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
)

// needs says what sessions lack from the host: each matter once, and again if it was fixed
// meanwhile.
type needs struct {
	core *core
	proc string // where procfs is mounted
	said []string
	pins string // what was said of them

	goal   *plan.Goal // that config is of: nothing changes a goal
	config *config.Config
}

// look compares the host with the present goal.
func (n *needs) look() {
	n.core.mu.RLock()
	goal, links := n.core.goal, n.core.links
	n.core.mu.RUnlock()
	if goal != n.goal {
		n.goal, n.config = goal, goal.Config(plan.Scope{})
	}
	var lines []string
	if n.config.UPF.IsSet() {
		lines = hostNeeds(n.config, links, n.proc)
	}
	n.say(lines, n.core.log)
	n.sayPins(n.core.dp.missingPins(), n.core.log)
}

// sayPins is say for pins that somebody has removed.
func (n *needs) sayPins(missing string, log *slog.Logger) {
	if missing != "" && n.pins == "" {
		log.Error(missing, "event", logevent.PinsMissing)
	}
	n.pins = missing
}

func (n *needs) say(lines []string, log *slog.Logger) {
	for _, line := range lines {
		if !slices.Contains(n.said, line) {
			log.Warn(line, "event", logevent.HostSetting)
		}
	}
	n.said = lines
}

// hostNeeds says what sessions lack from the host. proc is where procfs is mounted.
func hostNeeds(c *config.Config, links *netdev.Snapshot, proc string) (lines []string) {
	v4, v6 := config.SessionFamilies(c)
	for _, key := range netdev.ForwardingKeys(v4, v6) {
		if netdev.Sysctl(proc, key) == "0" {
			lines = append(lines, fmt.Sprintf("%s is 0: packets that only the kernel can send on (neighbour not resolved, devices without XDP) are dropped as no_forwarding: run sysctl -w %s=1", key, key))
		}
	}
	if v4 {
		lines = append(lines, filtered(c, links, proc)...)
	}
	for _, n := range c.N6Tables() {
		if !links.LeadsAway(n.Table, n.IPv4) {
			lines = append(lines, fmt.Sprintf("table %d has no route to a router of N6 for %s: what UEs send to other networks is dropped as no_route: add a default route to the table", n.Table, familyName(n.IPv4)))
		}
	}
	return lines
}

// filtered: what was in a tunnel comes to the kernel by the interface of the tunnel, and is sent
// back by another one.
func filtered(c *config.Config, links *netdev.Snapshot, proc string) (lines []string) {
	for i := range c.Interfaces {
		in := &c.Interfaces[i]
		if _, there := links.Link(in.Name); !there || !in.HasRole(config.RoleN3, config.RoleN9, config.RoleSR, config.RoleAny) || !netdev.FiltersStrictly(proc, in.Name) {
			continue
		}
		key := netdev.SysctlOf(in.Name, "rp_filter")
		lines = append(lines, fmt.Sprintf("rp_filter of %s is strict: IPv4 packets from tunnels that only the kernel can send on (VLANs whose hosts are not resolved, devices without XDP) are dropped there, and counted nowhere here: run sysctl -w %s=2, and put %s=2 into a file of /etc/sysctl.d", in.Name, key, key))
	}
	return lines
}

func familyName(v4 bool) string {
	if v4 {
		return "IPv4"
	}
	return "IPv6"
}
