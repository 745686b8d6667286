package session

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// memoryNode is a node without a data path. It has a policy n9.
type memoryNode struct {
	targets *target.Table
	taken   netip.Prefix // by steering
	source  netip.Addr
	ues     uint32
}

func (n *memoryNode) Acquire(h adjacency.Key) (uint32, error) {
	if h.IsZero() {
		return 0, nil
	}
	return 1 + uint32(len(h.NextHop.String())), nil
}
func (n *memoryNode) Release(...adjacency.Key) error { return nil }
func (n *memoryNode) Toward(remote netip.Addr) adjacency.Key {
	return adjacency.Key{NextHop: remote}
}

func (n *memoryNode) Policy(name string) (index uint32, layer2, found bool) {
	return 1, false, name == "n9"
}
func (n *memoryNode) ClassNumber(string) uint8               { return 0 }
func (n *memoryNode) UsePolicy(string, bool)                 {}
func (n *memoryNode) UsePeer(netip.Addr) error               { return nil }
func (n *memoryNode) UnusePeer(netip.Addr) error             { return nil }
func (n *memoryNode) LinkNumber(Link) uint32                 { return 0 }
func (n *memoryNode) OuterSource(*Forwarding) netip.Addr     { return n.source }
func (n *memoryNode) Targets() *target.Table                 { return n.targets }
func (n *memoryNode) Steered(p netip.Prefix) bool            { return p == n.taken }
func (n *memoryNode) TunnelOf(uint32) (name string, ok bool) { return "", false }
func (n *memoryNode) ForgetPorts(netip.Addr)                 {}
func (n *memoryNode) SetUEs(ues uint32)                      { n.ues = ues }
func (n *memoryNode) ForgetLookups()                         {}

// sweep does what the data path does before sessions are swept.
func (n *memoryNode) sweep(o *owners) {
	for at, t := range n.targets.All() {
		if o.entries[t.Index].session == 0 {
			_ = n.targets.Delete(at.Prefix)
		}
	}
}

// memorySessions has tables in memory, where no packet passes, and pools for the
// UEs of plain and both4and6.
func memorySessions(filters uint32) *Sessions {
	const sessions = 64
	l := settings.Limits{Sessions: sessions, Filters: filters}
	most := MapSizes(l)
	trie := lpm.OpenTrie(lpm.TrieTables{
		Roots: table.NewArray[abi.TrieRoot](uint32(abi.TrieLeafTRIE_ROOTS)), Blocks: table.NewArray[abi.TrieBlock](sessions),
	}, &table.Grace{})
	targets := target.New(target.Tables{
		Four: table.NewHash[abi.Lpm4Key, abi.Target](abi.MapTargetByDst4, sessions),
		Six:  table.NewHash[abi.Lpm6Key, abi.Target](abi.MapTargetByDst6, sessions),
	}, trie, &port.Table{}, target.Hooks{Changed: func() {}, Steers: func() {}})
	return openMemory(&memoryNode{targets: targets}, l, Tables{
		PDR: table.NewArray[abi.Pdr](most[abi.MapPdr]), Refused: table.NewArray[abi.Refused](most[abi.MapPdr]), Quota: table.NewArray[abi.Quota](most[abi.MapQuota]),
		Filter: table.NewArray[abi.Filter](most[abi.MapFilter]), FrameFilter: table.NewArray[abi.FrameFilter](most[abi.MapFilter]),
		Meter: table.NewArray[abi.Meter](most[abi.MapMeter]), Forwarding: table.NewArray[abi.Forwarding](most[abi.MapForwarding]),
		TEIDs: table.NewHash[uint32, uint32](abi.MapPdrByTeid, sessions),
		UEs:   table.NewHash[abi.In6, uint32](abi.MapPdrByUe, sessions), UEBucket: table.NewArray[abi.UeBucket](most[abi.MapUeBucket]),
	})
}

func openMemory(n Node, l settings.Limits, t Tables) *Sessions {
	s := Open(&sync.Mutex{}, n, l, t)
	s.owners.periods = table.PeriodsInMemory()
	_, base, _ := l.PDRRanges()
	s.tables.pools = []settings.Pool{
		{IPv4: true, Key: 10<<24 | 45<<16, Mask: ^uint64(63), Base: base, Sessions: 1},
		{Key: 0x20010db8_00450000, Mask: ^uint64(63), Base: base + 64, Sessions: 1},
	}
	s.settling = true // so that only settleMemory settles
	return s
}

