package liveness

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// lines are lists with delays of their own, and a choice among them, on a clock of their own.
type lines struct {
	*choice
	targets map[string]*target
	delays  map[string]func() time.Duration // of the next probe; 0: it is lost
	now     time.Time
	was     map[string]Standing
	changes int // of the standings
}

func newLines(c Choice, delays map[string]func() time.Duration) *lines {
	l := &lines{choice: newChoice(c, nil), targets: map[string]*target{}, delays: delays, now: time.Unix(1, 0), was: map[string]Standing{}}
	for list := range delays {
		l.targets[list] = &target{monitor: monitor{interval: interval, multiplier: 3}}
	}
	return l
}

func (l *lines) pass(d time.Duration) map[string]Standing {
	for end := l.now.Add(d); l.now.Before(end); {
		for list, t := range l.targets {
			if delay := l.delays[list](); delay > 0 {
				t.receive(t.send(l.now), delay)
			} else {
				t.send(l.now)
			}
			t.monitor.judge(l.now)
		}
		l.now = l.now.Add(interval)
		if is := l.judge(l.now, l.targets); !maps.Equal(is, l.was) {
			l.was = is
			l.changes++
		}
	}
	return l.was
}

func (l *lines) want(t *testing.T, when string, after time.Duration, want map[string]Standing) {
	t.Helper()
	if got := l.pass(after); !maps.Equal(got, want) {
		t.Errorf("%s, %s later: %+v, want %+v", when, after, got, want)
	}
}

// around is a delay that varies evenly, from a generator that gives the same each time.
func around(mean, by time.Duration) func() time.Duration {
	r := rand.New(rand.NewPCG(uint64(by), uint64(mean)))
	return func() time.Duration { return mean - by + time.Duration(r.Int64N(int64(2*by))) }
}

func steady(d time.Duration) func() time.Duration { return around(d, 1) }

// A list leaves once half of its latest probes took longer than the bound, and returns when the hold
// has passed with all medians a tenth below.
func TestBound(t *testing.T) {
	l := newLines(Choice{Lists: []string{"a", "b"}, Bound: 15 * ms}, map[string]func() time.Duration{"a": steady(5 * ms), "b": steady(8 * ms)})
	above := map[string]Standing{"a": {Above: true}}
	l.want(t, "within the bound", time.Minute, map[string]Standing{})
	l.delays["a"] = steady(20 * ms)
	l.want(t, "above", 100*ms, map[string]Standing{})
	l.want(t, "above", 100*ms, above)
	l.delays["a"] = steady(14 * ms)
	l.want(t, "a little below", time.Minute, above)
	l.delays["a"] = steady(13 * ms)
	l.want(t, "a tenth below, within the hold", 9*time.Second, above)
	l.delays["a"] = steady(14 * ms)
	l.want(t, "a little below, within the hold", time.Second, above)
	l.delays["a"] = steady(13 * ms)
	l.want(t, "a tenth below, within the hold that began anew", 9*time.Second, above)
	l.want(t, "a tenth below, after the hold", 2*time.Second, map[string]Standing{})
	l.delays["a"] = steady(20 * ms)
	l.want(t, "above again", 200*ms, above)
	l.delays["a"] = steady(ms)
	l.want(t, "below, within twice the hold", 19*time.Second, above)
	l.want(t, "below, after twice the hold", 2*time.Second, map[string]Standing{})
}

// What jitters changes nothing, or once.
func TestJitter(t *testing.T) {
	const bound = 15 * ms
	spikes := func() func() time.Duration {
		n := 0
		return func() time.Duration {
			if n++; n%4 == 0 {
				return 300 * ms
			}
			return 5 * ms
		}
	}
	for name, tt := range map[string]struct {
		a, b   func() time.Duration
		lowest bool
		most   int // changes after the first second
	}{
		"around the bound":           {around(bound, 5*ms), steady(ms), false, 1},
		"just below":                 {around(bound-2*ms, 2*ms), steady(ms), false, 0},
		"just above":                 {around(bound+1*ms, 3*ms), steady(ms), false, 1},
		"both around the bound":      {around(bound, 4*ms), around(bound, 4*ms), false, 3},
		"single probes late":         {spikes(), steady(ms), false, 0},
		"equal ones":                 {around(10*ms, 2*ms), around(10*ms, 2*ms), true, 0},
		"nearly equal ones":          {around(10*ms, ms), around(11*ms, ms), true, 0},
		"very short ones":            {around(100*time.Microsecond, 90*time.Microsecond), around(300*time.Microsecond, 200*time.Microsecond), true, 0},
		"one lower, with late ones":  {spikes(), steady(9 * ms), true, 0},
		"one always half of another": {around(5*ms, 4*ms), around(10*ms, 8*ms), true, 0},
	} {
		c := Choice{Lists: []string{"a", "b"}, Bound: bound}
		if tt.lowest {
			c.Bound, c.Lowest = 0, true
		}
		l := newLines(c, map[string]func() time.Duration{"a": tt.a, "b": tt.b})
		l.pass(time.Second)
		l.changes = 0
		l.pass(10 * time.Minute)
		t.Logf("%s: %d changes in ten minutes", name, l.changes)
		if l.changes > tt.most {
			t.Errorf("%s: %d changes in ten minutes, want %d at most", name, l.changes, tt.most)
		}
	}
}

