package announce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Health is what N3 and N4 are like.
type Health struct {
	// Ports are those with the roles n3 and n4, and whether each is up.
	N3, N4 []Port
	// SMFs are the Node IDs of the associations that there are, and whether each SMF answers
	// heartbeats.
	SMFs []Peer
	// GNBs are the GTP-U peers of sessions, and whether each answers Echo Requests.
	GNBs []Peer
}

// Port is an interface.
type Port struct {
	Name string
	Up   bool
}

// Peer is an SMF or a gNB.
type Peer struct {
	Name string
	Up   bool
}

// Fault is something that is not well.
type Fault struct {
	Cause Cause
	Why   string
	// Held: it may pass by itself, and counts once it has lasted for the hold time.
	Held bool
}

// Faults are what of a node's health withdraws the prefixes of an entry. A role that no
// port has is not watched; a UPF that sends to no gNB yet has lost none.
func (e *Entry) Faults(h Health) (out []Fault) {
	on := e.WithdrawOn
	if len(on) == 0 {
		on = []Cause{CauseN3, CauseN4}
	}
	watches := func(c Cause) bool { return slices.Contains(on, c) }
	if watches(CauseN3) && allDown(h.N3) {
		out = append(out, Fault{Cause: CauseN3, Why: down("n3", h.N3)})
	}
	if watches(CauseN4) {
		switch up := func(p Peer) bool { return p.Up }; {
		case allDown(h.N4):
			out = append(out, Fault{Cause: CauseN4, Why: down("n4", h.N4)})
		case len(h.SMFs) == 0:
			out = append(out, Fault{CauseN4, "no SMF is associated", true})
		case !slices.ContainsFunc(h.SMFs, up):
			out = append(out, Fault{CauseN4, "no heartbeats of " + names(h.SMFs), true})
		}
	}
	if up := func(p Peer) bool { return p.Up }; watches(CauseN3Path) && len(h.GNBs) > 0 && !slices.ContainsFunc(h.GNBs, up) {
		out = append(out, Fault{CauseN3Path, "no answer of " + names(h.GNBs), true})
	}
	return out
}

func allDown(ports []Port) bool {
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(p Port) bool { return p.Up })
}

func down(role string, ports []Port) string {
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = p.Name
	}
	return fmt.Sprintf("%s is down: %s", role, strings.Join(all, ", "))
}

// names are at most three.
func names(peers []Peer) string {
	const most = 3
	var all []string
	for _, p := range peers[:min(len(peers), most)] {
		all = append(all, p.Name)
	}
	if more := len(peers) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all, ", "), more)
	}
	return strings.Join(all, ", ")
}

// Gate is whether the prefixes of an entry are announced. The zero value is of an entry
// that has just come.
type Gate struct {
	Open  bool
	Why   string    // it is not open
	Since time.Time // it is so

	began  bool      // it has been open
	faulty time.Time // since when something that is held is not well; zero: all is
	well   time.Time // since when nothing is amiss, while it is not open
}

// Next is the gate after a look at the faults. A gate that was never open opens at once:
// a daemon that starts again announces what the one before it did.
func (g Gate) Next(e *Entry, faults []Fault, now time.Time) Gate {
	hold, holdDown := seconds(cmp.Or(e.HoldTime, DefaultHoldTime)), seconds(cmp.Or(e.HoldDown, DefaultHoldDown))
	if g.Since.IsZero() {
		g.Since = now
	}
	if len(faults) == 0 {
		g.faulty = time.Time{}
		switch {
		case g.Open:
			return g
		case g.well.IsZero():
			g.well = now
		}
		if left := holdDown - now.Sub(g.well); g.began && left > 0 {
			g.Why = fmt.Sprintf("all is well again, for less than %s", holdDown)
			return g
		}
		return Gate{Open: true, Since: now, began: true}
	}
	g.well = time.Time{}
	if g.faulty.IsZero() {
		g.faulty = now
	}
	counts := func(f Fault) bool { return !f.Held || now.Sub(g.faulty) >= hold }
	if g.Open && !slices.ContainsFunc(faults, counts) {
		return g
	}
	if g.Open {
		g.Open, g.Since = false, now
	}
	all := make([]string, len(faults))
	for i, f := range faults {
		all[i] = f.Why
	}
	g.Why = strings.Join(all, "; ")
	return g
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

// Hosts are prefixes of single addresses.
func Hosts(list []netip.Addr) (out []netip.Prefix) {
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}
