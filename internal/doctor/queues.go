package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// queues looks at whether several CPUs can handle what comes by an interface. A gNB sends
// the packets of all its UEs from one address and port.
func (d device) queues(in *config.Interface, c *config.Config, cpus int) Check {
	const name = "receive queues"
	count := max(1, d.RxQueues) // of a driver that does not say
	text := fmt.Sprintf("%d", count)
	switch {
	case c.Spread.IsSet() && c.Spread.Method != config.SpreadCard:
		over := fmt.Sprintf("packets are spread over CPUs by %s", c.Spread.By)
		// Of two CPUs, one receives.
		one := len(c.Spread.CPUs) == 1 && cpus > 2
		return d.check(name, over, problem{one, Warn, fmt.Sprintf("%s: one of %d handles all", over, cpus), advice("name more CPUs in the configuration: spread.cpus")})
	case cpus < 2 || d.Virtual():
		return d.check(name, text)
	}
	spread := advice("spread the packets in the configuration: spread: {by: ue}")
	one := problem{count == 1, Warn, fmt.Sprintf("1: one of %d CPUs handles all packets", cpus), spread}
	if in == nil || !in.HasRole(config.RoleN3, config.RoleN9) {
		return d.check(name, text, one, d.oneInterrupted(text, cpus))
	}
	known, hashed, flows := true, true, ""
	for _, flow := range netdev.FlowsOf5G(c.GTPU.Addresses) {
		fields, there := d.GTPUHash[flow]
		known, hashed, flows = known && there, hashed && fields&netdev.HashTEID != 0, flows+" "+string(flow)
	}
	outer := text + ": the card hashes outer addresses only, so that one gNB is one CPU"
	return d.check(name, text+": the card hashes the TEID", one,
		problem{!known, Warn, outer, spread},
		problem{!hashed, Warn, outer, advice("have the card hash the TEID: spread: {by: ue, method: card} in the configuration, or for flow in%s; do ethtool -N %s rx-flow-hash $flow sde; done", flows, d.Link.Name)},
		d.oneInterrupted(text, cpus))
}

// oneInterrupted is there if the interrupts of all queues go to one of the CPUs, which
// then does all the work though there are several queues.
func (d device) oneInterrupted(text string, cpus int) problem {
	queues := slices.Sorted(maps.Keys(d.interrupts))
	if len(queues) < 2 {
		return problem{}
	}
	var to []int
	fix := make([]string, len(queues))
	for i, q := range queues {
		to = append(to, d.interrupts[q].CPUs...)
		fix[i] = fmt.Sprintf("echo %d > /proc/irq/%d/smp_affinity_list", i%cpus, d.interrupts[q].Number)
	}
	return problem{slices.Min(to) == slices.Max(to), Warn,
		fmt.Sprintf("%s: the interrupts of all go to CPU %d, which handles all packets", text, to[0]),
		advice("give each queue a CPU of its own, without irqbalance: %s", strings.Join(fix, "; "))}
}
