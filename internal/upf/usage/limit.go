package usage

import (
	"slices"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/rules"
)

// granule is the unit, in octets, in which the data path compares limits.
const granule = 256

// largest bounds the octets of a packet.
const largest = 1 << 16

// Limit writes into the rules of a session at which volumes the data path notifies
// us of each, and stops it, and which quotas they share. It follows these rules from now on.
// u may be nil.
func (u *Usage) Limit(s *session.Session, to *datapath.Session) {
	if u == nil {
		return
	}
	list := to.Rules
	u.counts = slices.DeleteFunc(u.counts, func(c count) bool { return !hasRule(list, c.rule) })
	for i := range list {
		if u.countOf(list[i].ID) == nil {
			u.counts = append(u.counts, count{rule: list[i].ID})
		}
	}
	u.quotas = u.findQuotas(s)
	u.shares = u.quotas != nil
	u.arm(s)
	to.Quotas = u.quotas
	for i := range list {
		c := u.countOf(list[i].ID)
		list[i].RuleLimits = c.limits()
		if c.stops && c.stopAt < granule { // the data path would round it up
			list[i].StopAt, list[i].Action = 0, datapath.ActionDrop
		}
	}
}

// Relimit calls set for each rule whose limits change now, and setQuotas where quotas that rules
// share have ended. Shares that become smaller come first, so that together they never exceed a
// quota.
func (u *Usage) Relimit(s *session.Session, set func(rule uint16, l datapath.RuleLimits), setQuotas func([]datapath.Quota)) {
	before, ended := slices.Clone(u.counts), false
	if u.shares {
		u.quotas = u.findQuotas(s)
	}
	u.arm(s)
	for _, grows := range []bool{false, true} {
		for i := range u.counts {
			c, had := &u.counts[i], &before[i]
			ends := u.shares && c.stops
			ended = ended || ends
			changed := c.stopAt != had.stopAt || c.notifyAt != had.notifyAt || c.refused.notifyAt != had.refused.notifyAt
			if (c.stopAt > had.stopAt) == grows && (changed || ends || c.looksAgain()) {
				set(c.rule, c.limits())
			}
		}
	}
	if ended {
		setQuotas(u.quotas)
	}
}

// Loses says whether a rule that is counted is not in a list. u may be nil.
func (u *Usage) Loses(list []datapath.Rule) bool {
	return u != nil && slices.ContainsFunc(u.counts, func(c count) bool { return !hasRule(list, c.rule) })
}

func hasRule(list []datapath.Rule, id uint16) bool {
	return find(list, func(r *datapath.Rule) bool { return r.ID == id }) != nil
}

// Applied returns a session as it applies now: a PDR whose quota is used up has the FAR that the
// SMF has named for that (FAR ID for Quota Action). u may be nil.
func (u *Usage) Applied(s *session.Session) *session.Session {
	if u == nil {
		return s
	}
	applied := s
	for i := range s.URRs {
		urr := &s.URRs[i]
		if m := u.measurementOf(urr.ID); urr.FARForQuotaAction == nil || m == nil || !m.exhausted {
			continue
		}
		if applied == s {
			applied = new(*s)
			applied.PDRs = slices.Clone(s.PDRs)
		}
		for j := range applied.PDRs {
			if p := &applied.PDRs[j]; slices.Contains(p.URRs, urr.ID) {
				p.FAR = *urr.FARForQuotaAction
			}
		}
	}
	return applied
}

// arm sets the limits of each rule: those of the URR that is nearest to one. The
// rules that count towards a volume share what is left of it. They share it anew
// at the latest when one of them has used half of its share. A rule that has used its
// share of a quota goes on with what others leave, which the data path sees to
// where it has room for the session's quotas.
func (u *Usage) arm(s *session.Session) {
	for i := range u.counts {
		c := &u.counts[i]
		c.notifyAt, c.stopAt, c.stops, c.refused.notifyAt = 0, 0, false, 0
	}
	u.waiting = false
	if u.inactive && s.InactivityTimer > 0 {
		for i := range u.counts {
			u.counts[i].notifyNext()
		}
	}
	for i := range u.measurements {
		if !s.URRs[i].Inactive {
			u.armURR(s, &s.URRs[i], &u.measurements[i])
		}
	}
}

// findQuotas finds the volume quotas that are not used up, and where they end. None where the
// data path has no room for all of them: each rule then stops at its own share.
func (u *Usage) findQuotas(s *session.Session) (list []datapath.Quota) {
	for i := range u.measurements {
		urr, m := &s.URRs[i], &u.measurements[i]
		if urr.Inactive || m.exhausted || !urr.Volume {
			continue
		}
		limits(urr.VolumeQuota, m.quota, func(k kind, rest uint64) {
			q := datapath.Quota{Until: rest, Refused: urr.BeforeQoS}
			u.each(s, urr.ID, k, func(c *count) {
				q.Rules = append(q.Rules, c.rule)
				q.Until += c.volume.Bytes
				if q.Refused {
					q.Until += c.refused.volume.Bytes
				}
			})
			if rest > 0 && len(q.Rules) > 0 {
				list = append(list, q)
			}
		})
	}
	if len(list) > datapath.MaxQuotas || len(datapath.QuotaRules(list)) > datapath.MaxQuotaRules ||
		slices.ContainsFunc(list, func(q datapath.Quota) bool { return q.Until >= datapath.MaxQuota }) {
		return nil
	}
	return list
}

