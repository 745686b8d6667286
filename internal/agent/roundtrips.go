package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/liveness"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// What is told of round trips is told again when one has changed by a quarter of it and by
// leastChange, and not more often than each tellInterval: each telling is a write to the API server.
const (
	tellInterval = 30 * time.Second
	leastChange  = 100 * time.Microsecond
)

// roundTrips are those of policies' segment lists that Kubernetes was told, by the policies' names.
type roundTrips map[string]toldTrips

// toldTrips are the mean round trips of a policy's lists; 0: none is known.
type toldTrips struct {
	means []time.Duration
	at    time.Time
}

// tell returns what Kubernetes is to be told now, by policy. delays are by SegmentList.Key; nil:
// nothing is probed.
func (r roundTrips) tell(policies map[string]srpolicy.Policy, delays map[string]liveness.Delay, now time.Time) map[string]string {
	for name := range r {
		if _, there := policies[name]; !there || delays == nil {
			delete(r, name)
		}
	}
	out := map[string]string{}
	for name, p := range policies {
		if delays == nil {
			break
		}
		var means []time.Duration
		for _, l := range p.SegmentLists {
			means = append(means, delays[l.Key()].Mean)
		}
		told, before := r[name]
		if !before || len(told.means) != len(means) || now.Sub(told.at) >= tellInterval && !slices.EqualFunc(told.means, means, isAbout) {
			told = toldTrips{means, now}
			r[name] = told
		}
		out[name] = told.text()
	}
	return out
}

// isAbout says whether a round trip is still about what was told.
func isAbout(told, now time.Duration) bool {
	difference := max(told, now) - min(told, now)
	return (told == 0) == (now == 0) && (difference < leastChange || difference*4 < told)
}

// text has a word for each list; "-": none of its probes has returned. Empty: none of any list has.
func (t toldTrips) text() string {
	var words []string
	for _, d := range t.means {
		word := "-"
		if d != 0 {
			word = d.Round(10 * time.Microsecond).String()
		}
		words = append(words, word)
	}
	if !slices.ContainsFunc(words, func(w string) bool { return w != "-" }) {
		return ""
	}
	return strings.Join(words, " ")
}
