package session

import (
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// A bucket begins now, whichever write begins it; a session that is put again begins
// none.
func TestBucketBegins(t *testing.T) {
	all := variants()
	for name, puts := range map[string][]string{
		"a rule with a rate": {"rates"},
		"a rate for a rule":  {"plain", "rates"},
		"meters":             {"meters"},
		"meters for a rule":  {"plain", "meters"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memorySessions(0)
			for _, put := range puts[:len(puts)-1] {
				must(t, s.Put(all[put]))
			}
			last := all[puts[len(puts)-1]]
			before, err := table.Monotonic()
			must(t, err)
			must(t, s.Put(last))
			after, err := table.Monotonic()
			must(t, err)
			began, buckets := uint32(before>>meterTimeShift), 0
			check := func(bucket uint64, window uint32) {
				buckets++
				if passed := uint32(bucket>>32) + window - began; passed > uint32(after>>meterTimeShift)-began {
					t.Errorf("a bucket begins at %d, not at %d", uint32(bucket>>32)+window, began)
				}
			}
			for _, r := range last.Rules {
				if at := s.EntryAt(last.ID, r.ID); r.Rate != 0 {
					check(s.tables.PDR.Load(at, wordPDRBucket), octetWindow(kilobits(r.Rate)))
				}
			}
			for _, at := range s.owners.meters[s.owners.byID.Get(last.ID)] {
				check(s.tables.Meter.Load(at, wordMeterBucket), s.tables.Meter.LoadHalf(at, wordMeterUnit, 1))
			}
			if buckets != 2 {
				t.Errorf("%d buckets", buckets)
			}
			p, err := planOf(s, last)
			must(t, err)
			if beginsBucket(p) {
				t.Errorf("put again: %v", p.Writes)
			}
		})
	}
}
