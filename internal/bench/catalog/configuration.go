package catalog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// ManyEntries is as many as a function can have that an index of 24 bits
// leads to, beside another function in the same table.
const ManyEntries = 1 << 22

// Addr parses an address that is known to be one.
func Addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// Prefix returns the prefix of an address.
func Prefix(a netip.Addr, bits int) netip.Prefix { return netip.PrefixFrom(a, bits).Masked() }

// SIDAt is 2001:db8:10:FUNC::.
func SIDAt(function uint32) netip.Addr {
	b := Addr("2001:db8:10::").As16()
	binary.BigEndian.PutUint16(b[6:], uint16(function))
	return netip.AddrFrom16(b)
}

// Name returns the name of the i-th thing of a kind.
func Name(of string, i uint32) string { return fmt.Sprintf("%s-%d", of, i) }

// UE is the i-th address of the UE pool.
func UE(i uint32) netip.Addr {
	return UEAt(UENumber(UENet) + i)
}

// putPool steers the UE addresses from `first` on.
func putPool(c *config.Config, first, entries uint32, s srpolicy.Steering) {
	for i := range entries {
		s.Prefix = Prefix(UE(first+i), 32)
		c.Steering = append(c.Steering, s)
	}
}

func putSID(s srv6.LocalSID) func(*config.Config, uint32) {
	return func(c *config.Config, _ uint32) { c.SIDs = append(c.SIDs, s) }
}

// Configuration is that of the node that is measured, with tables for
// `entries` of each function.
func Configuration(list []Function, entries uint32) *config.Config {
	size := max(1024, 1<<bits.Len32(2*entries)) // of the UE pool, for two functions
	c := &config.Config{
		Interfaces: []config.Interface{
			inNative(node.PortIn, config.RoleAny), inNative(node.PortFrames, config.RoleEdge), inNative(node.PortOut, config.RoleN6),
			inNative(node.PortN3, config.RoleN3), inNative(node.PortN6, config.RoleN6), inNative(node.PortSR, config.RoleSR),
			inNative(node.PortEdge, config.RoleEdge, config.RoleN3, config.RoleN6), inNative(node.PortLong, config.RoleAny),
			inNative(node.PortSteered, config.RoleAny),
		},
		Domain:        []netip.Prefix{Prefix(GNB6, 64), Prefix(sourcePrefix, 48)},
		Encapsulation: config.Encapsulation{Source: Source},
		Locators: []config.Locator{
			{Name: "sids", Prefix: netip.MustParsePrefix("2001:db8:10::/48"), FunctionBits: 16},
			{Name: "mobile", Prefix: netip.MustParsePrefix("2001:db8:20::/48"), FunctionBits: 8},
			{Name: "csids", Prefix: netip.MustParsePrefix("fd00:100::/32"), FunctionBits: 16},
		},
		GTPU: config.GTPU{
			Addresses: []netip.Addr{UPF, upf6},
			Pools:     []netip.Prefix{netip.PrefixFrom(UENet, 32-bits.Len(uint(size-1)))},
		},
		Policies: []srpolicy.Policy{
			OnePath(PolicyReduced, srv6.HEncapsRed, Segment), OnePath(policyFull, srv6.HEncaps, Segment),
			OnePath(policyFrame, srv6.HEncapsL2Red, Segment), OnePath(policyGTP6, srv6.HEncapsRed, FarGTP6),
		},
		Tunnels: []gtpu.Tunnel{{Name: TunnelFar, Remote: FarGTPU, RemoteTEID: 0x1234}},
		// 3 tables of 65536 functions at most are found by index.
		Limits: config.Limits{SIDs: 1 << 18, Tunnels: uint32(2 * size), Routes: 65536},
	}
	filled := map[string]bool{}
	for _, f := range list {
		if of := cmp.Or(f.of, f.Name); !filled[of] {
			f.put(c, min(f.Most, entries))
			filled[of] = true
		}
	}
	steerPort(c, list)
	return c
}

// inNative is an interface with roles. By those for GTP-U only the gNBs may send.
func inNative(name string, roles ...config.Role) config.Interface {
	in := config.Interface{Name: name, Mode: "native", Roles: roles}
	if in.HasRole(config.RoleN3) {
		in.Peers = config.Senders{Prefix(GNB, 32), Prefix(GNB6, 128)}
	}
	return in
}

// OnePath returns a policy with one segment list.
func OnePath(name string, how srv6.Behavior, segments ...netip.Addr) srpolicy.Policy {
	return srpolicy.Policy{Name: name, Behavior: how, SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: segments}}}
}

// Frame is what a function's frames are with some of its entries in use, of
// `tables` that there are of each.
func (f Function) Frame(entries, tables uint32) progrun.Frame {
	out := progrun.Frame{
		Data: slices.Clone(f.Data), Keys: cmp.Or(f.Keys, min(entries, f.Most)), Key: f.Key.place(f.Most, tables), Twin: f.twin.place(f.Most, tables),
	}
	if f.Key.Offset == 0 {
		out.Keys = 1
		return out
	}
	put(out.Data, out.Key)
	if f.twin.Offset != 0 {
		put(out.Data, out.Twin)
	}
	if f.flow.Offset != 0 {
		out.Flows, out.Flow = flowsOfUE, f.flow.place(f.Most, tables)
	}
	return out
}

// WithTEIDs gives the frames the TEIDs that the UPF chose for the sessions, if it did and they have any.
func (f Function) WithTEIDs(out progrun.Frame, teids []uint32) progrun.Frame {
	if len(teids) > 0 && f.teid.Offset != 0 { // of one session
		binary.BigEndian.PutUint32(out.Data[f.teid.Offset:], teids[0])
	}
	if len(teids) == 0 || f.twin.Offset == 0 {
		return out
	}
	binary.BigEndian.PutUint32(out.Data[out.Key.Offset:], teids[0])
	out.Key.Base, out.Pairs = 0, make([]progrun.Pair, out.Keys)
	for i := range out.Pairs {
		out.Pairs[i] = progrun.Pair{Key: teids[i], Twin: uint32(i)}
	}
	return out
}

// place is where frames have the key, of a table with `tables` entries.
func (k key) place(most, tables uint32) progrun.Place {
	return progrun.Place{Offset: k.Offset, Base: k.base + k.step*min(most, tables), Checksum: k.checksum}
}

// put writes the first number. The checksum over it follows (RFC 1624).
func put(frame []byte, p progrun.Place) {
	at := frame[p.Offset:][:4]
	if p.Checksum != 0 {
		sum := frame[p.Checksum:][:2]
		words := []byte{^sum[0], ^sum[1], ^at[0], ^at[1], ^at[2], ^at[3]}
		binary.BigEndian.PutUint16(sum, checksum.Of(binary.BigEndian.AppendUint32(words, p.Base), 0))
	}
	binary.BigEndian.PutUint32(at, p.Base)
}
