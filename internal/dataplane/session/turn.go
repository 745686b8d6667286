package session

import (
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Turn is what the data path needs to turn a rule by itself between forwarding G-PDUs and
// buffering them, and to another gNB (docs/adr/0023-signalling-in-the-data-path.md).
type Turn struct {
	Entry           uint32 // of the rule in pdr
	Forward, Buffer uint64 // its word of action and flags while it does
	Template        uint16 // the number of the way to forward, without the gNB; 0: not by GTP-U
	Forwarding      uint32 // the entry of forwarding that leads to the gNB; 0: none does
	Leads           bool   // the rule forwards there now
}

// Turns are the rules of sessions as the data path turns them.
type Turns struct{ s *Sessions }

// Turn returns how a rule turns: forward and buffer are what it is while it does. The
// session has been put with one of them. ok: it does one of them now.
func (x *Turns) Turn(id uint64, forward, buffer *Rule) (t Turn, ok bool) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() != nil {
		return t, false
	}
	t.Entry = s.owners.entryOf(s.owners.byID.Get(id), forward.ID)
	if t.Entry == 0 {
		return t, false
	}
	now := s.tables.loadDo(t.Entry)
	f, b := plannedRule{Rule: forward}, plannedRule{Rule: buffer}
	f.setWords(nil)
	b.setWords(nil)
	own := f.do
	if actionOf(now) != actionOf(f.do) {
		own = b.do
	}
	if actionOf(now) != actionOf(own) || now&own != own {
		return t, false
	}
	others := now &^ own // of its head, and its meters
	t.Forward, t.Buffer = f.do|others, b.do|others
	if forward.Forward.Kind == ForwardGTPU {
		s.forwardings.lead(&t, &forward.Forward)
		out := uint64(forward.Forward.TEID) | uint64(t.Forwarding)<<32
		t.Leads = t.Forwarding != 0 && now == t.Forward && s.tables.PDR.Load(t.Entry, wordPDROut) == out
	}
	return t, true
}

// lead finds the way to a gNB. Its entry stays for good: the data path may lead any rule
// there at any time.
func (f *forwardings) lead(t *Turn, to *Forwarding) {
	model := *to
	model.TEID = 0
	if e := f.byModel[model]; e != nil && (e.pinned || e.refs > 0) {
		e.pinned = true
		t.Forwarding = e.index
	}
	model.Remote = netip.Addr{}
	number, known := f.templates[model]
	if !known && f.lastTemplate < 1<<16-1 {
		f.lastTemplate++
		number = f.lastTemplate
		f.templates[model] = number
	}
	t.Template = number
}

// Recover goes on with what an earlier daemon told the data path: that an entry of
// forwarding leads to a gNB, in the way that a template stands for. false: it does so no
// more. It comes before any session is put.
func (x *Turns) Recover(template uint16, gnb netip.Addr, entry uint32) (bool, error) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.forwardings
	if s.usable() != nil || template == 0 || entry < firstForwarding || entry >= f.array.Len {
		return false, nil
	}
	value := f.array.Get(entry)
	model := Forwarding{Kind: ForwardGTPU, Remote: gnb, Internal: value.Internal != 0, Control: value.Control != 0, ToS: value.Tos, ToSMask: value.TosMask,
		Slice: value.Slice, ArgsOffset: value.ArgsAt}
	way := model
	way.Remote = netip.Addr{}
	if number, known := f.templates[way]; known && number != template {
		return false, nil
	}
	if e := f.byIndex[entry]; e == nil {
		e = &forwardingEntry{index: entry, value: value}
		f.byIndex[entry], f.recovered[value] = e, e
		f.free.take(entry)
	}
	index, err := f.acquire(&model)
	if err != nil {
		return false, err
	}
	if index != entry { // the node has another address now, or the gNB another way
		return false, f.releaseAll([]uint32{index})
	}
	f.byIndex[entry].pinned = true
	f.templates[way] = template
	f.lastTemplate = max(f.lastTemplate, template)
	return true, nil
}

// LeadsTo is where an entry of pdr leads, or led, G-PDUs to, by its word of TEID and
// forwarding; ok: it is one.
func (x *Turns) LeadsTo(out uint64) (gnb netip.Addr, teid uint32, ok bool) {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	index := uint32(out >> 32)
	if s.usable() != nil || index < firstForwarding || index >= s.forwardings.array.Len {
		return gnb, 0, false
	}
	e := s.forwardings.array.Get(index)
	return netip.AddrFrom16(e.Remote.B).Unmap(), uint32(out), e.Kind == uint8(abi.ForwardingKindFORWARD_GTPU)
}

// Out is the word of an entry of pdr that LeadsTo reads.
func (x *Turns) Out(entry uint32) uint64 {
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() != nil || entry >= s.tables.PDR.Len {
		return 0
	}
	return s.tables.PDR.Load(entry, wordPDROut)
}

// Share says that the data path leads rules elsewhere by itself: moving runs what moves
// rules to other entries of forwarding while it does not, and moved learns of these.
func (x *Turns) Share(moving func(func() error) error, moved func(map[uint32]uint32) error) {
	x.s.forwardings.moving, x.s.forwardings.moved = moving, moved
}
