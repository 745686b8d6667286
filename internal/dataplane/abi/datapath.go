package abi

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"net/netip"
)

// Build is a hash of the object that Load returns.
func Build() string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:8])
}

// Off is the first word of an element of a list in Settings that matches
// nothing: no packet has such a prefix or address.
const Off = ^uint64(0)

// Enabled says whether packets look at the locator.
func (l Locator) Enabled() bool { return l.Hi != Off && l.Mask != 0 }

// Overlaps says whether one address can be in both locators.
func (l Locator) Overlaps(o Locator) bool {
	mask := l.Mask & o.Mask
	return l.Enabled() && o.Enabled() && l.Hi&mask == o.Hi&mask
}

// Size is the number of entries of local_sid that the locator leads to.
func (l Locator) Size() uint32 { return l.FunctionMask + 1 }

// PrefixOf is the SID at an index that the locator leads to.
func (l Locator) PrefixOf(index uint32) netip.Prefix {
	hi := l.Hi | uint64(index-l.Base)<<l.Shift
	return netip.PrefixFrom(FromHalves(hi, 0), bits.OnesCount64(l.Mask)+bits.OnesCount32(l.FunctionMask))
}

// RuleID is the ID of the PDR that the filter leads to. Only the daemon reads it.
func (f *Filter) RuleID() uint16 { return binary.NativeEndian.Uint16(f.Pad[:]) }
