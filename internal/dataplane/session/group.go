package session

import (
	"hash/fnv"
	"strings"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Group is a set of UEs that may reach each other, with how their packets get there: those
// of a slice and a network instance. The SID of a slice's VPN leads to the slice's UEs by it.
// The zero value is that of a UE which reaches no other, and which no VPN leads to.
type Group uint64

// UEToUE is how packets get from one UE to another one.
type UEToUE uint8

// The ways.
const (
	UEToUEDrop  = UEToUE(abi.UeToUeUE_TO_UE_DROP)  // not at all
	UEToUERoute = UEToUE(abi.UeToUeUE_TO_UE_ROUTE) // straight to the other UE's rules
	UEToUEN6    = UEToUE(abi.UeToUeUE_TO_UE_N6)    // by a table, and back from N6
)

// groupShift is UE_GROUP_SHIFT (bpf/def/ue.h), sliceShift what is left for the name of
// a network instance.
const (
	groupShift = 62
	sliceShift = groupShift - 10 // UE_SLICE_SHIFT
)

// GroupOf is the group of the UEs of a slice (0: of none) in a network instance.
func GroupOf(way UEToUE, slice uint32, networkInstance string) Group {
	h := fnv.New64a()
	h.Write([]byte(strings.ToLower(networkInstance))) // never fails
	return Group(uint64(way)<<groupShift | uint64(slice%MaxSlices)<<sliceShift | h.Sum64()%(1<<sliceShift))
}
