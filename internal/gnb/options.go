package gnb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/smf"
)

// Options are what a gNB is, and whose sessions it serves.
type Options struct {
	// SMF says how the UPF is reached by N4, from the network namespace N4Namespace (empty:
	// this process's). nil: Given are the sessions.
	SMF         *smf.Options
	N4Namespace string
	// Spec is the template of the sessions that are made. Attach sets Access.
	Spec smf.Spec
	// Given are sessions that somebody else has made.
	Given []Session
	// N3 is the address of the gNB, in the network namespace Namespace (empty: this
	// process's).
	N3        netip.Addr
	Namespace string
	// Name is what namespaces and devices of UEs are called, with the number behind it:
	// "ue" unless set.
	Name string
	// MTU of the UEs: 1400 unless set.
	MTU int
	// Usage has the UPF count each session, so that Ping can say where packets went missing.
	Usage bool
	// Say, if set, is called with what happens next.
	Say func(text string)
}

// Session is a PDU session of one UE.
type Session struct {
	UE4 netip.Addr `json:"ue4,omitzero"`
	UE6 netip.Addr `json:"ue6,omitzero"`
	// UPF is where uplink packets go, and GNB where downlink packets come.
	UPF FTEID `json:"upf"`
	GNB FTEID `json:"gnb"`
	QFI uint8 `json:"qfi"`
	// SEID and UPSEID are the SMF's and the UPF's, of a session that Attach has made.
	SEID   uint64 `json:"cp_seid,string,omitempty"`
	UPSEID uint64 `json:"up_seid,string,omitempty"`
	// Namespace is the UE's network namespace. Its device has the same name.
	Namespace string `json:"namespace"`
}

// FTEID is one end of a GTP-U tunnel.
type FTEID struct {
	Address netip.Addr `json:"address"`
	TEID    uint32     `json:"teid"`
}

// String is as tshark has it.
func (f FTEID) String() string { return fmt.Sprintf("%s TEID %#x", f.Address, f.TEID) }

// Source is the UE's address in the family of a destination; not valid: it has none.
func (s *Session) Source(to netip.Addr) netip.Addr {
	if to.Is4() {
		return s.UE4
	}
	return s.UE6
}

// Limits of what one machine is asked to carry.
const (
	mostUEs       = 256
	longestName   = 12 // with a number behind it, it is the name of a device
	smallestMTU   = 576
	smallestIPv6  = 1280
	largestMTU    = 65000
	mostTEID      = 1 << 31
	usageOfPing   = 1 << 40 // octets: more than anybody sends by hand
	interfaceBits = 64
)

// Complete fills in what is not set and says what is wrong, by the names of the flags.
func (o *Options) Complete() error {
	if o.Name == "" {
		o.Name = "ue"
	}
	if o.MTU == 0 {
		o.MTU = 1400
	}
	n := len(o.Given)
	if o.SMF != nil {
		n = max(o.Spec.Count, 1)
	}
	six := o.Spec.UE6.IsValid() || slices.ContainsFunc(o.Given, func(s Session) bool { return s.UE6.IsValid() })
	switch {
	case !o.N3.IsValid():
		return errors.New("--n3 is missing: give the gNB's address on N3")
	case n < 1 || n > mostUEs:
		return fmt.Errorf("--count: %d: give 1 to %d", n, mostUEs)
	case len(o.Name) > longestName:
		return fmt.Errorf("--name: %q: give at most %d letters: it is the name of namespaces and devices", o.Name, longestName)
	case o.MTU < smallestMTU || o.MTU > largestMTU:
		return fmt.Errorf("--mtu: %d: give %d to %d", o.MTU, smallestMTU, largestMTU)
	case six && o.MTU < smallestIPv6:
		return fmt.Errorf("--mtu: %d: IPv6 needs %d", o.MTU, smallestIPv6)
	}
	for i := range o.Given {
		if err := o.Given[i].check(o.N3); err != nil {
			return err
		}
	}
	return nil
}