// restartMemory is what a daemon finds that starts after another one.
func restartMemory(s *Sessions) *Sessions {
	return openMemory(s.node, settings.Limits{Sessions: s.owners.most}, s.tables.Tables)
}

func settleMemory(s *Sessions) {
	s.owners.periods.Wait(s.owners.periods.Next())
	s.owners.settle(s.settleOne)
}

// planOf plans a session without writing anything. The next call of planner.Plan
// invalidates the plan.
func planOf(s *Sessions, session Session) (*Plan, error) {
	if err := s.check(&session); err != nil {
		return nil, err
	}
	s.recovery.adopt(&session)
	want, err := s.resolve(&session)
	if err != nil {
		return nil, err
	}
	old := s.state(s.owners.byID.Get(session.ID))
	p, err := s.planner.Plan(old, want, s.owners, s.tables)
	var busy *busyError
	if errors.As(err, &busy) {
		settleMemory(s)
		return planOf(s, session)
	}
	return p, err
}

var opNames = [...]string{"PutMeter", "ChangeMeter", "PutQuota", "PutRun", "PutRule", "ForgetPorts", "Lead", "Unlead", "Hide", "SetOut", "SetRate",
	"SetLimits", "SetSource4", "SetSource6", "SetDo", "Wait"}

// describe says what a plan writes, by what is at each entry.
func describe(p *Plan) (out []string) {
	for _, w := range p.Writes {
		text := opNames[w.Op]
		switch w.Op {
		case PutMeter, ChangeMeter:
			text += fmt.Sprintf(" %d", w.Part)
		case PutRun:
			text += fmt.Sprintf(" of %d", int(w.Value)-w.Part)
		case PutRule, SetLimits:
			text += fmt.Sprintf(" %d", p.rules[w.Part].ID)
		case Lead:
			text += " " + p.heads[w.Part].key.String()
		case Unlead:
			text += " " + p.hidden[w.Part].String()
		case SetDo:
			action := map[uint8]string{actionFilters: "filters", actionForward: "forward", uint8(abi.PdrActionPDR_BUFFER): "buffer",
				uint8(abi.PdrActionPDR_DROP): "drop", uint8(abi.PdrActionPDR_GATE): "gate"}
			text += " " + action[actionOf(w.Value)]
			if flagsOf(w.Value)&(flagSource4|flagSource6) != 0 {
				text += " checking sources"
			}
		}
		out = append(out, text)
	}
	return out
}

// TestPlan lists what is written, in which order, from one session to another.
func TestPlan(t *testing.T) {
	all := variants()
	limits := []string{"SetLimits 1", "SetLimits 2"}
	for _, row := range []struct {
		from, to string
		want     []string
	}{
		{"", "plain", []string{"PutRule 1", "PutRule 2", "ForgetPorts", "SetSource4", "SetDo forward checking sources", "SetDo forward"}},
		{"plain", "plain", limits},
		{"plain", "handover", []string{"SetLimits 1", "SetOut", "SetLimits 2"}},
		{"plain", "idle", []string{"SetLimits 1", "SetLimits 2", "SetDo buffer"}},
		{"idle", "handover", []string{"SetLimits 1", "SetOut", "SetLimits 2", "SetDo forward"}},
		{"plain", "closed", []string{"SetLimits 1", "SetLimits 2", "SetDo gate checking sources"}},
		{"plain", "rates", []string{"SetRate", "SetLimits 1", "SetRate", "SetLimits 2"}},
		// Two words change that packets act by: the rule moves, and its head leads to it.
		{"plain", "handover and QFI", []string{"PutRun of 1", "PutRule 2", "SetLimits 1", "SetDo filters"}},
		{"plain", "both", []string{"PutRun of 1", "SetLimits 1", "SetLimits 2", "SetSource6", "SetDo forward checking sources", "SetOut", "SetDo filters"}},
		{"plain", "a TEID elsewhere", []string{"PutRule 1", "Lead TEID 0xabcdef01", "SetLimits 2", "SetSource4",
			"SetDo forward checking sources", "Hide"}},
		{"a TEID elsewhere", "plain", []string{"PutRule 1", "SetLimits 2", "SetSource4", "SetDo forward checking sources", "Unlead TEID 0xabcdef01"}},
		// The address that packets must have turns: filters check it meanwhile.
		{"plain", "another address", []string{"PutRun of 2", "PutRun of 1", "PutRule 1", "PutRule 2", "Lead 10.77.0.1/32",
			"SetDo forward", "SetDo filters", "Hide", "Wait", "SetSource4", "SetDo filters checking sources"}},
		{"plain", "nothing", []string{"Hide", "Hide"}},
	} {
		s := memorySessions(256)
		if row.from != "" {
			must(t, s.Put(all[row.from]))
		}
		settleMemory(s)
		p, err := planOf(s, all[row.to])
		must(t, err)
		if got := describe(p); !slices.Equal(got, row.want) {
			t.Errorf("from %q to %q:\n got %q\nwant %q", row.from, row.to, got, row.want)
		}
	}
}

