package apitest

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Slices lists the slices of the configuration.
func (a *Agent) Slices() ([]agent.SliceStatus, error) {
	return each(a, func(i int, v slice.Slice, origin desired.Origin) agent.SliceStatus {
		return agent.SliceStatus{Slice: v, Origin: origin, Sessions: i + 1, Uplink: counted(5, i), Downlink: counted(6, i)}
	})
}

// Announcements are two, of a configuration that announces.
func (a *Agent) Announcements() ([]agent.AnnouncementStatus, error) {
	if len(a.Running().UPF.Announce) == 0 {
		return nil, agent.ErrNoAnnouncements
	}
	return fixed(a,
		agent.AnnouncementStatus{Prefix: netip.MustParsePrefix("10.45.0.0/16"), NetworkInstance: "internet", NextHop: netip.MustParseAddr("192.0.2.1"), State: agent.Announced, Since: Started},
		agent.AnnouncementStatus{Prefix: netip.MustParsePrefix("203.0.113.0/28"), NetworkInstance: "internet", Framed: true, State: agent.Refused, Reason: "it contains the pool 203.0.113.0/30", Since: Started})
}

// NATs is one, of a configuration that has any, and one UE of it.
func (a *Agent) NATs(of string) ([]agent.NATStatus, error) {
	pools := a.Running().UPF.UEPools
	if len(pools) == 0 || pools[0].NAT == nil {
		return nil, agent.ErrNoNAT
	}
	n := pools[0].NAT
	s := agent.NATStatus{Pool: pools[0].Prefixes[0], NetworkInstance: "internet", Addresses: n.Addresses, PortsPerUE: n.PortsPerUE, UEsPerAddress: n.UEsPerAddress(), UDP: 3, TCP: 7, ICMP: 1}
	if of != "" {
		s.UE = netip.MustParseAddr("10.45.0.2")
		block, _ := n.BlockOf(s.Pool, s.UE)
		s.Block, s.UDP, s.TCP, s.ICMP = &block, 0, 1, 0
		s.Mappings = []nat.Mapping{{Protocol: nat.TCP, Private: 40000, Public: block.First, Established: true, Idle: 2 * time.Second}}
	}
	return []agent.NATStatus{s}, nil
}

// Associations are always the same.
func (a *Agent) Associations() ([]agent.AssociationStatus, error) {
	return fixed(a,
		agent.AssociationStatus{Node: "192.0.2.20", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.20")}, Since: Started.Add(time.Minute), Recovery: Started, Up: true, Sessions: 2},
		agent.AssociationStatus{Node: "smf.example", Addrs: []netip.Addr{netip.MustParseAddr("2001:db8::20")}, Since: Started, Recovery: Started, Applications: []string{"video"}})
}

// Sessions are two, of which a SEID, an address or a slice chooses.
func (a *Agent) Sessions(f agent.SessionFilter) (list []agent.SessionStatus, total int, err error) {
	all, err := fixed(a, agent.SessionStatus{
		SEID: 1<<63 + 1, CPSEID: 7, Association: "192.0.2.20", Slice: "a", DNN: "internet", TEIDs: []uint32{0x1000001},
		UE:     []netip.Prefix{netip.MustParsePrefix("10.45.0.1/32"), netip.MustParsePrefix("2001:db8:45:1::/64")},
		Uplink: counted(7, 0), Downlink: counted(8, 0), Buffered: 3, BufferFull: 5,
	}, agent.SessionStatus{
		SEID: 2, CPSEID: 8, Association: "192.0.2.20", UE: []netip.Prefix{netip.MustParsePrefix("10.45.0.2/32")},
	})
	if err != nil {
		return nil, 0, err
	}
	if f.SEID != nil {
		for _, s := range all {
			if s.SEID == *f.SEID {
				s.PDRs = []agent.PDRStatus{
					{PDR: 1, Counter: s.Uplink, Words: "uplink, TEID 0x1000001 at 203.0.113.1, UE 10.45.0.1/32 -> N6 of internet, counted by URR 1"},
					{PDR: 3, Counter: counted(9, 0), Words: "uplink, TEID 0x1000001 at 203.0.113.1, QFI 5, UE 10.45.0.1/32 -> N6 of internet", Policy: &agent.PDRPolicy{
						Name: "voice", Color: 100, Endpoint: netip.MustParseAddr("2001:db8:2::1"),
						Verdict: srpolicy.Verdict{Path: "te:voice", Preference: 150, Valid: true, Active: true, Why: "the valid path with the highest preference"},
					}},
					{PDR: 2, Counter: s.Downlink, Words: "downlink, UE 10.45.0.1/32 -> gNB 203.0.113.9 TEID 0x7, at most 100 Mbit/s (QER 1)"},
				}
				s.URRs = []agent.URRStatus{{URR: 1, Sequence: 4, Uplink: 1 << 60, Downlink: 500, Exhausted: true}}
				s.Rules = json.RawMessage(`{"seid":9223372036854775809,"pdrs":[{"id":1,"far":1}]}`)
				return []agent.SessionStatus{s}, 1, nil
			}
		}
		return nil, 0, desired.ErrNotFound
	}
	for _, s := range all {
		if (f.Slice == "" || f.Slice == s.Slice) && (!f.UE.IsValid() || s.UE[0].Contains(f.UE)) {
			list = append(list, s)
		}
	}
	total = len(list)
	if f.Limit > 0 && f.Limit < total {
		list = list[:f.Limit]
	}
	return list, total, nil
}
