package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// steering is a steering entry that was put since Open.
type steering struct {
	model  srpolicy.Steering
	prefix netip.Prefix // by destination
	port   abi.PortKey  // or by interface
	slot   uint32       // where a UE pool leads to, 0: not there
	target abi.Target   // in target_by_*, zero: not there
	sends  *tunnel      // whose send entry target is
}

// steeringKey names an entry by what it matches.
func steeringKey(m srpolicy.Steering) string {
	if m.Interface == "" {
		return m.Prefix.Masked().String()
	}
	parts := []string{m.Interface}
	for _, v := range m.VLANs {
		parts = append(parts, strconv.Itoa(int(v)))
	}
	return strings.Join(parts, ".")
}

func sameSteering(a, b srpolicy.Steering) bool {
	if (a.GTP4D == nil) != (b.GTP4D == nil) || a.GTP4D != nil && *a.GTP4D != *b.GTP4D {
		return false
	}
	return a.Policy == b.Policy && a.Tunnel == b.Tunnel // what they match is the same key
}

func (d *DataPlane) checkSteering(m srpolicy.Steering) error {
	to := 0
	for _, set := range []bool{m.Policy != "", m.Tunnel != "", m.GTP4D != nil} {
		if set {
			to++
		}
	}
	if to != 1 {
		return errors.New("want exactly one of policy, tunnel and h_m_gtp4_d")
	}
	if (m.Interface == "") == !m.Prefix.IsValid() {
		return errors.New("want exactly one of prefix and interface")
	}
	if m.Prefix.IsValid() {
		switch abi.TargetKind(d.targetAt(m.Prefix.Masked()).Kind) {
		case abi.TargetKindTARGET_PDR:
			return fmt.Errorf("prefix %s %w: it is a framed route of a session", m.Prefix, ErrTaken)
		case abi.TargetKindTARGET_POD:
			return fmt.Errorf("prefix %s %w: it is a pod's address", m.Prefix, ErrTaken)
		}
	}
	if len(m.VLANs) > 2 {
		return fmt.Errorf("vlans: %d: at most 2", len(m.VLANs))
	}
	policyName := m.Policy
	if m.GTP4D != nil {
		if !m.Prefix.IsValid() || !m.Prefix.Addr().Is4() {
			return errors.New("h_m_gtp4_d: want an IPv4 prefix")
		}
		policyName = m.GTP4D.Policy
	}
	if policyName != "" {
		p := d.policies[policyName]
		if p == nil {
			return fmt.Errorf("policy %q: there is none of that name", policyName)
		}
		if p.layer2() && m.Interface == "" {
			return fmt.Errorf("policy %q: it encapsulates Ethernet frames: steer an interface into it", policyName)
		}
	}
	if m.Tunnel != "" && d.tunnels[m.Tunnel] == nil {
		return fmt.Errorf("tunnel %q: there is none of that name", m.Tunnel)
	}
	return nil
}

// PutSteering steers packets, or says where to instead. The policy or tunnel
// that it names must be there, and so must its interface.
func (d *DataPlane) PutSteering(m srpolicy.Steering) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := steeringKey(m)
	old := d.steerings[key]
	next := &steering{model: m}
	if m.Interface != "" {
		i, err := net.InterfaceByName(m.Interface)
		if err != nil {
			return fmt.Errorf("steering %s: interface %s: %w", key, m.Interface, err)
		}
		next.port = portKey(i.Index, m.VLANs)
		if d.isLink(next.port) {
			return fmt.Errorf("steering %s: its frames are for Ethernet sessions", key)
		}
	} else {
		next.prefix = m.Prefix.Masked()
	}
	if old != nil && old.port == next.port && sameSteering(old.model, m) {
		return nil
	}
	if err := d.putSteering(key, old, next); err != nil {
		return fmt.Errorf("steering %s: %w", key, err)
	}
	return nil
}

func portKey(ifindex int, vlans []uint16) abi.PortKey {
	k := abi.PortKey{Ifindex: uint32(ifindex)}
	if len(vlans) > 0 {
		k.OuterVlan = vlans[0]
	}
	if len(vlans) > 1 {
		k.InnerVlan = vlans[1]
	}
	return k
}

func (d *DataPlane) putSteering(key string, old, next *steering) error {
	if err := d.checkSteering(next.model); err != nil {
		return err
	}
	d.refer(key, next.model, (*users).use)
	if old != nil {
		next.slot = old.slot
		if old.port == next.port {
			next.target, next.sends = old.target, old.sends
		}
	}
	d.steerings[key] = next
	var err error
	if next.model.Interface != "" {
		err = d.placePort(next)
	} else {
		err = d.placeSteering(next)
	}
	if err != nil {
		d.refer(key, next.model, (*users).unuse)
		if old == nil {
			delete(d.steerings, key)
		} else {
			old.slot = next.slot
			if old.port == next.port {
				old.target, old.sends = next.target, next.sends
			}
			d.steerings[key] = old
		}
		return err
	}
	if old == nil {
		return nil
	}
	d.refer(key, old.model, (*users).unuse)
	if old.port != next.port {
		return errors.Join(d.removePort(old), d.dropTarget(old.target, old.sends))
	}
	return nil
}

