package pfcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// attack sends what somebody who may not would send. Nothing must come of it but one
// event for each datagram.
func (m *smf) attack(event string) {
	m.t.Helper()
	before, known := m.bed.s.Stats().Events[event], len(m.bed.s.Associations())
	list := []message.Message{
		message.NewAssociationSetupRequest(m.next(), m.node(), ie.NewRecoveryTimeStamp(time.Now())),
		message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Now()), nil),
		message.NewSessionEstablishmentRequest(0, 0, 0, m.next(), 0, m.node(), m.cpFSEID(7), uplinkPDR, toCore),
		message.NewSessionDeletionRequest(0, 0, 1, m.next(), 0),
	}
	for _, msg := range list {
		m.send(msg)
	}
	if answer := m.receive(silence); answer != nil {
		m.t.Errorf("answered: %s", answer.MessageTypeName())
	}
	if got := m.bed.s.Stats().Events[event] - before; got != uint64(len(list)) {
		m.t.Errorf("%d %s events for %d datagrams", got, event, len(list))
	}
	if now := len(m.bed.s.Associations()); now != known {
		m.t.Errorf("%d associations, %d before", now, known)
	}
}

// Without a list of SMFs nobody is heard.
func TestNobodyIsAllowed(t *testing.T) {
	b := newBed(t, func(c *Config, _ *fakeUPF) { c.Allow = nil })
	b.smf(2).attack("stranger")
	b.upf.holdsNothing(t)
}

// An SMF that is taken off the list has no more effect, and loses nothing: it goes on
// when it is listed again.
func TestNoLongerAllowed(t *testing.T) {
	b := newBed(t)
	m := b.smf(2)
	m.associate()
	seid, _ := m.establish(1, uplinkPDR, toCore)
	before := b.upf.only(t)
	b.s.SetSMFs(nil, nil)
	m.attack("stranger")
	if b.upf.only(t) != before {
		t.Error("the session has changed")
	}
	b.s.SetSMFs(anyone, nil)
	wantCause(t, m.delete(seid).Cause, ie.CauseRequestAccepted)
	b.upf.holdsNothing(t)
}

// site is a UPF with a network of N4 and one of N6, where a host has taken the address
// of the SMF.
type site struct {
	*bed
	upf, core, n6 *netns.NS
	spoofed       *smf
	length        int // of the networks' prefixes
	n4            int // index of the UPF's interface
}

// newSite makes the networks core and n6, in which the UPF is 1 and its peer 2.
func newSite(t *testing.T, core, n6 func(host byte) netip.Addr, length int) *site {
	s := &site{bed: &bed{t: t, upf: newFakeUPF(), addr: core}, upf: netns.New(t), core: netns.New(t), n6: netns.New(t), length: length}
	netns.Veth(t, s.upf, "n6", s.n6, "host")
	s.upf.Addr(t, "n6", s.with(n6(1)))
	s.n6.Addr(t, "host", s.with(n6(2)))
	only := netip.PrefixFrom(core(2), core(2).BitLen())
	s.n6.Addr(t, "lo", only.String())
	s.n6.IP(t, "route add "+core(1).String()+" via "+n6(1).String())
	for _, name := range []string{"all", "n6"} {
		s.upf.Sysctl(t, "net.ipv4.conf."+name+".rp_filter", "0")
	}
	s.wire()
	s.upf.Do(t, func() { s.start(func(c *Config, _ *fakeUPF) { c.Allow = []netip.Prefix{only} }) })
	s.n6.Do(t, func() { s.spoofed = s.smf(2) })
	return s
}

// with returns an address with its network's length.
func (s *site) with(a netip.Addr) string { return netip.PrefixFrom(a, s.length).String() }

// wire connects N4.
func (s *site) wire() {
	n4, _ := netns.Veth(s.t, s.upf, "n4", s.core, "smf")
	s.upf.Addr(s.t, "n4", s.with(s.addr(1)))
	s.core.Addr(s.t, "smf", s.with(s.addr(2)))
	s.n4 = n4.Index
}

// heard says whether a heartbeat is heard, or refused because of its interface.
func (s *site) heard(m *smf) bool {
	s.t.Helper()
	before := s.s.Stats()
	m.send(message.NewHeartbeatRequest(m.next(), ie.NewRecoveryTimeStamp(time.Now()), nil))
	for start := time.Now(); time.Since(start) < patience; time.Sleep(time.Millisecond) {
		now := s.s.Stats()
		switch {
		case now.Received["heartbeat request"] > before.Received["heartbeat request"]:
			return true
		case now.Events["wrong_interface"] > before.Events["wrong_interface"]:
			return false
		}
	}
	s.t.Fatal("the heartbeat is lost")
	return false
}

// Whoever is not at N4 has no effect, whatever address it sends from. The interface of
// N4 may be deleted and made again.
func TestInterfaceOfN4(t *testing.T) {
	for name, s := range map[string]*site{
		"IPv4": newSite(t, func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 4, 0, host}) },
			func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 6, 0, host}) }, 24),
		"IPv6": newSite(t, func(host byte) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: 4, 15: host}) },
			func(host byte) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: 6, 15: host}) }, 64),
	} {
		var real *smf
		s.core.Do(t, func() { real = s.smf(2) })
		if s.heard(real) || s.heard(s.spoofed) {
			t.Errorf("%s: heard before any interface is known", name)
		}
		s.s.SetPorts([]int{s.n4})
		if !s.heard(real) || s.heard(s.spoofed) {
			t.Errorf("%s: want the SMF to be heard, and nobody else", name)
		}
		s.upf.IP(t, "link del n4")
		s.wire()
		if s.heard(real) {
			t.Errorf("%s: heard by an interface that is not known yet", name)
		}
		s.s.SetPorts([]int{s.n4})
		if !s.heard(real) || s.heard(s.spoofed) {
			t.Errorf("%s: want the SMF to be heard by the new interface, and nobody else", name)
		}
		if name == "IPv4" { // whose requests the other helpers write
			s.spoofed.attack("wrong_interface")
			s.bed.upf.holdsNothing(t)
			for real.receive(silence) != nil { // the answers to heartbeats
			}
			real.associate()
		}
	}
}
