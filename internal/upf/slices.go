package upf

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/slice"
)

// maxSlices is how many the data path counts and limits, of all that there were
// since its tables were made.
const maxSlices = 255

// SetConfig changes what sessions are made of, and moves those that are up: all
// of them, or none. Policies that slices name are there already, and those that
// they no longer name still.
func (u *UPF) SetConfig(c Config) error {
	next, err := u.settings(c)
	if err != nil {
		return err
	}
	u.changing.Lock()
	before := u.config.Load()
	u.config.Store(next)
	u.changing.Unlock()
	u.ues.replace(c.Pools)
	if sameSlices(before, next) {
		return nil
	}
	if err := u.move(next); err != nil {
		u.changing.Lock()
		u.config.Store(before)
		u.changing.Unlock()
		u.ues.replace(before.Pools)
		return errors.Join(err, u.move(before))
	}
	return nil
}

func sameSlices(a, b *settings) bool { return reflect.DeepEqual(a.Slices, b.Slices) }

// settings gives each slice its index, which its name keeps.
func (u *UPF) settings(c Config) (*settings, error) {
	u.stateMu.Lock()
	defer u.stateMu.Unlock()
	out := &settings{Config: c}
	for _, s := range c.Slices {
		index, known := u.indices[s.Name]
		if !known {
			if index = u.freeIndex(c.Slices); index == 0 {
				return nil, fmt.Errorf("slice %q: there are %d slices, as many as may be", s.Name, maxSlices)
			}
			if err := u.journal.append(record{recordSlice, uint64(index), []byte(s.Name)}); err != nil {
				return nil, err
			}
			u.indices[s.Name] = index
		}
		out.indices = append(out.indices, index)
	}
	return out, nil
}

// freeIndex is one that no slice has, or else that of one that is gone.
func (u *UPF) freeIndex(list []slice.Slice) uint32 {
	names := map[uint32]string{}
	for name, index := range u.indices {
		names[index] = name
	}
	stays := map[string]bool{}
	for _, s := range append(list, u.config.Load().Slices...) {
		stays[s.Name] = true
	}
	old := uint32(0)
	for index := uint32(1); index <= maxSlices; index++ {
		name, taken := names[index]
		if !taken {
			return index
		}
		if !stays[name] && old == 0 {
			old = index
		}
	}
	if old != 0 {
		delete(u.indices, names[old])
	}
	return old
}

// move sets the slices' rates, and puts every session again.
func (u *UPF) move(to *settings) error {
	for i, s := range to.Slices {
		if err := u.dp.SetSlice(to.indices[i], s.RateLimit.Uplink, s.RateLimit.Downlink); err != nil {
			return fmt.Errorf("slice %q: %w", s.Name, err)
		}
	}
	if !u.restored {
		return nil
	}
	for _, e := range u.entries() {
		if err := u.again(e); err != nil {
			return fmt.Errorf("session %#x: %w", e.seid, err)
		}
	}
	return nil
}

// again puts a session as it is, by the configuration that holds now.
func (u *UPF) again(e *entry) error {
	u.changing.RLock()
	defer u.changing.RUnlock()
	e.lock()
	defer e.unlock()
	if e.gone {
		return nil
	}
	s := e.session()
	c, err := u.change(e, s, s, pfcp.Modification{}, u.now())
	if err != nil {
		return err
	}
	e.keep(packEntry(s, c.usage))
	e.slice = c.slice
	u.links.join(c.rules)
	return nil
}

// SliceStatus is a slice with what it carried.
type SliceStatus struct {
	slice.Slice
	Sessions         int
	Uplink, Downlink dataplane.Counter
}

// Slices are those of the configuration.
func (u *UPF) Slices() ([]SliceStatus, error) {
	config := u.config.Load()
	sessions := map[uint32]int{}
	for _, e := range u.entries() {
		e.mu.Lock()
		sessions[e.slice]++
		e.mu.Unlock()
	}
	out := make([]SliceStatus, len(config.Slices))
	for i, s := range config.Slices {
		up, down, err := u.dp.SliceCounters(config.indices[i])
		if err != nil {
			return nil, fmt.Errorf("slice %q: %w", s.Name, err)
		}
		out[i] = SliceStatus{s, sessions[config.indices[i]], up, down}
	}
	return out, nil
}
