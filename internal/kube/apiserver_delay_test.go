//go:build apiserver

package kube

import (
	"strings"
	"testing"
	"time"
)

// delays: the API server takes of delayBound and lowestDelay what nodes take, and nothing else.
func (s *server) delays(t *testing.T) {
	with := func(field string, value any) func(map[string]any) {
		return func(f map[string]any) { f[field] = value }
	}
	for text, bound := range map[string]time.Duration{
		"15ms": 15 * time.Millisecond, "800us": 800 * time.Microsecond, "1us": time.Microsecond, "0.5s": 500 * time.Millisecond,
		"1.25ms": 1250 * time.Microsecond, "1s500ms": 1500 * time.Millisecond, "10s": 10 * time.Second, "9999999us": 9999999 * time.Microsecond,
	} {
		u := policyObject("bounded", spec(with("delayBound", text)))
		if err := s.tryApply(t.Context(), u); err != nil {
			t.Errorf("delayBound %s: %v", text, err)
			continue
		}
		if e, err := readPolicy(s.get(t, u), me); err != nil || time.Duration(e.path.DelayBound) != bound || e.path.LowestDelay {
			t.Errorf("delayBound %s: the node reads %+v, %v", text, e.path.DelayConstraint, err)
		}
	}
	for _, lowest := range []bool{true, false} {
		u := policyObject("bounded", spec(with("lowestDelay", lowest)))
		s.apply(t, u)
		if e, err := readPolicy(s.get(t, u), me); err != nil || e.path.LowestDelay != lowest || e.path.DelayBound != 0 {
			t.Errorf("lowestDelay %t: the node reads %+v, %v", lowest, e.path.DelayConstraint, err)
		}
	}
	const form, limits = "spec.delayBound in body should match", "must be more than 0s, and at most 10s"
	for _, wrong := range []struct {
		field string
		value any
		words string
	}{
		{"delayBound", "", form}, {"delayBound", "15", form}, {"delayBound", "ms", form}, {"delayBound", "-15ms", form}, {"delayBound", "+15ms", form},
		{"delayBound", ".5s", form}, {"delayBound", "1.s", form}, {"delayBound", "15 ms", form}, {"delayBound", "15MS", form}, {"delayBound", "1e3us", form},
		{"delayBound", "15ns", form}, {"delayBound", "15µs", form}, {"delayBound", "1m", form}, {"delayBound", "1h", form}, {"delayBound", "15ms\n", form},
		{"delayBound", "0s", limits}, {"delayBound", "0us0ms", limits}, {"delayBound", "0.0000000001s", limits}, {"delayBound", "11s", limits},
		{"delayBound", "10s1us", limits}, {"delayBound", "10000.001ms", limits}, {"delayBound", "99999999999999999999s", "spec.delayBound: Invalid value"},
		{"delayBound", strings.Repeat("1us", 11), "spec.delayBound: Too long"}, {"delayBound", int64(15), ".spec.delayBound: expected string"},
		{"lowestDelay", "true", ".spec.lowestDelay: expected boolean"}, {"lowestDelay", int64(1), ".spec.lowestDelay: expected boolean"},
	} {
		err := s.tryApply(t.Context(), policyObject("wrong", spec(with(wrong.field, wrong.value))))
		if err == nil || !strings.Contains(err.Error(), wrong.words) {
			t.Errorf("%s %v: %v, want %q", wrong.field, wrong.value, err, wrong.words)
		}
	}
}
