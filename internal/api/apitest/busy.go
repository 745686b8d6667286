package apitest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Rate of each counter of a Busy agent: packets of 1000 octets in a second.
const Rate = 1000

// Busy is an agent whose counters grow with time, and that has many sessions.
type Busy struct {
	*Agent
	started time.Time
	// Count is how many sessions there are; their SEIDs begin with 1.
	Count int
	// Name, if set, is put in the place of each name that somebody else chooses: of DNNs,
	// slices, policies, interfaces, SMFs and drop reasons' texts.
	Name string
}

// NewBusy is a busy agent that does the rest as a does.
func NewBusy(a *Agent, sessions int) *Busy {
	return &Busy{Agent: a, started: time.Now(), Count: sessions}
}

func (b *Busy) counter() agent.Counter {
	n := uint64(time.Since(b.started).Milliseconds()) * Rate / 1000
	return agent.Counter{Packets: n, Bytes: 1000 * n}
}

// name is a name that somebody chose.
func (b *Busy) name(usual string) string {
	if b.Name != "" {
		return b.Name
	}
	return usual
}

// Status is that of Agent, with names.
func (b *Busy) Status() (agent.Status, error) {
	s, err := b.Agent.Status()
	if s.UPF != nil {
		s.UPF.Sessions, s.UPF.NodeID, s.UPF.Journal = b.Count, b.name(s.UPF.NodeID), b.name("")
	}
	s.Interfaces, _ = b.Interfaces()
	return s, err
}

// Interfaces are those of Agent, with names.
func (b *Busy) Interfaces() ([]agent.InterfaceStatus, error) {
	all, err := b.Agent.Interfaces()
	for i := range all {
		all[i].Name = b.name(all[i].Name)
	}
	return all, err
}

// Outcomes are those of Agent. HOP_LIMIT grows.
func (b *Busy) Outcomes() ([]agent.Outcome, error) {
	all, err := b.Agent.Outcomes()
	for i := range all {
		if all[i].Reason == "HOP_LIMIT" {
			all[i].Counter, all[i].Text = b.counter(), b.name(all[i].Text)
		}
	}
	return all, err
}

// Policies are those of Agent, and grow.
func (b *Busy) Policies() ([]agent.PolicyStatus, error) {
	all, err := b.Agent.Policies()
	for i := range all {
		all[i].Name, all[i].Counter = b.name(all[i].Name), b.counter()
	}
	return all, err
}

// Slices are those of Agent, and grow.
func (b *Busy) Slices() ([]agent.SliceStatus, error) {
	all, err := b.Agent.Slices()
	for i := range all {
		all[i].Name, all[i].Uplink, all[i].Downlink = b.name(all[i].Name), b.counter(), b.counter()
	}
	return all, err
}

// Associations are those of Agent, with names.
func (b *Busy) Associations() ([]agent.AssociationStatus, error) {
	all, err := b.Agent.Associations()
	for i := range all {
		all[i].Node = b.name(all[i].Node)
	}
	return all, err
}

// session is one of Count.
func (b *Busy) session(seid uint64) agent.SessionStatus {
	ue := netip.AddrFrom4([4]byte{10, 45, byte(seid >> 8), byte(seid)})
	return agent.SessionStatus{
		SEID: seid, CPSEID: seid + 1000, Association: b.name("192.0.2.20"), Slice: b.name("a"), SliceNote: b.name(""), DNN: b.name("internet"),
		UE: []netip.Prefix{netip.PrefixFrom(ue, 32)}, TEIDs: []uint32{0x1000000 + uint32(seid)}, Uplink: b.counter(), Downlink: b.counter(),
	}
}

// Sessions are those that the filter means.
func (b *Busy) Sessions(f agent.SessionFilter) (list []agent.SessionStatus, total int, err error) {
	if f.SEID != nil {
		if *f.SEID == 0 || *f.SEID > uint64(b.Count) {
			return nil, 0, fmt.Errorf("%w: there is no session %#x", desired.ErrNotFound, *f.SEID)
		}
		s := b.session(*f.SEID)
		s.PDRs = []agent.PDRStatus{
			{PDR: 1, Counter: s.Uplink, Words: b.name(fmt.Sprintf("uplink, TEID %#x, UE %s -> N6 of internet, counted by URR 1", s.TEIDs[0], s.UE[0]))},
			{PDR: 2, Counter: s.Downlink, Words: b.name(fmt.Sprintf("downlink, UE %s -> gNB 203.0.113.9 TEID 0x7", s.UE[0])), Policy: &agent.PDRPolicy{
				Name: b.name("voice"), Color: 100, Endpoint: netip.MustParseAddr("2001:db8:2::1"),
				Verdict: srpolicy.Verdict{Path: b.name("te:voice"), Preference: 150, Valid: true, Active: true},
			}},
		}
		s.URRs = []agent.URRStatus{{URR: 1, Sequence: 4, Uplink: s.Uplink.Bytes, Downlink: s.Downlink.Bytes}}
		s.Rules = json.RawMessage(fmt.Sprintf(`{"seid":%d,"ue":%q}`, s.SEID, s.UE[0]))
		return []agent.SessionStatus{s}, 1, nil
	}
	for seid := f.After + 1; seid <= uint64(b.Count); seid++ {
		s := b.session(seid)
		if f.Slice != "" && f.Slice != s.Slice || f.UE.IsValid() && !s.UE[0].Contains(f.UE) || f.TEID != 0 && !slices.Contains(s.TEIDs, f.TEID) {
			continue
		}
		if total++; f.Limit == 0 || total <= f.Limit {
			list = append(list, s)
		}
	}
	return list, total, nil
}
