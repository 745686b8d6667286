package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// tunnel is a GTP-U tunnel that was put since Open.
type tunnel struct {
	users // steering that sends into it
	// switchers are the tunnels whose SwitchTo it is: those that wait for one of
	// its name, when it comes.
	switchers map[string]bool

	model   gtpu.Tunnel
	failed  bool   // the tables do not say what model does
	receive uint32 // index, 0: none
	send    uint32 // index of an entry that target_by_dst refers to, 0: none
	sendRef int    // steering entries there
	out     abi.Tunnel
	adj     []AdjacencyKey
	source  abi.In6
	// sentBefore is what entries that are gone had sent.
	sentBefore, receivedBefore counter.Counter
}

// Words of an entry of tunnel (bpf/def/tables.h).
const (
	wordVolume = 0
	wordKey    = wordVolume + counter.VolumeWords // key, teid
	wordAction = 6                                // index, action
)

func checkTunnel(t gtpu.Tunnel) error {
	if t.Name == "" || len(t.Name) > table.NameLength {
		return fmt.Errorf("name: want 1 to %d bytes", table.NameLength)
	}
	after := 0
	for _, set := range []bool{t.Decapsulate, t.SwitchTo != "", t.Policy != ""} {
		if set {
			after++
		}
	}
	switch {
	case t.LocalTEID != 0 && after != 1:
		return errors.New("local_teid: want exactly one of decapsulate, switch_to and policy with it")
	case t.LocalTEID == 0 && after != 0:
		return errors.New("decapsulate, switch_to and policy want a local_teid")
	case t.Source.IsValid() && t.Remote.IsValid() && t.Source.Is4() != t.Remote.Is4():
		return errors.New("source: want the family of remote")
	}
	return nil
}

// PutTunnel adds a GTP-U tunnel, or changes it. The policy that it names must
// be there. The tunnel that it switches to may come later (two tunnels may
// switch to each other): until then its TEID is unknown.
func (d *DataPlane) PutTunnel(m gtpu.Tunnel) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.tunnels[m.Name]; old != nil && old.model == m && !old.failed {
		return nil
	}
	if err := d.putTunnel(m); err != nil {
		return fmt.Errorf("tunnel %s: %w", m.Name, err)
	}
	return nil
}

func (d *DataPlane) putTunnel(m gtpu.Tunnel) error {
	if err := checkTunnel(m); err != nil {
		return err
	}
	if other, ok := d.teids[m.LocalTEID]; ok && other != m.Name {
		return fmt.Errorf("local_teid %d: tunnel %s has it", m.LocalTEID, other)
	}
	if m.Policy != "" && d.policies[m.Policy] == nil {
		return fmt.Errorf("policy %q: there is none of that name", m.Policy)
	}
	t, old := d.tunnels[m.Name], tunnel{}
	if t == nil {
		t = &tunnel{switchers: maps.Clone(d.waiting[m.Name])}
	} else {
		old = *t
	}
	if err := d.fillTunnel(t, m); err != nil {
		return err
	}
	d.tunnels[m.Name] = t
	err := d.programTunnel(t, &old)
	t.failed = err != nil
	return errors.Join(err, d.releaseTunnel(&old))
}

// fillTunnel takes the references of m and says what is sent.
func (d *DataPlane) fillTunnel(t *tunnel, m gtpu.Tunnel) error {
	out, src, adj := abi.Tunnel{}, abi.In6{}, []AdjacencyKey(nil)
	if m.Remote.IsValid() {
		key := AdjacencyKey{NextHop: m.Remote}
		index, err := d.acquire(key)
		if err != nil {
			return err
		}
		adj = []AdjacencyKey{key}
		src = abi.In6Of(d.tunnelSource(m))
		srcIndex, err := d.acquireSource(src)
		if err != nil {
			return orRelease(d, err, adj)
		}
		out = abi.Tunnel{
			Teid: m.RemoteTEID, Remote: abi.In6Of(m.Remote), Source: srcIndex, Adjacency: index,
			Action: uint8(abi.TunnelActionTUNNEL_GTPU), Qfi: m.QFI, Container: uint8(m.PDUSessionContainer),
		}
		if m.Remote.Is4() {
			out.Ipv4 = 1
		}
	}
	if m.Policy != "" {
		d.policies[m.Policy].use(user{userTunnel, m.Name})
	}
	t.model, t.out, t.source, t.adj = m, out, src, adj
	return nil
}

