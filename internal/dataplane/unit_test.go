package dataplane

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func mustCPUs() []struct{} { return make([]struct{}, ebpf.MustPossibleCPU()) }

// TestReasons demands a text for every reason of reason.h, and a reason for
// every text.
func TestReasons(t *testing.T) {
	spec, err := loadSpec()
	must(t, err)
	var enum *btf.Enum
	must(t, spec.Types.TypeByName("reason", &enum))
	inC := map[string]uint64{}
	for _, v := range enum.Values {
		if v.Name != "REASON_COUNT" {
			inC[strings.ToLower(strings.TrimPrefix(v.Name, "REASON_"))] = v.Value
		}
	}
	seen := map[string]bool{}
	for _, r := range reason.All() {
		if v, ok := inC[r.String()]; !ok || v != uint64(r) {
			t.Errorf("reason %d is called %q, which is %d in reason.h", r, r, v)
		}
		if r.Text() == "" || seen[r.Text()] {
			t.Errorf("reason %s has text %q", r, r.Text())
		}
		seen[r.Text()] = true
	}
	if len(inC) != len(reason.All()) {
		t.Errorf("reason.h has %d reasons, reason.go %d", len(inC), len(reason.All()))
	}
	for r, drop := range map[string]bool{"forwarded": false, "passed": false, "slow_path": false, "replied": false, "hop_limit": true, "no_neighbour": true} {
		if reason.Reason(inC[r]).Drop() != drop {
			t.Errorf("%s is a drop: %t", r, !drop)
		}
	}
	if r := reason.Reason(9999); r.String() != "reason_9999" || r.Text() == "" {
		t.Errorf("an unknown reason is %q: %q", r, r.Text())
	}
}

// TestNumbersAreTheSame compares what bpf/ and srv6/ both number.
func TestNumbersAreTheSame(t *testing.T) {
	for name, same := range map[string]bool{
		"End":          int(srv6.End) == int(abi.BehaviorEND),
		"End.DT46":     int(srv6.EndDT46) == int(abi.BehaviorEND_DT46),
		"End.M.GTP4.E": int(srv6.EndMGTP4E) == int(abi.BehaviorEND_M_GTP4E),
		"H.Encaps.Red": int(srv6.HEncapsRed) == int(abi.BehaviorH_ENCAPS_RED),
		"H.M.GTP4.D":   int(srv6.HMGTP4D) == int(abi.BehaviorH_M_GTP4D),
		"PSP":          int(srv6.PSP) == int(abi.FlavorFLAVOR_PSP),
		"USP":          int(srv6.USP) == int(abi.FlavorFLAVOR_USP),
		"USD":          int(srv6.USD) == int(abi.FlavorFLAVOR_USD),
		"NEXT-C-SID":   int(srv6.NextCSID) == int(abi.FlavorFLAVOR_NEXT_C_SID),
		"IPv4v6":       int(srv6.PDUTypeIPv4v6) == int(abi.PduTypePDU_IPV4V6),
		"Unstructured": int(srv6.PDUTypeUnstructured) == int(abi.PduTypePDU_UNSTRUCTURED),
		"uplink":       int(srv6.ContainerUplink) == int(abi.ContainerCONTAINER_UPLINK),
		"lists":        srpolicy.MaxSegmentLists == len(abi.SrPolicy{}.List),
		"segments":     srpolicy.MaxSegments == len(abi.SegmentList{}.Segment),
	} {
		if !same {
			t.Errorf("%s has another number in bpf/", name)
		}
	}
}

func TestListThresholds(t *testing.T) {
	weights := func(all ...uint32) (out []srpolicy.SegmentList) {
		for _, w := range all {
			out = append(out, srpolicy.SegmentList{Weight: w})
		}
		return out
	}
	const most = math.MaxUint32
	for _, c := range []struct {
		lists []srpolicy.SegmentList
		want  []uint32
	}{
		{weights(), []uint32{}},
		{weights(0), []uint32{most}},
		{weights(1, 1), []uint32{1<<31 - 1, most}},
		{weights(1, 3), []uint32{1<<30 - 1, most}},
		{weights(0, 0, 2), []uint32{1<<30 - 1, 1<<31 - 1, most}},
		{weights(most, most, most, most, most, most, most, most), []uint32{1<<29 - 1, 1<<30 - 1, 3<<29 - 1, 1<<31 - 1, 5<<29 - 1, 3<<30 - 1, 7<<29 - 1, most}},
		{weights(1, most), []uint32{0, most}},
	} {
		if got := (srpolicy.Policy{SegmentLists: c.lists}).Thresholds(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %d, want %d", c.lists, got, c.want)
		}
	}
}