// check says what is missing of a session that somebody else made.
func (s *Session) check(n3 netip.Addr) error {
	switch {
	case !s.UE4.IsValid() && !s.UE6.IsValid():
		return errors.New("--ue is missing: give the UE's address")
	case !s.UPF.Address.IsValid():
		return errors.New("--n3-upf is missing: give the UPF's GTP-U address")
	case s.UPF.TEID == 0 || s.GNB.TEID == 0:
		return errors.New("--teid, --gnb-teid: give both TEIDs of the session, which are not 0")
	case s.UPF.Address.Is4() != n3.Is4():
		return fmt.Errorf("--n3-upf: %s and --n3 %s are of different families", s.UPF.Address, n3)
	}
	return nil
}

// spec is the template of the sessions, with the gNB's tunnels.
func (o *Options) spec() smf.Spec {
	s := o.Spec
	s.Access = &smf.Tunnel{Address: o.N3, TEID: RandomTEID()}
	if o.Usage {
		s.URR = &smf.URR{VolumeThreshold: &session.Volume{Total: new(uint64(usageOfPing))}}
	}
	return s
}

// RandomTEID is one that has room for mostUEs behind it.
func RandomTEID() uint32 { return 1 + rand.Uint32N(mostTEID) }

// sessionOf is a session of ours as the UPF has confirmed it.
func (o *Options) sessionOf(info smf.Info) (Session, error) {
	s := Session{
		UE4: info.UE4, UE6: withInterface(info.UE6), QFI: o.Spec.QFI, SEID: info.CPSEID, UPSEID: info.UPSEID,
		GNB: FTEID{o.N3, info.Peer.TEID},
	}
	s.UPF = FTEID{info.Access.Addr4, info.Access.TEID}
	if o.N3.Is6() {
		s.UPF.Address = info.Access.Addr6
	}
	if !s.UPF.Address.IsValid() {
		return s, fmt.Errorf("--n3: the UPF chose an F-TEID without an address of the family of %s: give an address of the other family", o.N3)
	}
	return s, nil
}

// withInterface gives an address an interface identifier, if it has none.
func withInterface(a netip.Addr) netip.Addr {
	if !a.IsValid() || netip.PrefixFrom(a, interfaceBits).Masked().Addr() != a {
		return a
	}
	b := a.As16()
	b[15] = 1
	return netip.AddrFrom16(b)
}

// FromState lists the sessions of an SMF's state file that are established: of the group
// called name, or of all. It returns the gNB's address that they name.
func FromState(saved *smf.Saved, name string) (list []Session, n3 netip.Addr, err error) {
	for _, g := range saved.Groups {
		if name != "" && g.Spec.Name != name {
			continue
		}
		for _, info := range g.Infos() {
			if info.Access == nil || info.Peer == nil {
				return nil, n3, fmt.Errorf("session %s %d has no tunnel of a gNB: make it with --access and --access-teid", g.Spec.Name, info.Index)
			}
			peer, upf := info.Peer.Addr4, info.Access.Addr4
			if !peer.IsValid() {
				peer, upf = info.Peer.Addr6, info.Access.Addr6
			}
			if n3.IsValid() && n3 != peer {
				return nil, n3, fmt.Errorf("sessions are for the gNBs %s and %s: choose a group by --sessions", n3, peer)
			}
			n3 = peer
			list = append(list, Session{
				UE4: info.UE4, UE6: withInterface(info.UE6), UPF: FTEID{upf, info.Access.TEID}, GNB: FTEID{peer, info.Peer.TEID}, QFI: g.Spec.QFI,
				SEID: info.CPSEID, UPSEID: info.UPSEID,
			})
		}
	}
	if len(list) == 0 {
		return nil, n3, fmt.Errorf("the state file has no established session%s: make one with `culvert smf establish`", of(name))
	}
	return list, n3, nil
}

func of(name string) string {
	if name == "" {
		return ""
	}
	return " of group " + strconv.Quote(name)
}
