package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/liveness"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Kubernetes hears of a round trip again when one is measured first, or when one has differed for
// holdsFor without a break, by a quarter of it and by leastChange: each telling is a write to the API
// server, and a busy host moves a mean for seconds.
const (
	holdsFor    = 30 * time.Second
	leastChange = 100 * time.Microsecond
)

// roundTrips are those of policies' segment lists that Kubernetes was told, by the policies' names.
type roundTrips map[string]toldTrips

// toldTrips are the mean round trips of a policy's lists; 0: none is known.
type toldTrips struct {
	lists string // by SegmentList.Key
	means []time.Duration
	since time.Time // that what is measured has differed; zero: it does not
}

// tell returns what Kubernetes is to be told now, by policy. delays are by SegmentList.Key; nil:
// nothing is probed.
func (r roundTrips) tell(policies map[string]srpolicy.Policy, delays map[string]liveness.Delay, at time.Time) map[string]string {
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
		now := toldTrips{}
		for _, l := range p.SegmentLists {
			now.lists += l.Key() + " "
			now.means = append(now.means, delays[l.Key()].Mean)
		}
		told := r[name]
		switch {
		case told.lists != now.lists, isFirst(told.means, now.means):
			told = now
		case slices.EqualFunc(told.means, now.means, isAbout):
			told.since = time.Time{}
		case told.since.IsZero():
			told.since = at
		case at.Sub(told.since) >= holdsFor:
			told = now
		}
		r[name] = told
		out[name] = told.text()
	}
	return out
}

// isFirst says whether a round trip is known now that was not.
func isFirst(told, now []time.Duration) bool {
	for i := range now {
		if told[i] == 0 && now[i] != 0 {
			return true
		}
	}
	return false
}

// isAbout says whether a round trip is still about the one before.
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
