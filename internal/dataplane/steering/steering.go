package steering

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"sync"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	dpclass "github.com/culvert-net/culvert/internal/dataplane/class"
	"github.com/culvert-net/culvert/internal/dataplane/mobile"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
	"github.com/culvert-net/culvert/internal/dataplane/tunnel"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// steering is a steering entry that was put since Open.
type steering struct {
	model  srpolicy.Steering
	row    *class.Row     // of a destination with traffic classes, or nil
	prefix netip.Prefix   // by destination; port says where it arrives, if that matters
	port   abi.PortKey    // or by interface and tags alone; of a tenant: its table
	slot   uint32         // where a UE pool leads to, 0: not there
	target abi.Target     // in target_by_*, zero: not there
	sends  *tunnel.Tunnel // whose send entry target is
}

// byPort says whether where frames arrive is all that matters.
func (s *steering) byPort() bool { return !s.prefix.IsValid() }

// Table is what is steered, and the node's own addresses, which are not.
type Table struct {
	mu       *sync.Mutex
	settings *settings.Book
	targets  *target.Table
	mobiles  *mobile.Table
	policies *policy.Table
	classes  *dpclass.Table
	tunnels  *tunnel.Table
	entries  *tunnel.Entries

	steerings map[string]*steering
	local     map[netip.Prefix]bool

	// IsLink says whether frames of a port are for Ethernet sessions. Who opens
	// the data path sets it.
	IsLink func(abi.PortKey) bool
}

// New steers nothing. mu is the data path's lock.
func New(mu *sync.Mutex, book *settings.Book, targets *target.Table, mobiles *mobile.Table, policies *policy.Table, classes *dpclass.Table, tunnels *tunnel.Table, entries *tunnel.Entries) *Table {
	return &Table{
		mu: mu, settings: book, targets: targets, mobiles: mobiles, policies: policies, classes: classes, tunnels: tunnels, entries: entries,
		steerings: map[string]*steering{}, local: map[netip.Prefix]bool{},
	}
}

// Mobiles are the entries of mobile that an earlier daemon's targets refer to, and Rows
// the rows of class_way.
func (x *Table) Mobiles() map[uint32]bool { return x.indexes(abi.TargetKindTARGET_GTP4D) }

// Rows are those of class_way.
func (x *Table) Rows() map[uint32]bool { return x.indexes(abi.TargetKindTARGET_CLASSES) }

// indexes are those of the targets of a kind.
func (x *Table) indexes(kind abi.TargetKind) map[uint32]bool {
	out := map[uint32]bool{}
	for _, t := range x.targets.All() {
		if t.Kind == uint32(kind) {
			out[t.Index] = true
		}
	}
	for _, t := range x.targets.ByPort.All() {
		if t.Kind == uint32(kind) {
			out[t.Index] = true
		}
	}
	return out
}

// retire gives back what a target has of its own in another table.
func (x *Table) retire(t abi.Target) {
	switch abi.TargetKind(t.Kind) {
	case abi.TargetKindTARGET_GTP4D:
		x.mobiles.Retire(t.Index)
	case abi.TargetKindTARGET_CLASSES:
		x.classes.Retire(t.Index)
	}
}

// Has says whether a prefix is steered, or one of the node's own addresses.
func (x *Table) Has(p netip.Prefix) bool { return x.steerings[p.String()] != nil || x.IsLocal(p) }

// HasPort says whether frames of a port are steered.
func (x *Table) HasPort(port abi.PortKey) bool {
	return table.KeyOf(x.steerings, func(s *steering) bool { return s.byPort() && s.port == port }) != ""
}

// LeavePools moves entries from UE pools that are about to go (settings.Book's
// Leaving) to target_by_dst.
func (x *Table) LeavePools() error {
	var errs []error
	for _, s := range x.steerings {
		if s.slot != 0 && x.settings.PoolSlot(s.prefix) == 0 {
			errs = append(errs, x.place(s))
		}
	}
	return errors.Join(errs...)
}

// Replace places steering by prefix anew, after what it goes to changed.
func (x *Table) Replace(who ref.User) error {
	s := x.steerings[who.Key]
	if who.Kind != ref.Steering || s == nil || s.byPort() {
		return nil
	}
	return x.place(s)
}