// meets is what packets meet behind each key that some variants have.
func meets(s *Sessions, keys []key, meters func(*Sessions, uint64) string) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		_, index, led := s.tables.find(&k)
		do := s.tables.loadDo(index)
		if !led || !isActive(do) {
			out[k.String()] = "nothing"
			continue
		}
		var text strings.Builder
		source := "any" // each family by itself: a packet looks at one
		if flagsOf(do)&flagSource4 != 0 {
			source = fmt.Sprintf("%x", s.tables.PDR.LoadHalf(index, wordPDRStop, 1))
		}
		if flagsOf(do)&flagSource6 != 0 {
			source += fmt.Sprintf(" %x", s.tables.PDR.Load(index, wordPDRSource6))
		}
		if actionOf(do) != actionFilters {
			fmt.Fprint(&text, rule(s, index, meters))
		} else {
			for _, f := range s.tables.runAt(moreOf(do)) {
				at := f.Pdr
				f.Pdr = 0
				if takesAll(&f) && at != 0 {
					fmt.Fprint(&text, rule(s, at, meters))
				} else {
					fmt.Fprintf(&text, "%v: %s; ", f, rule(s, at, meters))
				}
			}
		}
		out[k.String()] = text.String() + " from " + source
	}
	return out
}

// rule is what an entry says of what becomes of packets. meters describes the
// rule's; nil: by where the first one is.
func rule(s *Sessions, index uint32, meters func(*Sessions, uint64) string) string {
	do := s.tables.loadDo(index)
	do &^= 0xff<<56 | uint64(flagByTEID|flagSource4|flagSource6)<<40
	out := uint64(0)
	if actionOf(do) == actionForward {
		out = s.tables.PDR.Load(index, wordPDROut)
		out = out&0xffffffff | s.tables.Forwarding.Load(uint32(out>>32), 0)<<32
	}
	if index == 0 {
		do = 0
	}
	if meters == nil {
		return fmt.Sprintf("%x %x", do, out)
	}
	return fmt.Sprintf("%x %x%s", do>>32, out, meters(s, do))
}

// rates are the meters of a rule, wherever they are.
func rates(s *Sessions, do uint64) (text string) {
	for m := moreOf(do); flagsOf(do)&flagMeters != 0 && m != 0; m = s.tables.Meter.LoadHalf(m, wordMeterRate, 1) {
		text += fmt.Sprintf(" meter %d %x", s.tables.Meter.LoadHalf(m, wordMeterRate, 0), s.tables.Meter.Load(m, wordMeterUnit))
	}
	return text
}

func keysOfAll(sessions ...Session) (keys []key) {
	for _, s := range sessions {
		for i := range s.Rules {
			for _, k := range appendKeys(nil, &s.Rules[i], s.ID) {
				if !slices.Contains(keys, k) {
					keys = append(keys, k)
				}
			}
		}
	}
	return keys
}

