package loop

import (
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// returns watches links come back.
type returns struct {
	links map[[3]string]bool // directions that were there; nil: none was seen
	until time.Time
	wait  time.Duration
}

// mostHolds is how many times the hold time a link that comes and goes is waited for.
const mostHolds = 16

// see says why the network is not to be trusted yet; empty: it is. A link that returns is waited
// for; if one returns again within twice that time, for twice as long.
func (w *returns) see(t te.Topology, hold time.Duration, now time.Time) (why string) {
	links := map[[3]string]bool{}
	returned := false
	for _, l := range t.Links {
		d := [3]string{l.From, l.To, l.Name}
		links[d] = true
		returned = returned || w.links != nil && !w.links[d]
	}
	w.links = links
	if returned {
		if again := now.Before(w.until.Add(w.wait)); again {
			w.wait = min(2*w.wait, mostHolds*hold)
		} else {
			w.wait = hold
		}
		w.until = now.Add(w.wait)
	}
	if now.Before(w.until) {
		return fmt.Sprintf("a link has returned: the network settles until %s", w.until.Format(time.TimeOnly))
	}
	return ""
}
