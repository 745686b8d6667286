package agent

import (
	"cmp"
	"log/slog"

	"github.com/culvert-net/culvert/internal/agent/desired"
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

// logLinkStates logs the interfaces of the configuration, and uplinks, whose links have gone down,
// lost their carrier, or are up again. One that has come is up unless it is logged.
func logLinkStates(log *slog.Logger, goal *plan.Goal, uplinks []string, before, now *netdev.Snapshot) {
	turned := turnedLinks(before, now)
	if len(turned) == 0 {
		return
	}
	for r := range goal.All() {
		if r.Kind == desired.KindInterface {
			logLinkState(log, r.Interface(), turned)
		}
	}
	for _, name := range uplinks {
		logLinkState(log, name, turned)
	}
}

// logLinkState logs an interface that is among turned, once.
func logLinkState(log *slog.Logger, name string, turned map[string]netdev.LinkState) {
	switch state := turned[name]; state {
	case "":
		return
	case netdev.LinkUp:
		log.Info("an interface is up, with carrier", "event", logevent.InterfaceUp, "interface", name)
	default:
		log.Warn("an interface "+state.Problem()+": no packet comes or leaves by it", "event", logevent.InterfaceDown, "interface", name, "link", state)
	}
	delete(turned, name)
}

// turnedLinks returns the states of the links that have another one than before, or that have come
// and are not up.
func turnedLinks(before, now *netdev.Snapshot) map[string]netdev.LinkState {
	was, out := map[string]netdev.LinkState{}, map[string]netdev.LinkState{}
	for _, l := range before.Links {
		was[l.Name] = l.State()
	}
	for _, l := range now.Links {
		if state := l.State(); state != cmp.Or(was[l.Name], netdev.LinkUp) {
			out[l.Name] = state
		}
	}
	return out
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
