package doctor

import (
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// queues looks at whether several CPUs can handle what comes by an interface. A gNB sends
// the packets of all its UEs from one address and port.
func (d device) queues(in *config.Interface, s *config.Spread, cpus int) Check {
	const name = "receive queues"
	fewer := fmt.Sprintf("%d", d.RxQueues)
	switch {
	case s.IsSet():
		return d.check(name, fmt.Sprintf("packets are spread over CPUs by %s", s.By))
	case cpus < 2 || d.Virtual():
		return d.check(name, fewer)
	}
	spread := advice("spread the packets in the configuration: spread: {by: ue}")
	one := problem{d.RxQueues == 1, Warn, fmt.Sprintf("1: one of %d CPUs handles all packets", cpus), spread}
	if in == nil || !in.HasRole(config.RoleN3, config.RoleN9) {
		return d.check(name, fewer, one)
	}
	known, hashed := d.GTPUHash != nil, !slices.ContainsFunc(netdev.FlowsOf5G, func(f netdev.FlowType) bool {
		return d.GTPUHash[f]&netdev.HashTEID == 0
	})
	outer := fewer + ": the card hashes outer addresses only, so that one gNB is one CPU"
	return d.check(name, fewer+": the card hashes the TEID", one,
		problem{!known, Warn, outer, spread},
		problem{!hashed, Warn, outer, advice("have the card hash the TEID: for flow in gtpu4 gtpu4e gtpu4u gtpu4d; do ethtool -N %s rx-flow-hash $flow sde; done", d.Link.Name)})
}