// refer notes, or ends, what an entry refers to.
func (d *DataPlane) refer(key string, m srpolicy.Steering, do func(*users, user)) {
	switch {
	case m.Policy != "":
		do(&d.policies[m.Policy].users, user{userSteering, key})
	case m.Tunnel != "":
		do(&d.tunnels[m.Tunnel].users, user{userSteering, key})
	case m.GTP4D.Policy != "":
		do(&d.policies[m.GTP4D.Policy].users, user{userGTP4D, key})
	}
}

// placePort writes an interface's entry.
func (d *DataPlane) placePort(s *steering) error {
	put := func(t abi.Target) error {
		if err := d.portRules.Put(s.port, t); err != nil {
			return err
		}
		return d.markSteered(int(s.port.Ifindex))
	}
	return d.setTarget(s, put)
}

// setTarget lets what s matches go to where s says, by `put`, and gives back
// what the former target had of its own.
func (d *DataPlane) setTarget(s *steering, put func(abi.Target) error) error {
	t, sends, err := d.targetOf(s)
	if err != nil {
		return err
	}
	if err := put(t); err != nil {
		if t != s.target {
			err = errors.Join(err, d.dropTarget(t, sends))
		}
		return err
	}
	former, formerSends := s.target, s.sends
	s.target, s.sends = t, sends
	if former == t {
		return nil
	}
	return d.dropTarget(former, formerSends)
}

func (d *DataPlane) removePort(s *steering) error {
	if err := d.portRules.Delete(s.port); err != nil {
		return err
	}
	return d.markSteered(int(s.port.Ifindex))
}

// placeSteering writes an entry to where the data path looks first: the UE
// pool's slot if its prefix is one address (or IPv6 /64) of a pool, otherwise
// target_by_dst. Where both change, the new one comes first.
func (d *DataPlane) placeSteering(s *steering) error {
	d.adopt(s)
	if d.isLocal(s.prefix) {
		return d.unplaceSteering(s)
	}
	if slot, e, ok := d.slotFor(s); ok && d.putSlot(s, slot, e) {
		return d.unsetTarget(s)
	}
	put := func(t abi.Target) error { return d.putTarget(s.prefix, t) }
	if err := d.setTarget(s, put); err != nil {
		return err
	}
	d.clearSlot(s)
	return nil
}

// adopt takes over what an earlier daemon's entry had of its own.
func (d *DataPlane) adopt(s *steering) {
	if s.target != (abi.Target{}) || !s.prefix.Addr().Is4() {
		return
	}
	t := d.target4.Get(abi.LPM4(0, s.prefix))
	if t.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
		s.target = t
	}
}

// isLocal says whether a prefix is one of the node's own addresses.
func (d *DataPlane) isLocal(p netip.Prefix) bool { return p.IsSingleIP() && d.local[p.Addr()] }

// unplaceSteering takes an entry away from the data path.
func (d *DataPlane) unplaceSteering(s *steering) error {
	d.clearSlot(s)
	return d.unsetTarget(s)
}

func (d *DataPlane) unsetTarget(s *steering) error {
	if !d.isLocal(s.prefix) {
		if err := d.delTarget(s.prefix); err != nil {
			return err
		}
	}
	former, sends := s.target, s.sends
	s.target, s.sends = abi.Target{}, nil
	return d.dropTarget(former, sends)
}

// slotFor is the entry for a UE pool's slot; ok is false where there is none.
func (d *DataPlane) slotFor(s *steering) (slot uint32, e abi.Tunnel, ok bool) {
	slot = d.poolSlot(s.prefix)
	if slot == 0 {
		return 0, e, false
	}
	if s.model.Tunnel != "" {
		t := d.tunnels[s.model.Tunnel]
		return slot, t.out, t.model.Remote.IsValid()
	}
	p := d.policies[s.model.Policy]
	if p == nil {
		return 0, e, false
	}
	if e, ok := d.oneSegment(p); ok {
		return slot, e, true
	}
	return slot, abi.Tunnel{Action: uint8(abi.TunnelActionTUNNEL_LIST), Index: p.index}, true
}

// putSlot writes a pool's slot. It fails where packets could see a half of the
// change: then target_by_dst must do.
func (d *DataPlane) putSlot(s *steering, slot uint32, e abi.Tunnel) bool {
	empty := d.tunnel.Get(slot).Action == 0
	switch {
	case !empty && d.changeTunnel(slot, e):
	case empty && d.freeSlot(slot):
		d.writeTunnel(slot, e, wordAction)
	default:
		return false
	}
	s.slot = slot
	return true
}