// A list that is slow only while it carries packets would go to and fro. It waits longer each time.
func TestOscillation(t *testing.T) {
	for name, c := range map[string]Choice{
		"a bound": {Lists: []string{"a", "b"}, Bound: 15 * ms}, "the lowest": {Lists: []string{"a", "b"}, Lowest: true},
	} {
		l := newLines(c, map[string]func() time.Duration{"b": steady(8 * ms)})
		l.delays["a"] = func() time.Duration {
			if _, out := l.was["a"]; out {
				return ms
			}
			return 30 * ms
		}
		l.targets["a"] = &target{monitor: monitor{interval: interval, multiplier: 3}}
		l.pass(10 * time.Minute)
		first := l.changes
		l.pass(time.Hour)
		t.Logf("%s: %d changes in the first ten minutes, %d in the hour after", name, first, l.changes-first)
		if first < 4 || first > 14 || l.changes-first > 30 {
			t.Errorf("%s: %d changes in ten minutes, %d in the hour after", name, first, l.changes-first)
		}
	}
}

// Equal lists share, also with the bound far away; the others are aside, and follow at once when
// the lowest one dies.
func TestLowest(t *testing.T) {
	aside := Standing{Aside: notLowest}
	l := newLines(Choice{Lists: []string{"a", "b", "c"}, Lowest: true}, map[string]func() time.Duration{"a": steady(10 * ms), "b": steady(10400 * time.Microsecond), "c": steady(20 * ms)})
	l.want(t, "two equal ones", time.Second, map[string]Standing{"c": aside})
	l.delays["b"] = steady(11 * ms)
	l.want(t, "a tenth behind", time.Minute, map[string]Standing{"c": aside})
	l.delays["b"] = steady(12 * ms)
	l.want(t, "a fifth behind", time.Second, map[string]Standing{"b": aside, "c": aside})
	l.delays["b"] = steady(11 * ms)
	l.want(t, "a tenth behind again", time.Minute, map[string]Standing{"b": aside, "c": aside})
	l.delays["a"] = func() time.Duration { return 0 }
	l.want(t, "the lowest is dead", 100*ms, map[string]Standing{"c": aside})
	l.delays["a"] = steady(10 * ms)
	l.want(t, "it lives", 300*ms, map[string]Standing{"c": aside})
}

// Where no list is within the bound, those with the lowest delay carry packets.
func TestNoneWithin(t *testing.T) {
	l := newLines(Choice{Lists: []string{"a", "b"}, Bound: 15 * ms}, map[string]func() time.Duration{"a": steady(20 * ms), "b": steady(30 * ms)})
	l.want(t, "none is within", time.Second, map[string]Standing{"a": {Above: true}, "b": {Above: true, Aside: notLowest}})
	l.delays["b"] = steady(5 * ms)
	l.want(t, "one is, and waits", time.Second, map[string]Standing{"a": {Above: true}, "b": {Above: true, Aside: notLowest}})
	l.want(t, "one is", 10*time.Second, map[string]Standing{"a": {Above: true}})
	l.delays["a"], l.delays["b"] = func() time.Duration { return 0 }, func() time.Duration { return 0 }
	l.want(t, "both are dead", time.Second, map[string]Standing{})
}

// A list that is not measured carries packets only while none is known to be within the bound. One
// that is back from the dead is not within it before it is measured.
func TestNotMeasured(t *testing.T) {
	l := newLines(Choice{Lists: []string{"a", "b"}, Bound: 15 * ms}, map[string]func() time.Duration{"a": steady(5 * ms)})
	l.want(t, "the first probes", 100*ms, map[string]Standing{})
	l.want(t, "one is measured, and nobody probes the other", time.Second, map[string]Standing{"b": {Aside: notMeasured}})
	l.delays["a"] = steady(20 * ms)
	l.want(t, "the other is better than what is above", time.Second, map[string]Standing{"a": {Above: true}})

	l = newLines(Choice{Lists: []string{"a"}, Bound: 15 * ms}, map[string]func() time.Duration{"a": steady(5 * ms)})
	l.targets["a"] = &target{monitor: monitor{interval: interval, multiplier: 1}} // it lives again sooner than it is measured
	l.pass(time.Second)
	l.delays["a"] = func() time.Duration { return 0 }
	l.want(t, "dead", 200*ms, map[string]Standing{})
	l.delays["a"] = steady(20 * ms)
	l.want(t, "back, and not measured", 100*ms, map[string]Standing{"a": {Above: true, Aside: notMeasured}})
	l.want(t, "back, and slow", 200*ms, map[string]Standing{"a": {Above: true}})
}

// Another set of lists keeps what is known; another bound is judged anew.
func TestNewChoice(t *testing.T) {
	l := newLines(Choice{Lists: []string{"a", "b"}, Bound: 15 * ms}, map[string]func() time.Duration{"a": steady(20 * ms), "b": steady(5 * ms)})
	l.pass(time.Second)
	l.delays["a"] = steady(5 * ms)
	l.choice = newChoice(Choice{Lists: []string{"b", "a"}, Bound: 15 * ms}, l.choice)
	l.want(t, "the hold lasts", time.Second, map[string]Standing{"a": {Above: true}})
	l.choice = newChoice(Choice{Lists: []string{"a", "b"}, Bound: 14 * ms}, l.choice)
	l.want(t, "another bound", 2*interval, map[string]Standing{})
}
