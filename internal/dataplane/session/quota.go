package session

import (
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// Quota is a volume that rules of a session use together: RuleLimits.Shares.
type Quota struct {
	Rules []uint16 // IDs
	// Until is where it ends: the sum of the octets that the rules counted.
	Until   uint64
	Refused bool // what gates and rates refused counts too
}

// What a session may have of quotas, how many rules may share them, and the end of any.
const (
	MaxQuota      = uint64(1) << (abi.QuotaLimitsQUOTA_OCTETS - 1)
	MaxQuotas     = int(abi.QuotaLimitsQUOTA_LIMITS)
	MaxQuotaRules = int(abi.QuotaLimitsQUOTA_RULES)
)

// Equal says whether two quotas are the same.
func (q Quota) Equal(other Quota) bool {
	return q.Until == other.Until && q.Refused == other.Refused && slices.Equal(q.Rules, other.Rules)
}

// checkQuotas says whether the data path has room for quotas, and which rule is missing.
func checkQuotas(s *Session) error {
	if len(s.Quotas) > MaxQuotas {
		return fmt.Errorf("%d quotas: want at most %d", len(s.Quotas), MaxQuotas)
	}
	rules := QuotaRules(s.Quotas)
	if len(rules) > MaxQuotaRules {
		return fmt.Errorf("%d rules share quotas: want at most %d", len(rules), MaxQuotaRules)
	}
	for _, id := range rules {
		if !slices.ContainsFunc(s.Rules, func(r Rule) bool { return r.ID == id }) {
			return fmt.Errorf("quota: rule %d is missing", id)
		}
	}
	return nil
}

// QuotaRules are the rules that share quotas, each once, sorted.
func QuotaRules(list []Quota) (ids []uint16) {
	for _, q := range list {
		ids = append(ids, q.Rules...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// putLimits writes quotas into an entry whose rules are there; false: one is not. at says
// where a rule is.
func putLimits(e *abi.Quota, list []Quota, at func(rule uint16) uint32) bool {
	e.Limit = [MaxQuotas]uint64{}
	for i, q := range list {
		limit := q.Until & (1<<abi.QuotaLimitsQUOTA_OCTETS - 1)
		for _, id := range q.Rules {
			n := slices.Index(e.Rule[:], at(id))
			if n < 0 || at(id) == 0 {
				return false
			}
			limit |= 1 << (int(abi.QuotaLimitsQUOTA_OCTETS) + n)
		}
		if q.Refused {
			limit |= 1 << abi.QuotaLimitsQUOTA_REFUSED
		}
		e.Limit[i] = limit
	}
	return true
}

// placeQuota finds the entry of a session's quotas: the one that it has, if the rules are
// where they were, or a new one. Then only limits change under packets.
func (p *Plan) placeQuota() (err error) {
	p.quota, p.takenQuota, p.quotas = 0, 0, abi.Quota{}
	if len(p.session.Quotas) == 0 {
		return nil
	}
	at := func(rule uint16) uint32 { return p.ruleOf(rule).at }
	if p.old.quota != 0 {
		p.quotas = p.tables.Quota.Get(p.old.quota)
		if putLimits(&p.quotas, p.session.Quotas, at) {
			p.quota = p.old.quota
			return nil
		}
	}
	p.quotas = abi.Quota{}
	for i, id := range QuotaRules(p.session.Quotas) {
		p.quotas.Rule[i] = at(id)
	}
	putLimits(&p.quotas, p.session.Quotas, at)
	if p.quota, err = p.owners.take(&p.owners.quotaFree); err == nil {
		p.takenQuota = p.quota
	}
	return err
}

// Words of an entry of quota: those of the limits come behind the rules.
const wordQuotaLimit = MaxQuotaRules / 2

// writeQuota makes an entry say which rules share which quotas: each limit changes whole.
func (s *writer) writeQuota(index uint32, e *abi.Quota, fresh bool) {
	if fresh {
		s.tables.Quota.Put(index, e)
		return
	}
	for i, limit := range e.Limit {
		s.tables.Quota.Change(index, wordQuotaLimit+i, limit)
	}
}

// SetQuotas changes the quotas of a session whose rules share some.
func (s *Sessions) SetQuotas(id uint64, list []Quota) error {
	return s.retrying(func() error {
		slot := s.owners.byID.Get(id)
		if slot == 0 {
			return &MissingError{id}
		}
		index := s.owners.quotas[slot]
		e := s.tables.Quota.Get(index)
		if index == 0 || !putLimits(&e, list, func(rule uint16) uint32 { return s.owners.entryOf(slot, rule) }) {
			return fmt.Errorf("session %#x: quotas: want some of those that it was put with", id)
		}
		s.writer.writeQuota(index, &e, false)
		s.writer.endShares(index)
		return nil
	})
}

// usagePast is a stop that a volume has reached (USAGE_PAST in bpf/def/tables.h).
const usagePast = 0xfffffffe

// shareWord is the end of a share as the data path compares it: where that is too far ahead,
// an earlier one, which costs packets a look at the quota.
func shareWord(octets, counted uint64) uint32 {
	at, now := octets>>usageUnit, counted>>usageUnit
	if word := uint32(min(max(at, now), now+usageAhead)); word != 0 {
		return word
	}
	return usagePast
}

// setQuota leads a rule to the quotas that it shares; 0: it ends at its own stop.
func (s *writer) setQuota(i, quota uint32) {
	if s.tables.Refused.LoadHalf(i, wordRefusedQuota, 0) != quota {
		s.tables.Refused.StoreHalf(i, wordRefusedQuota, 0, quota)
	}
}

// endShares ends the shares of rules that share a quota with one that is at the end of its
// share, as that rule's next packet would: it may have got there while shares were written.
func (s *writer) endShares(quota uint32) {
	if quota == 0 {
		return
	}
	e := s.tables.Quota.Get(quota)
	units := func(i uint32) uint32 { return uint32(counter.ReadVolume(s.tables.PDR.Words(i)).Bytes >> usageUnit) }
	shares := func(i uint32) bool { return i != 0 && s.tables.Refused.LoadHalf(i, wordRefusedQuota, 0) == quota }
	over := func(i uint32) bool {
		stop := s.tables.PDR.LoadHalf(i, wordPDRStop, 0)
		return stop != 0 && int32(stop-units(i)) <= 0
	}
	for n, i := range e.Rule {
		if !shares(i) || !over(i) {
			continue
		}
		for m, other := range e.Rule {
			if shares(other) && !over(other) && slices.ContainsFunc(e.Limit[:], func(l uint64) bool {
				members := l >> abi.QuotaLimitsQUOTA_OCTETS
				return (members>>n)&(members>>m)&1 != 0
			}) {
				s.tables.PDR.StoreHalf(other, wordPDRStop, 0, shareWord(0, uint64(units(other))<<usageUnit))
			}
		}
	}
}