// Retarget lets an entry that refers to what t sends refer to another index.
func (x *Table) Retarget(who ref.User, t *tunnel.Tunnel, index uint32) error {
	s := x.steerings[who.Key]
	if s == nil || s.sends != t {
		return nil
	}
	s.target.Index = index
	if s.byPort() {
		return x.targets.PutPort(s.port, s.target)
	}
	return x.targets.PutFrom(s.port.Ifindex, s.prefix, s.target)
}

// SlotOf is the entry of a UE pool that steering has; 0: none.
func (x *Table) SlotOf(who ref.User) uint32 {
	if s := x.steerings[who.Key]; s != nil {
		return s.slot
	}
	return 0
}

// TunnelAt names the tunnel that an entry of a UE pool leads to; empty: none.
func (x *Table) TunnelAt(slot uint32) string {
	if key := table.KeyOf(x.steerings, func(s *steering) bool { return slot != 0 && s.slot == slot }); key != "" {
		return x.steerings[key].model.Tunnel
	}
	return ""
}

// InPools is the number of entries in UE pools.
func (x *Table) InPools() (n int) {
	for _, s := range x.steerings {
		if s.slot != 0 {
			n++
		}
	}
	return n
}

// Sweep removes targets and entries of UE pools that an earlier daemon put and
// this one has not. The caller holds the lock.
func (x *Table) Sweep() error {
	err := x.targets.Sweep(x.retire)
	mine := map[uint32]bool{}
	for _, s := range x.steerings {
		mine[s.slot] = true
	}
	now := x.settings.Get()
	for _, p := range settings.PoolsOf(&now) {
		for index := p.Base; p.Mask != 0 && p.Sessions == 0 && index < p.Base+p.Size(); index++ {
			if !mine[index] && !x.entries.IsEmpty(index) {
				x.entries.Clear(index, tunnel.WordAction)
			}
		}
	}
	return err
}

func (x *Table) check(m srpolicy.Steering) error {
	to := 0
	for _, set := range []bool{m.Policy != "", m.Tunnel != "", m.GTP4D != nil} {
		if set {
			to++
		}
	}
	if to != 1 {
		return errors.New("want exactly one of policy, tunnel and h_m_gtp4_d")
	}
	if m.Interface == "" && !m.Prefix.IsValid() {
		return errors.New("want prefix, interface, or both")
	}
	if m.Prefix.IsValid() && m.Interface == "" {
		switch abi.TargetKind(x.targets.AtFrom(abi.TenantTable(m.Tenant), m.Prefix.Masked()).Kind) {
		case abi.TargetKindTARGET_PDR:
			return fmt.Errorf("prefix %s %w: it is a framed route of a session", m.Prefix, target.ErrTaken)
		case abi.TargetKindTARGET_POD:
			return fmt.Errorf("prefix %s %w: it is a pod's address", m.Prefix, target.ErrTaken)
		}
	}
	if len(m.VLANs) > 2 || m.Prefix.IsValid() && len(m.VLANs) > 0 {
		return fmt.Errorf("vlans: %d: at most 2, and none with a prefix", len(m.VLANs))
	}
	policyName := m.Policy
	if m.GTP4D != nil {
		if !m.Prefix.IsValid() || !m.Prefix.Addr().Is4() {
			return errors.New("h_m_gtp4_d: want an IPv4 prefix")
		}
		policyName = m.GTP4D.Policy
	}
	if policyName != "" {
		p := x.policies.Get(policyName)
		if p == nil {
			return fmt.Errorf("policy %q: there is none of that name", policyName)
		}
		if p.Layer2() && m.Prefix.IsValid() {
			return fmt.Errorf("policy %q: it encapsulates Ethernet frames: steer an interface into it", policyName)
		}
	}
	if m.Tunnel != "" && x.tunnels.Get(m.Tunnel) == nil {
		return fmt.Errorf("tunnel %q: there is none of that name", m.Tunnel)
	}
	return nil
}

