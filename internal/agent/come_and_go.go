package agent

import (
	"log/slog"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
)

// logLinks logs the interfaces that the goal names and that have come or gone. One that was made
// anew has gone, too.
func logLinks(log *slog.Logger, goal *plan.Goal, before, now *netdev.Snapshot) {
	gone, come := without(before, now), without(now, before)
	if len(gone)+len(come) == 0 {
		return // a change of the network is often one of routes: the resources are many
	}
	for r := range goal.All() {
		name := r.Interface()
		if index, is := gone[name]; is {
			log.Warn("an interface has disappeared: waiting for it", "event", logevent.InterfaceGone, "interface", name, "index", index)
			delete(gone, name) // which several resources may name
		}
		if index, is := come[name]; is {
			log.Info("an interface is there", "event", logevent.InterfaceThere, "interface", name, "index", index)
			delete(come, name)
		}
	}
}

// without returns the indices of the interfaces that another snapshot has not, or with another index.
func without(s, other *netdev.Snapshot) map[string]int {
	out := map[string]int{}
	for _, l := range s.Links {
		out[l.Name] = l.Index
	}
	for _, l := range other.Links {
		if out[l.Name] == l.Index {
			delete(out, l.Name)
		}
	}
	return out
}