// TestPlanShowsNoHalf looks at the tables after each write of each change between
// two variants: behind every key packets meet what was, or what will be. A head
// whose sources turn is in between the same, with the sources in its filters.
func TestPlanShowsNoHalf(t *testing.T) {
	all := variants()
	for from := range all {
		for to := range all {
			s := memorySessions(256)
			must(t, s.Put(all[from]))
			settleMemory(s)
			keys := keysOfAll(all[from], all[to])
			before := meets(s, keys, nil)
			p, err := planOf(s, all[to])
			must(t, err)
			turned := map[string]string{}
			var states []map[string]string
			for i := range p.Writes {
				if p.Writes[i].Op == Wait {
					maps.Copy(turned, meets(s, keys, nil))
				}
				_, err := s.writer.write(p, &p.Writes[i], 1)
				must(t, err)
				states = append(states, meets(s, keys, nil))
			}
			must(t, s.account(p, true))
			after := meets(s, keys, nil)
			for i, now := range states {
				for k, text := range now {
					if text != before[k] && text != after[k] && text != turned[k] && (text != "nothing" || before[k] == "nothing") {
						t.Errorf("%s to %s, after %q: behind %s\n  is %s\n was %s\nwill %s", from, to, describe(p)[:i+1], k, text, before[k], after[k])
					}
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// TestEveryPrefixIsRecoverable lets the daemon die after each number of writes, in
// each change between two variants. The next daemon puts the session as it is
// wanted; then the tables hold it as if nothing had been, and nothing else.
func TestEveryPrefixIsRecoverable(t *testing.T) {
	all := variants()
	for from := range all {
		for to := range all {
			keys := keysOfAll(all[from], all[to])
			clean := memorySessions(256)
			must(t, clean.Put(all[to]))
			want := meets(clean, keys, rates)
			for n, done := 0, false; !done; n++ {
				s := memorySessions(256)
				must(t, s.Put(all[from]))
				settleMemory(s)
				p, err := planOf(s, all[to])
				must(t, err)
				done = n == len(p.Writes)
				for i := range n {
					_, err := s.writer.write(p, &p.Writes[i], 1)
					must(t, err)
				}
				s = restartMemory(s)
				must(t, s.Put(all[to]))
				s.node.(*memoryNode).sweep(s.owners)
				must(t, s.Sweep())
				settleMemory(s)
				if got := meets(s, keys, rates); !maps.Equal(got, want) {
					t.Fatalf("%s to %s, after %d writes:\n got %q\nwant %q", from, to, n, got, want)
				}
				must(t, s.Drop(5))
				settleMemory(s)
				must(t, s.Reap())
				settleMemory(s)
				if err := leftOver(s); err != nil {
					t.Fatalf("%s to %s, after %d writes: %v", from, to, n, err)
				}
			}
		}
	}
}

// leftOver says what is in use where there is no session.
func leftOver(s *Sessions) error {
	left := s.Leftovers()
	used := map[string]table.Usage{}
	s.TableUsage(used)
	for name, u := range used {
		left[name] += u.Used
	}
	left["targets"] = len(maps.Collect(s.node.Targets().All()))
	for i := range s.tables.PDR.Len {
		if isActive(s.tables.loadDo(i)) {
			left["active entries"]++
		}
	}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
	if len(left) > 0 {
		return fmt.Errorf("in use: %v", left)
	}
	return nil
}

// TestRefusedPlanReservesNothing plans sessions that do not fit, or that have what
// another one has.
func TestRefusedPlanReservesNothing(t *testing.T) {
	many := rich(5, 7)
	for range 3 {
		many.Rules[0].Filters = append(many.Rules[0].Filters, many.Rules[2].Filters...)
	}
	for what, make := range map[string]func(*Sessions) Session{
		"filters": func(*Sessions) Session { return many },
		"a TEID of another": func(s *Sessions) Session {
			must(t, s.Put(plain(6, 7)))
			return rich(5, 7)
		},
		"a prefix that is steered": func(s *Sessions) Session {
			s.node.(*memoryNode).taken = prefix("192.168.7.0/24")
			return variants()["framed"]
		},
	} {
		s := memorySessions(8)
		session := make(s)
		settleMemory(s)
		used := func() []int {
			return []int{s.owners.pdrFree.used(), s.owners.meterFree.used(), s.owners.quotaFree.used(), int(s.owners.runs.used)}
		}
		before := used()
		if p, err := planOf(s, session); err == nil {
			t.Errorf("%s: planned %q", what, describe(p))
		}
		if after := used(); !slices.Equal(before, after) {
			t.Errorf("%s: pdr, meter, quota, filter: %v are reserved, before %v", what, after, before)
		}
	}
}

// TestMetersSurviveARestart demands that a session's meters are its own after a
// restart, whoever comes next.
func TestMetersSurviveARestart(t *testing.T) {
	s := memorySessions(256)
	must(t, s.Put(rich(5, 7)))
	settleMemory(s)
	had := slices.Clone(s.owners.meters[s.owners.byID.Get(5)])
	s = restartMemory(s)
	must(t, s.Put(rich(5, 7)))
	must(t, s.Sweep())
	settleMemory(s)
	must(t, s.Put(rich(6, 8)))
	must(t, s.Put(rich(5, 7)))
	if now := s.owners.meters[s.owners.byID.Get(5)]; !slices.Equal(now, had) {
		t.Errorf("session 5 has meters %v, before the restart %v", now, had)
	}
	for _, index := range s.owners.meters[s.owners.byID.Get(6)] {
		if slices.Contains(had, index) {
			t.Errorf("sessions 5 and 6 share meter %d", index)
		}
	}
}

// TestUEsAreLookedUp demands that packets look in pdr_by_ue while it holds an entry, be it
// that of an Ethernet session which came first or went last, and after a restart.
func TestUEsAreLookedUp(t *testing.T) {
	s := memorySessions(64)
	n := s.node.(*memoryNode)
	link, ue := key{session: 1, link: Link{Interface: "lan"}}, key{prefix: prefix("3fff::/64")}
	kinds := map[key]lookupKind{link: byLink, ue: byUE}
	for _, order := range [][]key{{link, ue}, {ue, link}} {
		for i, k := range order {
			must(t, s.tables.put(k, kinds[k], uint32(i+1)))
			if n.ues == 0 {
				t.Errorf("with %d entries packets skip pdr_by_ue", i+1)
			}
		}
		for i, k := range order {
			must(t, s.tables.del(k))
			if n.ues != 0 != (i == 0) {
				t.Errorf("with %d entries left: %d", 1-i, n.ues)
			}
		}
	}
	outside := func() {
		for id := range uint32(2) {
			p := plain(id+5, id+7)
			p.Rules[1].Destinations = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(id)}), 32)}
			must(t, s.Put(p))
		}
		settleMemory(s)
	}
	outside()
	n.ues = 0 // what an earlier daemon wrote
	s = restartMemory(s)
	outside()
	must(t, s.Sweep())
	if n.ues == 0 {
		t.Error("after a restart packets skip pdr_by_ue")
	}
}

// Until Sweep a forwarding of an earlier daemon stays: rules of sessions that nobody has put
// yet refer to it, whatever becomes of those that were put.
func TestForwardingStaysUntilSweep(t *testing.T) {
	s := memorySessions(256)
	must(t, s.Put(variants()["plain"]))
	out := func() uint32 { return uint32(s.tables.PDR.Load(s.EntryAt(5, 2), wordPDROut) >> 32) }
	was := out()
	s = restartMemory(s)
	must(t, s.Put(variants()["plain"]))
	if now := out(); now != was {
		t.Fatalf("forwarding %d became %d", was, now)
	}
	must(t, s.Drop(5))
	settleMemory(s)
	for _, swept := range []bool{false, true} {
		if swept {
			must(t, s.Sweep())
		}
		must(t, s.Reap())
		settleMemory(s)
		if there := s.forwardings.byIndex[was] != nil; there == swept {
			t.Errorf("swept: %v, there: %v", swept, there)
		}
	}
}

// TestHeldForwardingIsGivenUp demands that a rule whose packets the daemon keeps
// gives up its forwarding like one that forwards, and follows it to a new entry.
func TestHeldForwardingIsGivenUp(t *testing.T) {
	s := memorySessions(256)
	for _, next := range []string{"held", "held", "plain", "held", "idle", "held"} {
		must(t, s.Put(variants()[next]))
		settleMemory(s)
	}
	out := func() uint32 {
		return uint32(s.tables.PDR.Load(s.EntryAt(5, 2), wordPDROut) >> 32)
	}
	before := out()
	if refs := s.forwardings.byIndex[before].refs; refs != 1 {
		t.Errorf("%d rules refer to the forwarding, want 1", refs)
	}
	s.node.(*memoryNode).source = addr("10.0.0.99")
	must(t, s.SourcesChanged())
	settleMemory(s)
	if now := out(); now == before || s.forwardings.byIndex[now] == nil {
		t.Errorf("after a new source the rule names forwarding %d, before %d", now, before)
	}
	must(t, s.Drop(5))
	settleMemory(s)
	must(t, s.Reap())
	settleMemory(s)
	if err := leftOver(s); err != nil {
		t.Error(err)
	}
}