// Put steers packets, or says where to instead. The policy or tunnel
// that it names must be there, and so must its interface.
func (x *Table) Put(m srpolicy.Steering) error { return x.PutClassified(class.Entry{Steering: m}) }

// PutClassified is Put for a destination that may have traffic classes, which lead to the
// policies of its row.
func (x *Table) PutClassified(e class.Entry) error {
	m, row := e.Steering, e.Row
	x.mu.Lock()
	defer x.mu.Unlock()
	key := m.Key()
	old := x.steerings[key]
	next := &steering{model: m, row: row}
	if m.Interface != "" {
		i, err := net.InterfaceByName(m.Interface)
		if err != nil {
			return fmt.Errorf("steering %s: interface %s: %w", key, m.Interface, err)
		}
		var vlans [2]uint16 // check refuses more
		copy(vlans[:], m.VLANs)
		next.port = abi.PortKey{Ifindex: uint32(i.Index), OuterVlan: vlans[0], InnerVlan: vlans[1]}
		if !m.Prefix.IsValid() && x.IsLink(next.port) {
			return fmt.Errorf("steering %s: its frames are for Ethernet sessions", key)
		}
	}
	if m.Prefix.IsValid() {
		next.prefix = m.Prefix.Masked()
	}
	if m.Tenant != 0 {
		next.port.Ifindex = abi.TenantTable(m.Tenant)
	}
	if old != nil && old.port == next.port && old.model.Policy == m.Policy && old.model.Tunnel == m.Tunnel &&
		reflect.DeepEqual(old.model.GTP4D, m.GTP4D) && reflect.DeepEqual(old.row, row) { // what they match is the same key
		return nil
	}
	if err := x.put(key, old, next); err != nil {
		return fmt.Errorf("steering %s: %w", key, err)
	}
	return nil
}

func (x *Table) put(key string, old, next *steering) error {
	if err := x.check(next.model); err != nil {
		return err
	}
	if next.row != nil {
		if err := x.classes.Check(next.row); err != nil {
			return err
		}
	}
	x.refer(key, next, (*ref.Users).Use)
	if old != nil {
		next.slot = old.slot
		if old.port == next.port {
			next.target, next.sends = old.target, old.sends
		}
	}
	x.steerings[key] = next
	var err error
	if next.byPort() {
		x.adopt(next)
		err = x.setTarget(next, func(t abi.Target) error { return x.targets.PutPort(next.port, t) })
	} else {
		err = x.place(next)
	}
	if err != nil {
		x.refer(key, next, (*ref.Users).Unuse)
		if old == nil {
			delete(x.steerings, key)
		} else {
			old.slot = next.slot
			if old.port == next.port {
				old.target, old.sends = next.target, next.sends
			}
			x.steerings[key] = old
		}
		return err
	}
	if old == nil {
		return nil
	}
	x.refer(key, old, (*ref.Users).Unuse)
	if old.port != next.port {
		if !old.byPort() {
			return x.unplace(old)
		}
		return errors.Join(x.targets.DeletePort(old.port), x.dropTarget(old.target, old.sends))
	}
	return nil
}

// refer notes, or ends, what an entry refers to.
func (x *Table) refer(key string, s *steering, do func(*ref.Users, ref.User)) {
	if s.row != nil {
		for _, way := range s.row {
			if way.Policy != "" {
				do(&x.policies.Get(way.Policy).Users, ref.User{Kind: ref.Steering, Key: key})
			}
		}
	}
	switch m := s.model; {
	case m.Policy != "":
		do(&x.policies.Get(m.Policy).Users, ref.User{Kind: ref.Steering, Key: key})
	case m.Tunnel != "":
		do(&x.tunnels.Get(m.Tunnel).Users, ref.User{Kind: ref.Steering, Key: key})
	case m.GTP4D.Policy != "":
		do(&x.policies.Get(m.GTP4D.Policy).Users, ref.User{Kind: ref.GTP4D, Key: key})
	}
}

