package upf

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/upf/buffer"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

// Config may change while sessions are up. Zero values stand for the defaults.
type Config struct {
	Addresses []netip.Addr // where G-PDUs arrive
	Pools     []pool.Pool
	// Reserved are prefixes that no SMF may claim for UEs outside of Pools, nor for networks behind
	// UEs. FramedRoutes are the networks that it may claim; none: all that are not reserved.
	Reserved     []Reserved
	FramedRoutes []netip.Prefix
	Slices       []slice.Slice
	// UEToUE is what becomes of packets between UEs where their slice does not say.
	UEToUE slice.UEToUE
	// BufferPackets is how many packets are kept for a session whose BAR does not
	// say how many (128), BufferBytes how many octets for all sessions (64 MiB).
	BufferPackets, BufferBytes int
	// EchoInterval is the time between two Echo Requests to a GTP-U peer: 60 s,
	// and not less (TS 29.281 section 7.2.1).
	EchoInterval time.Duration
}

func (c Config) withDefaults() Config {
	c.BufferPackets = cmp.Or(c.BufferPackets, 128)
	c.BufferBytes = cmp.Or(c.BufferBytes, 64<<20)
	c.EchoInterval = cmp.Or(c.EchoInterval, time.Minute)
	return c
}

// settings are a Config with the index of each slice in the data path.
type settings struct {
	Config
	indices []uint32
	vpns    map[string]uint8 // numbers of slices' VPNs
	matches matchLog
	claims  *claims
}

func newSettings(c Config, log *slog.Logger) *settings {
	return &settings{Config: c.withDefaults(), claims: newClaims(&c, log), vpns: slice.VPNNumbers(c.Slices), matches: matchLog{log: log, seen: map[matchKey]bool{}}}
}

// SetConfig changes what sessions are made of, and moves those that are up: all of
// them or, after an error, none. Policies that slices name exist already, and those
// that slices no longer name exist still.
func (u *UPF) SetConfig(c Config) error {
	before := u.install.config.Load()
	stays := map[string]bool{}
	for _, s := range append(c.Slices[:len(c.Slices):len(c.Slices)], before.Slices...) {
		stays[s.Name] = true
	}
	next := newSettings(c, u.o.Logger)
	for _, s := range c.Slices {
		index, err := u.store.SliceIndex(s.Name, stays)
		if err != nil {
			return fmt.Errorf("slice %q: %w", s.Name, err)
		}
		next.indices = append(next.indices, index)
	}
	u.useSettings(next)
	if reflect.DeepEqual(before.Slices, next.Slices) && before.UEToUE == next.UEToUE {
		return nil
	}
	if err := u.moveSlices(next); err != nil {
		u.useSettings(before)
		return errors.Join(err, u.moveSlices(before))
	}
	return nil
}

func (u *UPF) useSettings(s *settings) {
	u.install.changing.Lock()
	u.install.config.Store(s)
	u.install.changing.Unlock()
	u.ues.Replace(s.Pools)
}

// moveSlices sets the rates and SIDs of slices and, once sessions are restored, puts every
// session again.
func (u *UPF) moveSlices(to *settings) error {
	for i, s := range to.Slices {
		if err := u.o.DataPath.SetSlice(to.indices[i], s.RateLimit.Uplink, s.RateLimit.Downlink); err != nil {
			return fmt.Errorf("slice %q: %w", s.Name, err)
		}
		if s.N9 != nil && s.N9.LocalSID.IsValid() {
			u.o.DataPath.SetSliceSID(s.N9.LocalSID, to.indices[i], false)
		}
		if s.VPN != nil {
			u.o.DataPath.SetSliceSID(s.VPN.SID, to.indices[i], true)
		}
	}
	if !u.restored {
		return nil
	}
	for _, e := range u.store.All() {
		if err := u.install.putAgain(e, u.o.Now()); err != nil {
			return fmt.Errorf("session %#x: %w", e.SEID, err)
		}
	}
	return nil
}

func (s *settings) bufferLimits() buffer.Limits {
	return buffer.Limits{Packets: s.BufferPackets, Most: max(s.BufferPackets, 1024), Bytes: s.BufferBytes}
}

// sliceName returns the name of a slice, or "" for index 0.
func (s *settings) sliceName(index uint32) string {
	if i := slices.Index(s.indices, index); index != 0 && i >= 0 {
		return s.Slices[i].Name
	}
	return ""
}

// SliceStatus is a slice with what it has carried.
type SliceStatus struct {
	slice.Slice
	Sessions         int
	Uplink, Downlink counter.Counter
}

// Slices lists the slices of the configuration.
func (u *UPF) Slices() ([]SliceStatus, error) {
	config := u.install.config.Load()
	out := make([]SliceStatus, len(config.Slices))
	for i, s := range config.Slices {
		up, down, err := u.o.DataPath.SliceCounters(config.indices[i])
		if err != nil {
			return nil, fmt.Errorf("slice %q: %w", s.Name, err)
		}
		out[i] = SliceStatus{s, u.store.InSlice(config.indices[i]), up, down}
	}
	return out, nil
}