// releaseTunnel ends the references of a tunnel's former state.
func (d *DataPlane) releaseTunnel(old *tunnel) error {
	if old.model.Policy != "" {
		d.policies[old.model.Policy].unuse(user{userTunnel, old.model.Name})
	}
	d.releaseSource(old.source)
	return d.release(old.adj...)
}

// tunnelSource is the outer source: the first GTP-U address of the family
// unless the tunnel has its own.
func (d *DataPlane) tunnelSource(m gtpu.Tunnel) netip.Addr {
	if m.Source.IsValid() {
		return m.Source
	}
	for _, a := range d.want.GTPUAddresses {
		if a.Is4() == m.Remote.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// programTunnel makes the tables say what t is: first its own entries, then
// those that hold a copy of what it sends.
func (d *DataPlane) programTunnel(t, old *tunnel) error {
	name := t.model.Name
	if old.model.SwitchTo != t.model.SwitchTo {
		d.switchAway(name, old.model.SwitchTo)
		if to := t.model.SwitchTo; to != "" {
			set(d.waiting, to, name)
			if target := d.tunnels[to]; target != nil {
				if target.switchers == nil {
					target.switchers = map[string]bool{}
				}
				target.switchers[name] = true
			}
		}
	}
	if err := d.programReceive(t, old.model.LocalTEID); err != nil {
		return err
	}
	if err := d.programSend(t); err != nil {
		return err
	}
	for who := range t.switchers {
		if s := d.tunnels[who]; s != nil && who != name {
			if err := d.programReceive(s, s.model.LocalTEID); err != nil {
				return err
			}
		}
	}
	for who := range t.users {
		if err := d.replaceSteering(who); err != nil {
			return err
		}
	}
	return nil
}

func (d *DataPlane) switchAway(name, from string) {
	if from == "" {
		return
	}
	delete(d.waiting[from], name)
	if len(d.waiting[from]) == 0 {
		delete(d.waiting, from)
	}
	if target := d.tunnels[from]; target != nil {
		delete(target.switchers, name)
	}
}

// receiveEntry is what is done with G-PDUs for the local TEID; ok is false
// while that is unknown.
func (d *DataPlane) receiveEntry(t *tunnel) (e abi.Tunnel, ok bool) {
	m := t.model
	switch {
	case m.LocalTEID == 0:
		return e, false
	case m.SwitchTo != "":
		to := d.tunnels[m.SwitchTo]
		if to == nil || !to.model.Remote.IsValid() {
			return e, false
		}
		e = to.out
		e.Action = uint8(abi.TunnelActionTUNNEL_SWITCH)
	case m.Policy != "":
		e.Action = uint8(abi.TunnelActionTUNNEL_POLICY)
		e.Index = d.policies[m.Policy].index
	default:
		e.Action = uint8(abi.TunnelActionTUNNEL_DECAP)
		e.Index = abi.KernelTable(m.Table)
	}
	e.Key = m.LocalTEID
	return e, true
}

// programReceive makes the data path find t by its TEID, and no more by the
// TEID that it had.
func (d *DataPlane) programReceive(t *tunnel, had uint32) error {
	e, ok := d.receiveEntry(t)
	if t.model.LocalTEID != 0 {
		d.teids[t.model.LocalTEID] = t.model.Name
	}
	former := t.receive
	t.receive = 0
	if ok {
		index, err := d.publishReceive(e, t.model.LocalTEID)
		if err != nil {
			return err
		}
		t.receive = index
	} else if t.model.LocalTEID != 0 {
		if err := d.unpublishReceive(t.model.LocalTEID); err != nil {
			return err
		}
	}
	moved := had != 0 && had != t.model.LocalTEID
	if moved || !ok {
		t.receivedBefore.Add(d.tunnelCounter(former))
	}
	if moved {
		delete(d.teids, had)
		return d.unpublishReceive(had)
	}
	return nil
}

// findReceive is where the data path finds a TEID; 0: nowhere.
func (d *DataPlane) findReceive(teid uint32) uint32 {
	if slot := d.teidSlot(teid); slot != 0 && d.tunnel.Get(slot).Key == teid {
		return slot
	}
	return d.teidTable.Get(teid)
}

// teidSlot is the entry that a TEID leads to by itself; 0: none.
func (d *DataPlane) teidSlot(teid uint32) uint32 {
	if slot := teid & 0xffffff; slot < d.limits.Tunnels {
		return slot
	}
	return 0
}

// publishReceive changes the entry of a TEID where one word is all that
// changes; otherwise it writes another entry and lets the TEID lead there.
func (d *DataPlane) publishReceive(e abi.Tunnel, teid uint32) (uint32, error) {
	now := d.findReceive(teid)
	if now != 0 {
		if d.changeTunnel(now, e) {
			if d.teidTable.Get(e.Key) == now {
				return now, d.teidTable.Put(e.Key, now) // seen, for Sweep
			}
			return now, nil
		}
		e.Volume = counter.VolumeOf(d.tunnelCounter(now))
	}
	slot := d.teidSlot(e.Key)
	if slot != 0 && slot != now && d.freeSlot(slot) && d.tunnel.Get(slot).Key == 0 {
		d.writeTunnel(slot, e, wordKey)
		return slot, d.unlinkTEID(e.Key)
	}
	index, err := d.tunnelIndex.Alloc()
	if err != nil {
		return 0, err
	}
	d.writeTunnel(index, e, wordKey)
	if err := d.teidTable.Put(e.Key, index); err != nil {
		d.tunnelIndex.Retire(index)
		return 0, err
	}
	switch {
	case now == slot && now != 0:
		d.clearTunnel(now, wordKey)
	default:
		d.tunnelIndex.Retire(now)
	}
	return index, nil
}

// unlinkTEID ends what tunnel_by_teid says of a TEID.
func (d *DataPlane) unlinkTEID(teid uint32) error {
	index := d.teidTable.Get(teid)
	if err := d.teidTable.Delete(teid); err != nil {
		return err
	}
	d.tunnelIndex.Retire(index)
	return nil
}

func (d *DataPlane) unpublishReceive(teid uint32) error {
	if slot := d.teidSlot(teid); slot != 0 && d.tunnel.Get(slot).Key == teid {
		d.clearTunnel(slot, wordKey)
	}
	return d.unlinkTEID(teid)
}

// changeTunnel makes entry i hold e, if at most one word differs: such a
// change no packet sees a half of. Counters stay.
func (d *DataPlane) changeTunnel(i uint32, e abi.Tunnel) bool {
	from, to := table.ToWords(d.tunnel.Get(i)), table.ToWords(e)
	word, differ := 0, 0
	for w := wordKey; w < len(to); w++ {
		if from[w] != to[w] {
			word = w
			differ++
		}
	}
	if differ == 1 {
		d.tunnel.Store(i, word, to[word])
	}
	return differ <= 1
}

// writeTunnel fills in an entry that no packet reaches yet; `last` is the word
// that lets them.
func (d *DataPlane) writeTunnel(i uint32, e abi.Tunnel, last int) {
	words := table.ToWords(e)
	for w, v := range words {
		if w != last {
			d.tunnel.Store(i, w, v)
		}
	}
	d.tunnel.Store(i, last, words[last])
}

// clearTunnel takes an entry of a fixed place away, by the word that packets
// decide by. It rests until they have left.
func (d *DataPlane) clearTunnel(i uint32, word int) {
	d.tunnel.Store(i, word, 0)
	d.resting[i] = d.grace.Epoch
	if len(d.resting) >= table.MaxRetired {
		d.grace.Wait()
		clear(d.resting)
	}
}

// freeSlot says whether an entry that was cleared may be written again.
func (d *DataPlane) freeSlot(i uint32) bool {
	epoch, resting := d.resting[i]
	if !resting {
		return true
	}
	if epoch == d.grace.Epoch && !d.grace.WaitNow() {
		return false
	}
	delete(d.resting, i)
	return true
}

// sendIndex is an entry that target_by_dst can refer to, for one more of its
// entries.
func (d *DataPlane) sendIndex(t *tunnel) (uint32, error) {
	if t.send == 0 {
		index, known := d.sendNames[t.model.Name]
		if known && !d.changeTunnel(index, t.out) {
			known = false
		}
		if !known {
			var err error
			if index, err = d.newSend(t, index); err != nil {
				return 0, err
			}
		}
		if err := d.names.Put(table.NameTunnel, index, t.model.Name); err != nil {
			return 0, err
		}
		d.sendNames[t.model.Name], t.send = index, index
	}
	t.sendRef++
	return t.send, nil
}

// newSend writes a send entry that goes on counting where the former stopped.
func (d *DataPlane) newSend(t *tunnel, former uint32) (uint32, error) {
	index, err := d.tunnelIndex.Alloc()
	if err != nil {
		return 0, err
	}
	e := t.out
	e.Volume = counter.VolumeOf(d.tunnelCounter(former))
	d.writeTunnel(index, e, wordAction)
	return index, nil
}

// dropSend ends one reference of target_by_dst.
func (d *DataPlane) dropSend(t *tunnel) error {
	if t.sendRef--; t.sendRef > 0 {
		return nil
	}
	index := t.send
	t.sentBefore.Add(d.tunnelCounter(index))
	t.send = 0
	delete(d.sendNames, t.model.Name)
	d.tunnelIndex.Retire(index)
	return d.names.Delete(table.NameTunnel, index)
}

// programSend makes the send entry say what t.out says: in place, or by
// another entry that target_by_dst then refers to.
func (d *DataPlane) programSend(t *tunnel) error {
	if t.send == 0 || d.changeTunnel(t.send, t.out) {
		return nil
	}
	former := t.send
	index, err := d.newSend(t, former)
	if err != nil {
		return err
	}
	if err := d.names.Put(table.NameTunnel, index, t.model.Name); err != nil {
		return err
	}
	t.send, d.sendNames[t.model.Name] = index, index
	for who := range t.users {
		if s := d.steerings[who.key]; s != nil && s.sends == t {
			s.target.Index = index
			if err := d.retarget(s); err != nil {
				return err
			}
		}
	}
	d.tunnelIndex.Retire(former)
	return d.names.Delete(table.NameTunnel, former)
}

// retarget writes s.target to where it stands.
func (d *DataPlane) retarget(s *steering) error {
	if s.model.Interface != "" {
		return d.portRules.Put(s.port, s.target)
	}
	return d.putTarget(s.prefix, s.target)
}

// DeleteTunnel removes a tunnel that no steering refers to. One that is not
// there is not an error. Tunnels that switch to it become unknown.
func (d *DataPlane) DeleteTunnel(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tunnels[name]
	if t == nil {
		return nil
	}
	if len(t.users) > 0 {
		return fmt.Errorf("tunnel %s: %s uses it: delete that first", name, t.any())
	}
	delete(d.tunnels, name)
	d.switchAway(name, t.model.SwitchTo)
	if teid := t.model.LocalTEID; teid != 0 {
		delete(d.teids, teid)
		if err := d.unpublishReceive(teid); err != nil {
			return err
		}
	}
	for who := range t.switchers {
		if s := d.tunnels[who]; s != nil {
			if err := d.programReceive(s, 0); err != nil {
				return err
			}
		}
	}
	return d.releaseTunnel(t)
}

// TunnelCounters counts the T-PDUs of a tunnel in each direction.
func (d *DataPlane) TunnelCounters(name string) (received, sent counter.Counter, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tunnels[name]
	if t == nil {
		return counter.Counter{}, counter.Counter{}, nil
	}
	received, sent = t.receivedBefore, t.sentBefore
	received.Add(d.tunnelCounter(t.receive))
	sent.Add(d.tunnelCounter(t.send))
	for who := range t.users {
		if s := d.steerings[who.key]; s != nil {
			sent.Add(d.tunnelCounter(s.slot))
		}
	}
	return received, sent, nil
}

func (d *DataPlane) tunnelCounter(index uint32) counter.Counter {
	if index == 0 {
		return counter.Counter{}
	}
	return counter.ReadVolume(d.tunnel.Words(index)[wordVolume:])
}

// set adds v to the set m[k].
func set[K, V comparable](m map[K]map[V]bool, k K, v V) {
	if m[k] == nil {
		m[k] = map[V]bool{}
	}
	m[k][v] = true
}