// setTarget lets what s matches go to where s says, by `put`, and gives back
// what the former target had of its own.
func (x *Table) setTarget(s *steering, put func(abi.Target) error) error {
	t, sends, err := x.targetOf(s)
	if err != nil {
		return err
	}
	if err := put(t); err != nil {
		if t != s.target {
			err = errors.Join(err, x.dropTarget(t, sends))
		}
		return err
	}
	former, formerSends := s.target, s.sends
	s.target, s.sends = t, sends
	if former == t {
		return nil
	}
	return x.dropTarget(former, formerSends)
}

// place writes an entry to where the data path looks first: the UE
// pool's slot if its prefix is one address (or IPv6 /64) of a pool, otherwise
// target_by_dst. Where both change, the new one comes first.
func (x *Table) place(s *steering) error {
	x.adopt(s)
	put := func(t abi.Target) error { return x.targets.PutFrom(s.port.Ifindex, s.prefix, t) }
	if s.port.Ifindex != 0 { // the data path sees to the node's own addresses
		return x.setTarget(s, put)
	}
	if x.IsLocal(s.prefix) {
		return x.unplace(s)
	}
	if x.putSlot(s) {
		return x.unsetTarget(s)
	}
	if err := x.setTarget(s, put); err != nil {
		return err
	}
	x.clearSlot(s)
	return nil
}

// adopt takes over what an earlier daemon's entry had of its own.
func (x *Table) adopt(s *steering) {
	t := x.targets.ByPort.Get(s.port)
	if !s.byPort() {
		t = x.targets.AtFrom(s.port.Ifindex, s.prefix)
	}
	if s.target == (abi.Target{}) && (t.Kind == uint32(abi.TargetKindTARGET_GTP4D) || t.Kind == uint32(abi.TargetKindTARGET_CLASSES)) {
		s.target = t
	}
}

// Leads says whether packets to an address are steered into a policy or a tunnel, wherever they
// arrive.
func (x *Table) Leads(a netip.Addr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	own := -1
	for p := range x.local {
		if p.Contains(a) {
			own = max(own, p.Bits())
		}
	}
	for _, s := range x.steerings {
		if !s.byPort() && s.port.Ifindex == 0 && s.model.GTP4D == nil && s.prefix.Contains(a) && s.prefix.Bits() > own {
			return true
		}
	}
	return false
}

// Translators calls f for each H.M.GTP4.D. The caller holds the lock.
func (x *Table) Translators(f func(srpolicy.GTP4D)) {
	for _, s := range x.steerings {
		if s.model.GTP4D != nil {
			f(*s.model.GTP4D)
		}
	}
}

// IsLocal says whether a prefix is one of the node's own.
func (x *Table) IsLocal(p netip.Prefix) bool { return x.local[p] }

// unplace takes an entry away from the data path.
func (x *Table) unplace(s *steering) error {
	if s.port.Ifindex == 0 {
		x.clearSlot(s)
	}
	return x.unsetTarget(s)
}

func (x *Table) unsetTarget(s *steering) error {
	if s.port.Ifindex != 0 || !x.IsLocal(s.prefix) {
		if err := x.targets.DeleteFrom(s.port.Ifindex, s.prefix); err != nil {
			return err
		}
	}
	former, sends := s.target, s.sends
	s.target, s.sends = abi.Target{}, nil
	return x.dropTarget(former, sends)
}

// putSlot writes the slot of the UE pool that has the prefix, if there is one. It
// fails where packets could see a half of the change: then target_by_dst must do.
func (x *Table) putSlot(s *steering) (ok bool) {
	slot := x.settings.PoolSlot(s.prefix)
	if slot == 0 || s.row != nil {
		return false
	}
	var e abi.Tunnel
	if s.model.Tunnel != "" {
		if e, ok = x.tunnels.Get(s.model.Tunnel).Out(); !ok {
			return false
		}
	} else if p := x.policies.Get(s.model.Policy); p == nil {
		return false
	} else if e, ok = x.policies.OneSegment(p); !ok {
		e = abi.Tunnel{Action: uint8(abi.TunnelActionTUNNEL_LIST), Index: p.Index()}
	}
	empty := x.entries.IsEmpty(slot)
	switch {
	case !empty && x.entries.Change(slot, e):
	case empty && x.entries.Free(slot):
		x.entries.Write(slot, e, tunnel.WordAction)
	default:
		return false
	}
	s.slot = slot
	return true
}

