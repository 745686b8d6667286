package liveness

import (
	"cmp"
	"slices"
	"time"
)

// Choice is a candidate path whose lists carry packets by their delay: the median of their latest
// round trips.
type Choice struct {
	Key    string        // the caller's
	Lists  []string      // keys of targets; what is no target is not measured
	Bound  time.Duration // lists above it carry nothing; 0: none
	Lowest bool          // only the lists with the lowest delay carry packets
}

// Standing is what delay makes of a list of a choice. The zero value: it carries packets.
type Standing struct {
	Above bool // the bound, or back from the dead and not measured yet
	// Aside says why a list that is not above the bound carries nothing, or one that is, where
	// none is within it. Empty: it carries packets.
	Aside string
}

const (
	notLowest   = "another list has a lower delay"
	notMeasured = "its delay is not measured yet"
)

// A list that has left for its delay returns when it has been good for firstHold without a break.
// If it leaves again soon after, it waits twice as long, up to longestHold: where packets make a
// list slow, they would go to and fro.
const (
	firstHold   = 10 * time.Second
	longestHold = 320 * time.Second
)

// choice is a Choice with what has been judged so far.
type choice struct {
	Choice
	members []*member
}

// member is a list of a choice.
type member struct {
	list     string
	delay    time.Duration // zero: not measured
	known    bool          // it has been measured before
	above    bool
	lowest   bool
	hold     time.Duration // zero: it has never left
	until    time.Time     // it does not return before
	returned time.Time
}

// newChoice keeps what has been judged of the lists before, if the choice asks for the same.
func newChoice(c Choice, before *choice) *choice {
	next := &choice{Choice: c}
	for _, list := range c.Lists {
		m := &member{list: list}
		if before != nil && before.Bound == c.Bound && before.Lowest == c.Lowest {
			if i := slices.IndexFunc(before.members, func(m *member) bool { return m.list == list }); i >= 0 {
				m = before.members[i]
			}
		}
		next.members = append(next.members, m)
	}
	return next
}

// judge returns the standings of the lists that live, without those that are zero. Lists within
// the bound come first, then those that nobody has measured yet, then those above.
func (c *choice) judge(now time.Time, targets map[string]*target) map[string]Standing {
	var within, fresh, above []*member
	out := map[string]Standing{}
	for _, m := range c.members {
		switch t := targets[m.list]; {
		case t != nil && t.dead:
			m.lowest = false
			continue
		case t != nil:
			m.delay = t.median()
			m.known = m.known || m.delay > 0
		}
		switch c.bind(m, now); {
		case m.delay == 0 && m.known: // back from the dead: it may be as slow as it seemed
			m.lowest, out[m.list] = false, Standing{Above: c.Bound > 0, Aside: notMeasured}
		case m.delay == 0:
			m.lowest, fresh = false, append(fresh, m)
		case m.above:
			above, out[m.list] = append(above, m), Standing{Above: true}
		default:
			within = append(within, m)
		}
	}
	switch {
	case len(within) > 0:
		for _, m := range fresh {
			out[m.list] = Standing{Aside: notMeasured}
		}
		for _, m := range above {
			m.lowest = false
		}
		if c.Lowest {
			selectLowest(within, now, out)
		}
	case len(fresh) == 0 && len(above) > 0:
		selectLowest(above, now, out)
	}
	return out
}

// bind decides whether a list is above the bound: a tenth below is good.
func (c *choice) bind(m *member, now time.Time) {
	switch {
	case c.Bound == 0 || m.delay == 0:
	case !m.above && m.delay > c.Bound:
		m.above = true
		m.leave(now)
	case m.above && m.delay > c.Bound-c.Bound/10:
		m.wait(now)
	case m.above && !now.Before(m.until):
		m.above, m.returned = false, now
	}
}

// selectLowest puts all lists aside but those with the lowest delay. Lists that differ by a
// twentieth or 250 microseconds are equal, which is good; one that carries packets leaves when it
// is 15 % behind, and 500 microseconds.
func selectLowest(from []*member, now time.Time, out map[string]Standing) {
	free := slices.Clone(from)
	free = slices.DeleteFunc(free, func(m *member) bool { return !m.lowest && now.Before(m.until) })
	if len(free) == 0 {
		free = from
	}
	lowest := slices.MinFunc(free, func(a, b *member) int { return cmp.Compare(a.delay, b.delay) }).delay
	for _, m := range from {
		switch behind := m.delay - lowest; {
		case m.lowest && behind > max(3*lowest/20, 500*time.Microsecond):
			m.lowest = false
			m.leave(now)
		case !m.lowest && behind > max(lowest/20, 250*time.Microsecond):
			m.wait(now)
		case !m.lowest && slices.Contains(free, m):
			m.lowest, m.returned = true, now
		}
		if !m.lowest {
			out[m.list] = Standing{Above: m.above, Aside: notLowest}
		}
	}
}

func (m *member) leave(now time.Time) {
	if m.hold > 0 && now.Sub(m.returned) <= 2*m.hold {
		m.hold = min(2*m.hold, longestHold)
	} else {
		m.hold = firstHold
	}
	m.wait(now)
}

// wait begins the time anew in which a list has to be good.
func (m *member) wait(now time.Time) { m.until = now.Add(max(m.hold, firstHold)) }