func TestNextHopIsSwappedWhole(t *testing.T) {
	d := open(t)
	k := AdjacencyKey{NextHop: addr("10.0.0.2")}
	must(t, d.Routes.Put(0, prefix("10.0.0.0/8"), []AdjacencyKey{k}))
	read := func() abi.Adjacency {
		var a abi.Adjacency
		must(t, d.maps[abi.MapAdjacency].Lookup(d.Adjacencies.IndexOf(k), &a))
		return a
	}
	hop := ready(3)
	hop.VLANs = []adjacency.VLAN{{TPID: 0x88a8, ID: 10}, {TPID: 0x8100, ID: 20}}
	must(t, d.Adjacencies.SetNextHop(k, hop))
	one := read()
	now := one.Half[one.Current&1]
	if now.Ifindex != 3 || now.Flags != 1 || now.Tags != 2 || now.Tpid != [2]uint16{0x88a8, 0x8100} || now.Vlan != [2]uint16{10, 20} || now.Mtu != 1500 {
		t.Errorf("next hop %+v", now)
	}
	epoch := d.grace.Epoch
	must(t, d.Adjacencies.SetNextHop(k, hop)) // the same
	if read() != one || d.grace.Epoch != epoch {
		t.Error("the same next hop was written again")
	}
	must(t, d.Adjacencies.SetNextHop(k, &adjacency.NextHop{Ifindex: 4, MTU: 70000, Pass: true}))
	two := read()
	if two.Current == one.Current || two.Half[one.Current&1] != now || two.Half[two.Current&1].Flags != 3 || two.Half[two.Current&1].Mtu != 65535 {
		t.Errorf("the half in use changed: %+v then %+v", one, two)
	}
	must(t, d.Adjacencies.SetNextHop(k, &adjacency.NextHop{Ifindex: 4, MTU: 1500, Pass: true, Dst: hostA, Src: hostB}))
	if known := read(); known.Half[known.Current&1].Flags != 7 || known.Half[known.Current&1].Dst != [6]uint8(hostA) {
		t.Errorf("a next hop that only XDP cannot send to: %+v", known)
	}
	must(t, d.Adjacencies.SetNextHop(k, nil))
	if three := read(); three.Half[three.Current&1] != (abi.NextHop{}) || d.grace.Epoch == epoch {
		t.Errorf("not ready: %+v, after %d grace periods", three, d.grace.Epoch-epoch)
	}
	for what, bad := range map[string]*adjacency.NextHop{
		"want 6 bytes": {Ifindex: 3, MTU: 1500},
		"at most 2":    {Ifindex: 3, MTU: 1500, Dst: hostA, Src: hostB, VLANs: make([]adjacency.VLAN, 3)},
	} {
		if err := d.Adjacencies.SetNextHop(k, bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want an error with %q", err, what)
		}
	}
	must(t, d.Adjacencies.SetNextHop(AdjacencyKey{NextHop: addr("10.9.9.9")}, hop)) // nobody's
	if err := d.Routes.Put(0, prefix("10.0.0.0/8"), make([]AdjacencyKey, 8)); err == nil {
		t.Error("a route with 8 next hops is taken")
	}
}