func (x *Table) clearSlot(s *steering) {
	slot := cmp.Or(s.slot, x.settings.PoolSlot(s.prefix)) // or an earlier daemon wrote it
	if slot == 0 || x.entries.IsEmpty(slot) {
		s.slot = 0
		return
	}
	if t := x.tunnels.Get(s.model.Tunnel); t != nil {
		t.SentBy(x.entries.Counter(slot))
	}
	x.entries.Clear(slot, tunnel.WordAction)
	s.slot = 0
}

// targetOf is what target_by_* has to say of an entry, and whose send entry
// that refers to. What the present target has of its own is used again where
// it is the same.
func (x *Table) targetOf(s *steering) (abi.Target, *tunnel.Tunnel, error) {
	target := func(k abi.TargetKind, index uint32) abi.Target {
		return abi.Target{Kind: uint32(k), Index: index}
	}
	switch m := s.model; {
	case s.row != nil:
		index := uint32(0)
		if s.target.Kind == uint32(abi.TargetKindTARGET_CLASSES) {
			index = s.target.Index
		}
		index, err := x.classes.Put(index, s.row)
		return target(abi.TargetKindTARGET_CLASSES, index), nil, err
	case m.Policy != "":
		return target(abi.TargetKindTARGET_POLICY, x.policies.Get(m.Policy).Index()), nil, nil
	case m.Tunnel != "":
		t := x.tunnels.Get(m.Tunnel)
		if s.sends == t {
			return s.target, t, nil
		}
		index, err := x.tunnels.SendIndex(t)
		return target(abi.TargetKindTARGET_TUNNEL, index), t, err
	default:
		index := uint32(0)
		if s.target.Kind == uint32(abi.TargetKindTARGET_GTP4D) {
			index = s.target.Index
		}
		// The SID that packets go to depends on each packet, and so does its
		// route: there is no adjacency.
		g := m.GTP4D
		e := &abi.Mobile{
			Source: abi.In6Of(g.SourcePrefix.Addr()), SourceLength: uint8(g.SourcePrefix.Bits()),
			Target: abi.In6Of(g.SIDPrefix.Masked().Addr()), TargetLength: uint8(g.SIDPrefix.Bits()),
			PduType: uint8(g.PDUType),
		}
		if g.Policy != "" {
			e.Policy = x.policies.Get(g.Policy).Index()
		}
		fresh, err := x.mobiles.Put(index, e)
		return target(abi.TargetKindTARGET_GTP4D, fresh), nil, err
	}
}

// dropTarget gives back what a former target had of its own.
func (x *Table) dropTarget(t abi.Target, sends *tunnel.Tunnel) error {
	x.retire(t)
	if sends != nil {
		return x.tunnels.DropSend(sends)
	}
	return nil
}

// Delete removes the entry for what m matches. One that is not there
// is not an error.
func (x *Table) Delete(m srpolicy.Steering) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := m.Key()
	s := x.steerings[key]
	if s == nil {
		return nil
	}
	var err error
	if s.byPort() {
		err = errors.Join(x.targets.DeletePort(s.port), x.dropTarget(s.target, s.sends))
	} else {
		err = x.unplace(s)
	}
	delete(x.steerings, key)
	x.refer(key, s, (*ref.Users).Unuse)
	return err
}

// PutLocal leaves packets for one of the node's own addresses, or prefixes of them, to the
// kernel, whatever steers just these.
func (x *Table) PutLocal(p netip.Prefix) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.steerings[p.String()]
	if s == nil {
		s = &steering{prefix: p}
		x.adopt(s)
	}
	if err := x.targets.Put(p, abi.Target{Kind: uint32(abi.TargetKindTARGET_PASS)}); err != nil {
		return fmt.Errorf("own address %s: %w", p, err)
	}
	x.local[p] = true
	return x.unplace(s)
}

// DeleteLocal ends that.
func (x *Table) DeleteLocal(p netip.Prefix) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.local[p] {
		return nil
	}
	delete(x.local, p)
	if s := x.steerings[p.String()]; s != nil {
		return x.place(s)
	}
	return x.targets.Delete(p)
}
