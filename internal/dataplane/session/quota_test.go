package session

import (
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// shared is a session whose two rules share a quota of octets.
func shared(until uint64) Session {
	s := plain(5, 7)
	for i := range s.Rules {
		s.Rules[i].RuleLimits = RuleLimits{StopAt: 4096, Shares: true}
	}
	s.Quotas = []Quota{{Rules: []uint16{1, 2}, Until: until}}
	return s
}

// quotaOf is the entry of a session's quotas, and which rules lead to it.
func quotaOf(s *Sessions, id uint64) (index uint32, e abi.Quota, from []uint16) {
	slot := s.owners.byID.Get(id)
	index = s.owners.quotas[slot]
	for _, entry := range s.owners.state(slot, state{}).entries {
		if entry.kind&entryRule != 0 && index != 0 && s.tables.Refused.LoadHalf(entry.index, wordRefusedQuota, 0) == index {
			from = append(from, entry.rule)
		}
	}
	return index, s.tables.Quota.Get(index), from
}

// TestQuota follows the quotas of a session: the entry stays while the rules are where they
// were, over a restart too, and is given back with the session.
func TestQuota(t *testing.T) {
	s := memorySessions(256)
	must(t, s.Put(shared(10_000)))
	first, e, from := quotaOf(s, 5)
	if first == 0 || len(from) != 2 || e.Limit != [MaxQuotas]uint64{3<<48 | 10_000} || e.Rule[0] == 0 || e.Rule[1] == 0 {
		t.Fatalf("entry %d: %+v, from rules %v", first, e, from)
	}
	must(t, s.Put(shared(20_000)))
	if index, e, _ := quotaOf(s, 5); index != first || e.Limit[0] != 3<<48|20_000 {
		t.Errorf("another quota: entry %d: %+v, want entry %d changed", index, e, first)
	}
	must(t, s.SetQuotas(5, []Quota{{Rules: []uint16{2}, Until: 5, Refused: true}}))
	if _, e, _ := quotaOf(s, 5); e.Limit[0] != 1<<56|2<<48|5 {
		t.Errorf("a quota of rule 2, with what it refused: %#x", e.Limit[0])
	}
	must(t, s.SetLimits(5, 1, RuleLimits{StopAt: 1}))
	if _, _, from := quotaOf(s, 5); len(from) != 1 || from[0] != 2 {
		t.Errorf("rules %v share quotas, want rule 2 alone", from)
	}
	must(t, s.Put(plain(6, 8)))
	if err := s.SetQuotas(6, []Quota{{Rules: []uint16{1}, Until: 5}}); err == nil {
		t.Error("a session that has no quotas got one")
	}
	s = restartMemory(s)
	must(t, s.Put(shared(20_000)))
	must(t, s.Sweep())
	settleMemory(s)
	if index, _, from := quotaOf(s, 5); index != first || len(from) != 2 {
		t.Errorf("after a restart: entry %d, from %v, want %d", index, from, first)
	}
	must(t, s.Put(plain(5, 7)))
	settleMemory(s)
	if used := s.owners.quotaFree.used(); used != 0 || len(s.owners.quotas) != 0 {
		t.Errorf("%d entries are in use, %v by sessions", used, s.owners.quotas)
	}
}

// TestQuotaLeftOver has a daemon die with quotas that no session has any more.
func TestQuotaLeftOver(t *testing.T) {
	s := memorySessions(256)
	must(t, s.Put(shared(10_000)))
	s = restartMemory(s)
	if used := s.owners.quotaFree.used(); used != 1 {
		t.Fatalf("%d entries are in use, want that of an earlier daemon", used)
	}
	must(t, s.Sweep())
	settleMemory(s)
	if used := s.owners.quotaFree.used(); used != 0 {
		t.Errorf("%d entries are in use", used)
	}
}

// TestSharesEnd writes a share that its rule is past: then no rule has one, except of quotas
// that it has no part in.
func TestSharesEnd(t *testing.T) {
	s := memorySessions(256)
	must(t, s.Put(shared(10_000)))
	slot := s.owners.byID.Get(5)
	one, two := s.owners.entryOf(slot, 1), s.owners.entryOf(slot, 2)
	stop := func(i uint32) uint32 { return s.tables.PDR.LoadHalf(i, wordPDRStop, 0) }
	if stop(one) != 16 || stop(two) != 16 {
		t.Fatalf("stops at %d, %d units", stop(one), stop(two))
	}
	s.tables.PDR.Store(one, 0, 1<<40|5000)
	must(t, s.SetLimits(5, 1, RuleLimits{StopAt: 4900, Shares: true}))
	if stop(one) != 19 || stop(two) != usagePast {
		t.Errorf("stops at %d, %#x units, want 19 and one that is past", stop(one), stop(two))
	}
	must(t, s.SetQuotas(5, []Quota{{Rules: []uint16{1}, Until: 9000}, {Rules: []uint16{2}, Until: 9000}}))
	must(t, s.SetLimits(5, 2, RuleLimits{StopAt: 4096, Shares: true}))
	if stop(two) != 16 {
		t.Errorf("stops at %d units, want 16: no quota is shared", stop(two))
	}
}

// TestQuotasChecked refuses what the data path has no room for.
func TestQuotasChecked(t *testing.T) {
	for what, quotas := range map[string][]Quota{
		"too many":               {{}, {}, {}, {}, {}},
		"too many rules":         {{Rules: []uint16{1, 2, 3, 4, 5, 6, 7, 8, 9}}},
		"a rule that is missing": {{Rules: []uint16{1, 3}}},
	} {
		s := memorySessions(256)
		session := plain(5, 7)
		session.Quotas = quotas
		if err := s.Put(session); err == nil {
			t.Errorf("%s: put", what)
		}
	}
}