// TestRefusals puts what must not be put, and finds the tables as they were.
func TestRefusals(t *testing.T) {
	d := open(t)
	putContent(t, d)
	l2 := policyTo("l2", "fc00:b::1")
	l2.Behavior = srv6.HEncapsL2Red
	must(t, d.Policies.Put(l2))
	before := dump(t, d)
	usage := fmt.Sprint(d.Usage())
	bound := policyTo("bound", "fc00:b::1")
	bound.BindingSID = addr("fc00:f::1")
	l2bound := l2
	l2bound.BindingSID = addr("fc00:f::77")
	oneAsL2 := policyTo("one", "fc00:b::1")
	oneAsL2.Behavior = srv6.HEncapsL2
	for want, err := range map[string]error{
		"policy \"none\"":                 d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:f::9/128"), Behavior: srv6.EndB6Encaps, Policy: "none"}),
		"want an IPv6 prefix":             d.SIDs.Put(srv6.LocalSID{SID: prefix("10.0.0.0/8"), Behavior: srv6.End}),
		"not that of a local SID":         d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:f::9/128"), Behavior: srv6.HEncaps}),
		"binding SID of policy two":       d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:a:0:b::/128"), Behavior: srv6.End}),
		"change that":                     d.SIDs.Delete(prefix("fc00:a:0:b::/128")),
		"rate_unit":                       d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:f::9/128"), Behavior: srv6.EndLimit, RateUnit: 5e6}),
		"binding_sid fc00:f::1":           d.Policies.Put(bound),
		"Ethernet frames has none":        d.Policies.Put(l2bound),
		"a policy in use":                 d.Policies.Put(oneAsL2),
		"13 segments":                     d.Policies.Put(policyTo("long", slices.Repeat([]string{"fc00::1"}, 13)...)),
		"0 segments":                      d.Policies.Put(policyTo("short")),
		"9: at most 8":                    d.Policies.Put(srpolicy.Policy{Name: "many", SegmentLists: make([]srpolicy.SegmentList, 9)}),
		"segment 10.0.0.1":                d.Policies.Put(policyTo("four", "10.0.0.1")),
		"policy one: ":                    d.Policies.Delete("one"),
		"tunnel n3: ":                     d.Tunnels.Delete("n3"),
		"local_teid 7: tunnel n3":         d.Tunnels.Put(gtpu.Tunnel{Name: "x", LocalTEID: 7, Decapsulate: true}),
		"exactly one of decap":            d.Tunnels.Put(gtpu.Tunnel{Name: "x", LocalTEID: 70}),
		"want a local_teid":               d.Tunnels.Put(gtpu.Tunnel{Name: "x", Decapsulate: true}),
		"family of remote":                d.Tunnels.Put(gtpu.Tunnel{Name: "x", Remote: addr("10.0.0.1"), Source: addr("fc00::1")}),
		"policy \"nil\"":                  d.Tunnels.Put(gtpu.Tunnel{Name: "x", LocalTEID: 70, Policy: "nil"}),
		"policy \"l2\"":                   d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.99.0.0/16"), Policy: "l2"}),
		"tunnel \"none\"":                 d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.99.0.0/16"), Tunnel: "none"}),
		"exactly one of policy":           d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.99.0.0/16")}),
		"want prefix, interface, or both": d.Steering.Put(srpolicy.Steering{Policy: "one"}),
		"want an IPv4 prefix":             d.Steering.Put(srpolicy.Steering{Prefix: prefix("2001:db8::/48"), GTP4D: &srpolicy.GTP4D{}}),
		"interface not-there":             d.Steering.Put(srpolicy.Steering{Interface: "not-there", Policy: "one"}),
		"index 65536":                     d.Ports.Set(65536, port.Port{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if after := dump(t, d); after != before {
		t.Errorf("the tables changed:\n%s", difference(before, after))
	}
	if after := fmt.Sprint(d.Usage()); after != usage {
		t.Errorf("in use before %s\nafter %s", usage, after)
	}
}

func TestFullTables(t *testing.T) {
	d := openWith(t, Options{Limits: Limits{SIDs: 4, Policies: 2, SegmentLists: 3, Tunnels: 2, Routes: 2, Adjacencies: 4}})
	var full *table.FullError
	fill := func(what string, put func(i int) error) {
		t.Helper()
		var err error
		n := 0
		for ; n < 100 && err == nil; n++ {
			err = put(n)
		}
		if !errors.As(err, &full) || !strings.Contains(err.Error(), "limits."+what) {
			t.Errorf("%s: after %d entries %v", what, n, err)
		}
	}
	fill("sids", func(i int) error {
		return d.SIDs.Put(srv6.LocalSID{SID: prefix(fmt.Sprintf("fc00::%x/128", i)), Behavior: srv6.End})
	})
	fill("policies", func(i int) error { return d.Policies.Put(policyTo(fmt.Sprint("p", i), "fc00::1")) })
	fill("segment_lists", func(i int) error {
		p := policyTo("p0", "fc00::1")
		p.SegmentLists = slices.Repeat(p.SegmentLists, i+2)
		return d.Policies.Put(p)
	})
	fill("tunnels", func(i int) error {
		return d.Tunnels.Put(gtpu.Tunnel{Name: fmt.Sprint("t", i), LocalTEID: uint32(i + 1), Decapsulate: true})
	})
	fill("routes", func(i int) error { return d.Routes.Put(0, prefix(fmt.Sprintf("10.%d.0.0/16", i)), nil) })
	fill("adjacencies", func(i int) error {
		return d.Routes.Put(0, prefix("fc00::/16"), []AdjacencyKey{{Interface: fmt.Sprint("e", i)}, {Interface: fmt.Sprint("f", i)}, {Interface: fmt.Sprint("g", i)}})
	})
	start := time.Now()
	d.grace.Wait()
	t.Logf("a grace period takes %v", time.Since(start))
}

// verifierCeiling is how many instructions the kernel may look at when it
// loads a program: the time of a start, and the room that is left until the
// kernel's limit of a million.
var verifierCeiling = map[string]uint32{
	abi.ProgCulvertXdp:     240_000,
	abi.ProgCulvertCpu:     240_000, // the same, where packets are spread over CPUs
	abi.ProgCulvertSpread:  15_000,
	abi.ProgCulvertN4:      60_000,
	abi.ProgCulvertN4First: 60_000, // the same, before the data path
	abi.ProgCulvertN4Port:  20,
	abi.ProgCulvertPod:     42_000,
	abi.ProgCulvertUplink:  86_000,
	abi.ProgCulvertForward: 42_000,
	abi.ProgCulvertClosed:  40_000,
	abi.ProgCulvertRefused: 100,
	abi.ProgCulvertUnsent:  100,
}

func TestVerifierCeiling(t *testing.T) {
	needRoot(t)
	spec, err := loadSpec()
	must(t, err)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()
	for name, p := range coll.Programs {
		info, err := p.Info()
		must(t, err)
		n, ok := info.VerifiedInstructions()
		ceiling := verifierCeiling[name]
		if !ok || n == 0 || n > ceiling {
			t.Errorf("%s: %d instructions verified, the ceiling is %d", name, n, ceiling)
		}
		t.Logf("%s: %d of %d", name, n, ceiling)
	}
}

// TestStackDepth counts as Linux 6.6 does, where each frame takes a multiple of
// 32 octets; newer kernels take less and would not tell.
func TestStackDepth(t *testing.T) {
	spec, err := loadSpec()
	must(t, err)
	frames, calls := map[string]int{}, map[string]map[string]bool{}
	var in string
	var fromFrame [11]bool // registers that hold the frame pointer
	instructions := append(slices.Clone(spec.Programs[abi.ProgCulvertXdp].Instructions), spec.Programs[abi.ProgCulvertCpu].Instructions...)
	for _, name := range []string{abi.ProgCulvertPod, abi.ProgCulvertUplink, abi.ProgCulvertForward, abi.ProgCulvertClosed, abi.ProgCulvertN4, abi.ProgCulvertN4First} {
		instructions = append(instructions, spec.Programs[name].Instructions...)
	}
	for _, ins := range instructions {
		if s := ins.Symbol(); s != "" {
			in = s
			frames[in], calls[in], fromFrame = 32, map[string]bool{}, [11]bool{}
		}
		op := ins.OpCode
		if ins.IsFunctionReference() {
			calls[in][ins.Reference()] = true
		}
		depth := 0
		switch class := op.Class(); {
		case class.IsLoad() && ins.Src == asm.R10, class.IsStore() && ins.Dst == asm.R10:
			depth = -int(ins.Offset)
		case class == asm.ALU64Class && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && fromFrame[ins.Dst] && ins.Constant > -4096:
			depth = -int(ins.Constant) // a larger number is no offset
		}
		switch class := op.Class(); {
		case class.IsLoad(), class.IsALU():
			fromFrame[ins.Dst] = class == asm.ALU64Class && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource && ins.Src == asm.R10
		}
		frames[in] = max(frames[in], (depth+31)/32*32)
	}
	var deepest func(string) (int, string)
	deepest = func(name string) (most int, chain string) {
		for callee := range calls[name] {
			if below, c := deepest(callee); below > most {
				most, chain = below, c
			}
		}
		return frames[name] + most, fmt.Sprintf("%s %d, %s", name, frames[name], chain)
	}
	for _, program := range []string{abi.ProgCulvertXdp, abi.ProgCulvertCpu, abi.ProgCulvertPod, abi.ProgCulvertUplink, abi.ProgCulvertForward, abi.ProgCulvertClosed, abi.ProgCulvertN4, abi.ProgCulvertN4First} {
		got, chain := deepest(program)
		t.Logf("%s: %d of 512 octets: %s", program, got, chain)
		if got > 512 || frames["journey"] == 0 || len(calls[program]) < 2 {
			t.Errorf("%s: the stack is %d octets deep, more than 512: %s", program, got, chain)
		}
	}
}