func (d *DataPlane) clearSlot(s *steering) {
	slot := s.slot
	if slot == 0 {
		slot = d.poolSlot(s.prefix) // of an earlier daemon
	}
	if slot == 0 || d.tunnel.Get(slot).Action == 0 {
		s.slot = 0
		return
	}
	if t := d.tunnels[s.model.Tunnel]; t != nil {
		t.sentBefore.Add(d.tunnelCounter(slot))
	}
	d.clearTunnel(slot, wordAction)
	s.slot = 0
}

// targetOf is what target_by_* has to say of an entry, and whose send entry
// that refers to. What the present target has of its own is used again where
// it is the same.
func (d *DataPlane) targetOf(s *steering) (abi.Target, *tunnel, error) {
	target := func(k abi.TargetKind, index uint32) abi.Target {
		return abi.Target{Kind: uint32(k), Index: index}
	}
	switch m := s.model; {
	case m.Policy != "":
		return target(abi.TargetKindTARGET_POLICY, d.policies[m.Policy].index), nil, nil
	case m.Tunnel != "":
		t := d.tunnels[m.Tunnel]
		if s.sends == t {
			return s.target, t, nil
		}
		index, err := d.sendIndex(t)
		return target(abi.TargetKindTARGET_TUNNEL, index), t, err
	default:
		index := uint32(0)
		if s.target.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
			index = s.target.Index
		}
		fresh, err := d.putMobile(index, d.mobileOfGTP4D(m.GTP4D))
		return target(abi.TargetKindTARGET_GTP4D, fresh), nil, err
	}
}

// targetAt is what target_by_dst leads a prefix to.
func (d *DataPlane) targetAt(p netip.Prefix) abi.Target {
	if p.Addr().Is4() {
		return d.target4.Get(abi.LPM4(0, p))
	}
	return d.target6.Get(abi.LPM6(0, p))
}

// dropTarget gives back what a former target had of its own.
func (d *DataPlane) dropTarget(t abi.Target, sends *tunnel) error {
	if t.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
		d.mobileIndex.Retire(t.Index)
	}
	if sends != nil {
		return d.dropSend(sends)
	}
	return nil
}

// mobileOfGTP4D are the parameters of H.M.GTP4.D. The SID that packets go to
// depends on each packet, and so does its route: it has no adjacency.
func (d *DataPlane) mobileOfGTP4D(g *srpolicy.GTP4D) *abi.Mobile {
	m := &abi.Mobile{
		Source: abi.In6Of(g.SourcePrefix.Addr()), SourceLength: uint8(g.SourcePrefix.Bits()),
		Target: abi.In6Of(g.SIDPrefix.Masked().Addr()), TargetLength: uint8(g.SIDPrefix.Bits()),
		PduType: uint8(g.PDUType),
	}
	if g.Policy != "" {
		m.Policy = d.policies[g.Policy].index
	}
	return m
}

func (d *DataPlane) putTarget(p netip.Prefix, t abi.Target) error {
	if p.Addr().Is4() {
		return d.target4.Put(abi.LPM4(0, p), t)
	}
	return d.target6.Put(abi.LPM6(0, p), t)
}

func (d *DataPlane) delTarget(p netip.Prefix) error {
	if p.Addr().Is4() {
		return d.target4.Delete(abi.LPM4(0, p))
	}
	return d.target6.Delete(abi.LPM6(0, p))
}

// DeleteSteering removes the entry for what m matches. One that is not there
// is not an error.
func (d *DataPlane) DeleteSteering(m srpolicy.Steering) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := steeringKey(m)
	s := d.steerings[key]
	if s == nil {
		return nil
	}
	var err error
	if s.model.Interface != "" {
		err = errors.Join(d.removePort(s), d.dropTarget(s.target, s.sends))
	} else {
		err = d.unplaceSteering(s)
	}
	delete(d.steerings, key)
	d.refer(key, s.model, (*users).unuse)
	return err
}

// PutLocal leaves packets for one of the node's own addresses to the kernel,
// whatever steers them.
func (d *DataPlane) PutLocal(a netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a = a.WithZone("")
	p := netip.PrefixFrom(a, a.BitLen())
	s := d.steerings[p.String()]
	if s == nil {
		s = &steering{prefix: p}
		d.adopt(s)
	}
	if err := d.putTarget(p, abi.Target{Kind: uint32(abi.TargetKindTARGET_PASS)}); err != nil {
		return fmt.Errorf("address %s: %w", a, err)
	}
	d.local[a] = true
	return d.unplaceSteering(s)
}

// DeleteLocal ends that.
func (d *DataPlane) DeleteLocal(a netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a = a.WithZone("")
	if !d.local[a] {
		return nil
	}
	delete(d.local, a)
	p := netip.PrefixFrom(a, a.BitLen())
	if s := d.steerings[p.String()]; s != nil {
		return d.placeSteering(s)
	}
	return d.delTarget(p)
}
