package tunnel

import (
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// SendIndex is an entry that target_by_dst can refer to, for one more of its
// entries.
func (x *Table) SendIndex(t *Tunnel) (uint32, error) {
	if t.send == 0 {
		index, known := x.sendNames[t.model.Name]
		if !known || !x.entries.Change(index, t.out) {
			var err error
			if index, err = x.newSend(t, index); err != nil {
				return 0, err
			}
		}
		if err := x.names.Put(table.NameTunnel, index, t.model.Name); err != nil {
			return 0, err
		}
		x.sendNames[t.model.Name], t.send = index, index
	}
	t.sendRef++
	return t.send, nil
}

// newSend writes a send entry that goes on counting where the former stopped.
func (x *Table) newSend(t *Tunnel, former uint32) (uint32, error) {
	index, err := x.indexes.Alloc()
	if err != nil {
		return 0, err
	}
	e := t.out
	e.Volume = counter.VolumeOf(x.entries.Counter(former))
	x.entries.Write(index, e, WordAction)
	return index, nil
}

// DropSend ends one reference of target_by_dst.
func (x *Table) DropSend(t *Tunnel) error {
	if t.sendRef--; t.sendRef > 0 {
		return nil
	}
	index := t.send
	t.sentBefore.Add(x.entries.Counter(index))
	t.send = 0
	delete(x.sendNames, t.model.Name)
	x.indexes.Retire(index)
	return x.names.Delete(table.NameTunnel, index)
}

// programSend makes the send entry say what t.out says: in place, or by
// another entry that target_by_dst then refers to.
func (x *Table) programSend(t *Tunnel) error {
	if t.send == 0 || x.entries.Change(t.send, t.out) {
		return nil
	}
	former := t.send
	index, err := x.newSend(t, former)
	if err != nil {
		return err
	}
	if err := x.names.Put(table.NameTunnel, index, t.model.Name); err != nil {
		return err
	}
	t.send, x.sendNames[t.model.Name] = index, index
	for who := range t.Users {
		if err := x.Steering.Retarget(who, t, index); err != nil {
			return err
		}
	}
	x.indexes.Retire(former)
	return x.names.Delete(table.NameTunnel, former)
}
