package config

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// Liveness probes the segment lists of SR policies: a list of which no probe returns is not
// used.
type Liveness struct {
	Enabled bool `json:"enabled,omitempty"`
	// SID is where probes end: an address of this node that routers of the SR domain send
	// here. Default, in a cluster: function 0xf of the node's locator.
	SID        netip.Addr `json:"sid,omitzero"`
	Interval   uint16     `json:"interval,omitempty"`   // milliseconds between two probes of a list, 10 unless set
	Multiplier uint8      `json:"multiplier,omitempty"` // probes in a row that are lost: 3 unless set
	// Ends are SIDs with the behaviour End of other routers. A probe cannot visit the last
	// segment of a list, which would decapsulate it: it visits that router's End. In a
	// cluster the nodes' are known.
	Ends []LivenessEnd `json:"ends,omitempty"`
}

// LivenessEnd is a SID with the behaviour End of the router that has the locator.
type LivenessEnd struct {
	Locator netip.Prefix `json:"locator"`
	SID     netip.Addr   `json:"sid"`
}

// The defaults of liveness.
const (
	DefaultLivenessInterval   = 10
	DefaultLivenessMultiplier = 3
)

// checkLiveness validates the section liveness.
func checkLiveness(v *validator) {
	l := &v.Liveness
	if !l.Enabled {
		isSet := l.SID.IsValid() || l.Interval != 0 || l.Multiplier != 0 || len(l.Ends) > 0
		v.refuse(isSet, "liveness.enabled", "true, or remove the section", "is missing")
		return
	}
	v.refuse(!l.SID.IsValid() && (!v.Overlay.IsSet() || v.Overlay.SIDs == SIDsDouble),
		"liveness.sid", "an address in this node's locator, which routers send here", "is missing")
	v.unicast6("liveness.sid", l.SID)
	because(&v.problems, "liveness.enabled", func() {
		v.refuse(!v.Encapsulation.Source.IsValid() && !v.Overlay.IsSet(),
			"encapsulation.source", "this node's IPv6 address, which probes are from", "is missing, and liveness is enabled")
	})
	const longest, fewest, most = 1000, 2, 50
	v.refuse(l.Interval > longest, "liveness.interval", fmt.Sprintf("at most %d milliseconds", longest), "%d finds nothing in time", l.Interval)
	v.refuse(l.Multiplier != 0 && (l.Multiplier < fewest || l.Multiplier > most),
		"liveness.multiplier", fmt.Sprintf("%d to %d: one lost packet is no fault", fewest, most), "is %d", l.Multiplier)
	locators := v.unique()
	for i, e := range l.Ends {
		at := fmt.Sprintf("liveness.ends[%d]", i)
		if v.prefix6(at+".locator", e.Locator) {
			locators.check(at+".locator", e.Locator.Masked().String(), "give each locator once")
		}
		if v.fieldsAt(at+".sid", srv6.CheckUnicast6("sid", e.SID)) {
			v.refuse(!e.Locator.Contains(e.SID), at+".sid", "a SID of that router, with the behaviour End", "%s is not in %s", e.SID, e.Locator)
		}
	}
}