func (u *Usage) armURR(s *session.Session, urr *session.URR, m *measurement) {
	if m.exhausted {
		if urr.FARForQuotaAction == nil {
			u.each(s, urr.ID, total, func(c *count) { c.stopNow() })
		}
	} else if urr.Volume {
		u.armQuota(s, urr, m)
	}
	if m.awaits(urr) && !u.wait() {
		u.each(s, urr.ID, total, func(c *count) {
			c.notifyNext()
			if urr.BeforeQoS {
				c.refused.notify(c.refused.volume.Bytes / granule * granule)
			}
		})
	}
	volume, _ := m.thresholds(urr)
	if !urr.Volume || urr.Trigger&session.TriggerVolumeThreshold == 0 {
		return
	}
	limits(volume, m.volume, func(k kind, rest uint64) {
		if rest > 0 || !u.wait() {
			u.share(s, urr, k, rest, func(c *count, share part) {
				if share.near {
					c.notifyNext()
				} else { // rather look once more than report late: a quota may end soon behind the threshold
					c.notify((c.volume.Bytes + share.octets) / granule * granule)
				}
			})
		}
	})
}

// armQuota stops rules at a volume quota, or has them look at it from the end of their share
// on. A packet that begins within the share ends there. The data path notifies us of the
// quota's end when it comes, and not only of the packet behind it, which it drops.
func (u *Usage) armQuota(s *session.Session, urr *session.URR, m *measurement) {
	limits(urr.VolumeQuota, m.quota, func(k kind, rest uint64) {
		u.share(s, urr, k, rest, func(c *count, share part) {
			switch {
			case rest == 0:
				c.stopNow()
				return
			case share.near:
				c.notifyNext()
			case !share.alone:
				c.notify(c.volume.Bytes + share.octets/2)
			}
			switch {
			case u.quotas == nil:
				c.stop(c.volume.Bytes + share.octets)
			case share.near || share.octets <= largest:
				c.lookAt(c.volume.Bytes)
			default:
				c.lookAt(c.volume.Bytes + share.octets - largest)
			}
		})
	})
	if u.quotas == nil {
		limits(urr.VolumeQuota, m.quota, func(k kind, _ uint64) {
			u.each(s, urr.ID, k, func(c *count) { c.notify(c.stopAt) })
		})
	}
}

// wait says that nothing can be reported now. It notes that something is due.
func (u *Usage) wait() bool {
	u.waiting = u.waiting || len(u.pending) > 0
	return len(u.pending) > 0
}

// each calls f for the rules whose packets a limit of a URR counts.
func (u *Usage) each(s *session.Session, urr uint32, k kind, f func(*count)) {
	for i := range u.counts {
		p := rules.PDR(s, u.counts[i].rule)
		covers := k == total || p != nil && (k == uplink) == (rules.Direction(p) == datapath.Uplink)
		if p != nil && covers && slices.Contains(p.URRs, urr) {
			f(&u.counts[i])
		}
	}
}

// part is what a rule may use of a rest.
type part struct {
	octets uint64
	alone  bool // nothing else takes from the rest
	// near says that the rest is too small to be shared: each rule may use all of it, and
	// the data path notifies us of each packet.
	near bool
}

// share gives each rule its part of rest, and one to what the rule refuses where that
// counts.
func (u *Usage) share(s *session.Session, urr *session.URR, k kind, rest uint64, f func(*count, part)) {
	n := uint64(0)
	u.each(s, urr.ID, k, func(c *count) {
		n++
		if urr.BeforeQoS && c.refused.grown > 0 {
			n++
		}
	})
	u.each(s, urr.ID, k, func(c *count) {
		share := rest / n
		if urr.BeforeQoS {
			// Half of the share may be refused before we look again, so that the rest
			// can be shared anew. A rule that refused nothing of late has no share:
			// the data path notifies us at once.
			allowance := uint64(1)
			if c.refused.grown > 0 {
				allowance = min(max(share/2, 1), farthest)
			}
			c.refused.notify(c.refused.volume.Bytes + allowance)
		}
		if share < granule {
			f(c, part{octets: rest, alone: n == 1, near: true})
		} else {
			f(c, part{octets: share, alone: n == 1})
		}
	})
}

// farthest is how far ahead a limit on refused octets may be: the data path sees
// no further.
const farthest = 1 << 36

func (t *tally) notify(at uint64) {
	if t.notifyAt == 0 || at < t.notifyAt {
		t.notifyAt = max(at, 1)
	}
}

// limits returns the limits of a rule in the data path.
func (c *count) limits() datapath.RuleLimits {
	return datapath.RuleLimits{NotifyAt: c.notifyAt, StopAt: c.stopAt, Shares: c.stopAt != 0 && !c.stops, RefusedNotifyAt: c.refused.notifyAt}
}

// notifyNext has the data path notify us of the rule's next packet.
func (c *count) notifyNext() { c.notify(c.volume.Bytes / granule * granule) }

// looksAgain says that the data path has to notify us of the rule's next packet, although
// it may have done so before.
func (c *count) looksAgain() bool {
	return c.notifyAt != 0 && c.notifyAt <= c.volume.Bytes/granule*granule
}

// stop rounds up to a granule, as the data path does: what is left is never refused, and
// no more than a granule comes on top.
func (c *count) stop(at uint64) { c.stopAtFirst((at+granule-1)/granule*granule, true) }

// stopNow lets nothing go any more.
func (c *count) stopNow() { c.stopAtFirst(c.volume.Bytes/granule*granule, true) }

// lookAt has the data path look at the quotas that the rule shares.
func (c *count) lookAt(at uint64) { c.stopAtFirst(at, false) }

func (c *count) stopAtFirst(at uint64, stops bool) {
	if at = max(at, 1); c.stopAt == 0 || at < c.stopAt {
		c.stopAt = at
	}
	c.stops = c.stops || stops
}
