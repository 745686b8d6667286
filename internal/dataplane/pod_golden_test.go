package dataplane

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/testutil/golden"
)

// Verdicts of a tcx program.
const (
	tcxNext     = 0xffffffff
	tcxDrop     = 2
	tcxRedirect = 7
)

// skbContext is the beginning of struct __sk_buff.
type skbContext struct {
	Before  [10]uint32
	Ifindex uint32
}

// runHook runs a program on a frame that came in on an interface.
func (r *rig) runHook(t testing.TB, program string, frame []byte, ifindex int) (uint32, []byte) {
	t.Helper()
	return runOn(t, podProgramsOf(t, r.d)[program], frame, ifindex)
}

func runOn(t testing.TB, p *ebpf.Program, frame []byte, ifindex int) (uint32, []byte) {
	t.Helper()
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+1024), Context: skbContext{Ifindex: uint32(ifindex)}}
	verdict, err := p.Run(&opts)
	must(t, err)
	return verdict, opts.DataOut
}

// otherwise says how a row of the journey's ends in a program for pods, and why
// that is another end: "passed", or the name of a reason to drop.
type otherwise struct{ row, end, why string }

const (
	kernels = "the kernel has to say what is wrong, or does it"
	tagged  = "a pod's interface has neither tags nor steering of its own"
)

var podOtherwise = []otherwise{
	{"from a VLAN", "passed", tagged},
	{"TTL 1", "passed", kernels},
	{"hop limit 1", "passed", kernels},
	{"too big", "passed", kernels},
	{"no error about an ICMPv6 error that is too big", "passed", kernels},
	{"IPv4 with IHL 4", "passed", kernels},
	{"IPv4 shorter than its header", "passed", kernels},
	{"longer than the frame", "passed", kernels},
	{"with a wrong header checksum", "passed", kernels},
	{"steered by interface", "passed", tagged},
}

func findOtherwise(list []otherwise, row string) *otherwise {
	for i := range list {
		if strings.Contains(row, list[i].row) {
			return &list[i]
		}
	}
	return nil
}

// addressed gives a frame to the interface, as a stack does.
func addressed(t testing.TB, frame []byte, ifindex int) []byte {
	t.Helper()
	in, err := net.InterfaceByIndex(ifindex)
	must(t, err)
	out := bytes.Clone(frame)
	if len(out) >= 6 && out[0]&1 == 0 {
		copy(out, in.HardwareAddr)
	}
	return out
}

// TestGoldenPods runs the rows of H.Encaps and H.Encaps.Red through culvert_pod:
// what leaves is, octet for octet, what the journey would send, or the packet as
// it was for the kernel; also by devices that XDP cannot send to, where the
// kernel translates flows and has to be asked about each, and of packets that have
// been in a tunnel.
func TestGoldenPods(t *testing.T) {
	for _, how := range []podKind{{}, {pass: true}, {translates: true}, {tunnelled: true}} {
		t.Run(fmt.Sprintf("%+v", how), func(t *testing.T) { goldenPods(t, how) })
	}
}

// podKind is what differs between runs of the same rows.
type podKind struct{ pass, translates, tunnelled bool }

func goldenPods(t *testing.T, how podKind) {
	files := loadGolden(t, "h_encaps", "h_encaps_red", "shared_next_hops", "traffic_classes")
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		if how.tunnelled {
			program = tunnelled(t, program)
		}
		for _, f := range files {
			for i := range f.Network.Adjacencies {
				f.Network.Adjacencies[i].Pass = how.pass
			}
			must(t, r.program(f.Network))
			if how.translates {
				must(t, r.d.maps[abi.MapOverlay].Put(uint32(0), &abi.Overlay{Translates: 1})) // as AttachEntry does
			}
			for _, p := range f.Network.Ports {
				must(t, r.d.Ports.Set(p.Ifindex, port.Port{Roles: port.Edge, Classifier: r.classifier(p.Name)})) // as PutPod does
			}
			for i := range f.Rows {
				f.Rows[i].Name = f.Name() + ": " + f.Rows[i].Name
				r.podRow(t, program, &f.Rows[i], how)
			}
			must(t, r.clear())
		}
	})
}

// TestGoldenEntry runs the rows of classes by source through culvert_pod as it is where
// culvert0 leads: what the kernel sends there has origins, and a tag has none.
func TestGoldenEntry(t *testing.T) {
	files := loadGolden(t, "traffic_classes_sources")
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		f := files[0]
		must(t, r.program(f.Network))
		classes, err := class.Compile(f.Network.Config.TrafficClasses, nil)
		must(t, err)
		for _, p := range f.Network.Ports {
			must(t, r.d.Ports.Set(p.Ifindex, port.Port{Classifier: r.classifier(p.Name), Origins: classes.Origins(p.Name)}))
		}
		forwarded := 0
		for i := range f.Rows {
			row := &f.Rows[i]
			if frame, _ := row.Input(); frame[12] == 0x81 || frame[12] == 0x88 {
				row.Want.Verdict = "passed"
			} else {
				forwarded++
			}
			r.podRow(t, program, row, podKind{})
		}
		if forwarded < 10 || forwarded == len(f.Rows) {
			t.Errorf("%d of %d rows have no tag", forwarded, len(f.Rows))
		}
	})
}

func loadGolden(t testing.TB, names ...string) []*golden.File {
	t.Helper()
	var files []*golden.File
	for _, name := range names {
		f, err := golden.Load("testdata/behavior/" + name + ".yaml")
		must(t, err)
		files = append(files, f)
	}
	return files
}

// answerable says whether conntrack can be asked about a packet: a whole one of
// TCP, UDP or an echo.
func answerable(frame []byte) bool {
	l4, protocol := 14+40, frame[14+6]
	if frame[14]>>4 == 4 {
		l4, protocol = 14+int(frame[14]&15)*4, frame[14+9]
		if frame[14+6]&0x3f|frame[14+7] != 0 {
			return false
		}
	}
	switch protocol {
	case 1:
		return frame[l4] == 0 || frame[l4] == 8
	case 58:
		return frame[l4] == 128 || frame[l4] == 129
	}
	return protocol == 6 || protocol == 17
}

func (r *rig) podRow(t *testing.T, program *ebpf.Program, row *golden.Row, how podKind) {
	frame, ifindex := row.Input()
	frame = addressed(t, frame, ifindex)
	end := row.Want.Verdict
	if o := findOtherwise(podOtherwise, row.Name); o != nil && end != "passed" {
		end = o.end
	}
	if how.translates && end == "forwarded" && !answerable(frame) {
		end = "passed"
	}
	before := r.counters(t)
	verdict, out := runOn(t, program, frame, ifindex)
	counted := since(before, r.counters(t))
	want := model.Counts(row.Want.Counters)
	switch end {
	case "forwarded":
		if verdict != tcxRedirect || !bytes.Equal(trim(out), trim(r.uncompleted(row, frame))) {
			t.Errorf("%s: verdict %d, frame\nwant %x\ngot  %x", row.Name, verdict, row.Want.Out, out)
		}
	case "dropped":
		if verdict != tcxDrop {
			t.Errorf("%s: verdict %d", row.Name, verdict)
		}
	case "passed":
		want = model.Counts{model.OutcomeName("passed"): {Packets: 1, Bytes: uint64(len(frame))}}
		if verdict != tcxNext || !bytes.Equal(out, frame) {
			t.Errorf("%s: verdict %d, frame\nwant %x\ngot  %x", row.Name, verdict, frame, out)
		}
	default:
		t.Fatalf("ends as %s, for which no program for pods is made", end)
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("%s: counters (-want +got):\n%s", row.Name, diff)
	}
}

// trim cuts what is behind the IPv6 packet of a frame.
func trim(frame []byte) []byte {
	return frame[:min(len(frame), 14+40+int(frame[18])<<8+int(frame[19]))]
}

// uncompleted is what the row sends, with the layer-4 checksum that came: the
// stacks' own packets say themselves whether it is partial.
func (r *rig) uncompleted(row *golden.Row, frame []byte) []byte {
	out := bytes.Clone(row.Want.Out)
	if !strings.Contains(row.Name, "left partial") {
		return out
	}
	l4, protocol := 14+40, frame[14+6]
	if frame[14]>>4 == 4 {
		l4, protocol = 14+int(frame[14]&15)*4, frame[14+9]
	}
	at := l4 + map[byte]int{6: 16, 17: 6}[protocol]
	copy(out[at+len(out)-len(frame):], frame[at:at+2])
	return out
}

const (
	noMTU     = "a pod takes what its peers may send"
	noDaemon  = "the daemon's slow path has no part in it"
	decapped  = "decapsulated, for the kernel" // an end
	noPods    = "the SIDs have the main table here, and no pod is there"
	delivered = "forwarded"
)

var uplinkOtherwise = []otherwise{
	{"an inner TTL of 1", decapped, kernels},
	{"inner hop limit 1", decapped, kernels},
	{"no error about an inner ICMP error", decapped, kernels},
	{"too big for the egress", delivered, noMTU},
	{"a fragment", "fragment", noDaemon},
	{"no route in the table", decapped, noPods},
	{"a route of the main table only", decapped, noPods},
}

// trustAll has all sources be inside the SR domain: the rows are about what comes after.
func (r *rig) trustAll(t testing.TB) {
	t.Helper()
	must(t, r.d.Members.Put(overlay.Member{Prefix: prefix("::/0")}))
}

// TestGoldenUplink runs the rows of End.DT4, End.DT6 and End.DT46 through
// culvert_uplink, with a pod at the destinations inside: what the pod gets is,
// from the IP header on, what the journey would send.
func TestGoldenUplink(t *testing.T) {
	files := loadGolden(t, "end_dt4", "end_dt6", "end_dt46")
	podVeth := model.Port{Name: "podveth", Ifindex: 50}
	inNamespace(t, append(allPorts(files), podVeth), func() {
		r := newRig(t)
		r.trustAll(t)
		for _, f := range files {
			for i := range f.Network.Config.SIDs {
				f.Network.Config.SIDs[i].Table = 0
			}
			must(t, r.program(f.Network))
			must(t, r.d.Pods.Put(pod.Pod{Ifindex: podVeth.Ifindex, MAC: hostA, Addresses: addrs("10.2.2.2", "2001:db8:b::1")}))
			for i := range f.Rows {
				f.Rows[i].Name = f.Name() + ": " + f.Rows[i].Name
				r.uplinkRow(t, &f.Rows[i])
			}
			must(t, r.d.Pods.Delete(podVeth.Ifindex))
			must(t, r.clear())
		}
	})
}

func (r *rig) uplinkRow(t *testing.T, row *golden.Row) {
	frame, ifindex := row.Input()
	frame = addressed(t, frame, ifindex)
	end := row.Want.Verdict
	if end == "dropped" {
		end = string(row.Want.Reason)
	}
	if o := findOtherwise(uplinkOtherwise, row.Name); o != nil {
		end = o.end
	}
	before := r.counters(t)
	verdict, out := r.runHook(t, abi.ProgCulvertUplink, frame, ifindex)
	counted := since(before, r.counters(t))
	outcome, wanted := end, uint32(tcxDrop)
	switch end {
	case delivered:
		wanted = tcxRedirect
		r.toPod(t, row, out)
	case decapped:
		outcome, wanted = "passed", tcxNext
		if inner := innerOf(frame); !bytes.Equal(out[12:], append(typeOf(inner), inner...)) {
			t.Errorf("%s: the kernel gets %x, want %x", row.Name, out, inner)
		}
	case "passed":
		wanted = tcxNext
	}
	if verdict != wanted || counted[model.OutcomeName(model.Reason(outcome))] != (model.Counter{Packets: 1, Bytes: uint64(len(frame))}) {
		t.Errorf("%s: verdict %d, want %d; %v, want one %s", row.Name, verdict, wanted, counted, outcome)
	}
}

// toPod looks at the frame that a pod gets.
func (r *rig) toPod(t *testing.T, row *golden.Row, out []byte) {
	frame, _ := row.Input()
	inner := innerOf(frame)
	want := append(append(append(bytes.Clone(hostA), bytes.Repeat([]byte{0xee}, 6)...), typeOf(inner)...), inner...)
	if row.Want.Verdict == "forwarded" {
		copy(want[14:], row.Want.Out[14:]) // behind it: what the pod's stack cuts off
	} else {
		copy(want[14:26], out[14:]) // hop and checksum: rows that are forwarded have them
	}
	if !bytes.Equal(out, want) {
		t.Errorf("%s: the pod gets\n%x, want\n%x", row.Name, out, want)
	}
}

// innerOf is the IP packet behind the outer IPv6 header and its SRH.
func innerOf(frame []byte) []byte {
	at, next := 14+40, frame[14+6]
	for next == 43 {
		next, at = frame[at], at+8+8*int(frame[at+1])
	}
	return frame[at:]
}

func typeOf(ip []byte) []byte {
	if ip[0]>>4 == 4 {
		return []byte{0x08, 0x00}
	}
	return []byte{0x86, 0xdd}
}

const oneSRH = "the one extension header that tunnels between nodes have is an SRH"

var endOtherwise = []otherwise{
	{"Hop-by-Hop and Destination Options", "extension_chain", oneSRH},
	{"VLAN tag", "passed", tagged},
	{"USD before USP", decapped, kernels},
	{"USD with", decapped, kernels},
	{"an inner hop limit of 1", decapped, kernels},
	{"hop limit 1 is enough", decapped, kernels},
	{"a type 2 routing header that is done", "routing_type", oneSRH},
	{"a Fragment header before the SRH", "fragment", noDaemon},
}

// TestGoldenEnd runs the rows of End through culvert_uplink: the kernel gets what
// the journey would send, with the hop that it will spend itself.
func TestGoldenEnd(t *testing.T) {
	files := loadGolden(t, "end")
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		r.trustAll(t)
		must(t, r.program(files[0].Network))
		for i := range files[0].Rows {
			r.endRow(t, &files[0].Rows[i])
		}
	})
}

func (r *rig) endRow(t *testing.T, row *golden.Row) {
	frame, ifindex := row.Input()
	frame = addressed(t, frame, ifindex)
	end, want := row.Want.Verdict, frame
	switch end {
	case "dropped":
		end = string(row.Want.Reason)
	case "forwarded", "passed":
		if row.Want.Out != nil {
			want = slices.Concat(frame[:14], trim(row.Want.Out)[14:], frame[len(trim(frame)):]) // padding
			want[14+7] = frame[14+7]
		}
		end = "passed"
	}
	if o := findOtherwise(endOtherwise, row.Name); o != nil {
		end, want = o.end, frame
	}
	if end == decapped {
		inner := bytes.Clone(innerOf(frame))
		if inner[0]>>4 == 6 && frame[15]&0x30 == 0x30 {
			inner[1] |= 0x30 // the congestion outside
		}
		end, want = "passed", slices.Concat(frame[:12], typeOf(inner), inner)
	}
	before := r.counters(t)
	verdict, out := r.runHook(t, abi.ProgCulvertUplink, frame, ifindex)
	counted := since(before, r.counters(t))
	if (verdict == tcxNext) != (end == "passed") || counted[model.OutcomeName(model.Reason(end))].Packets != 1 {
		t.Errorf("%s: verdict %d, %v, want one %s", row.Name, verdict, counted, end)
	}
	if verdict == tcxNext && !bytes.Equal(out, want) {
		t.Errorf("%s: the kernel gets\n%x, want\n%x", row.Name, out, want)
	}
}

// TestGoldenBinding runs the rows of End.B6.Encaps and End.B6.Encaps.Red, SIDs and
// policies' binding SIDs, through culvert_uplink: of packets that the kernel knows
// as ones in a tunnel, as it does those of other nodes, and of others.
func TestGoldenBinding(t *testing.T) {
	files := loadGolden(t, "end_b6_encaps", "end_b6_encaps_red")
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		r.trustAll(t)
		uplink := podProgramsOf(t, r.d)[abi.ProgCulvertUplink]
		for _, f := range files {
			must(t, r.program(f.Network))
			for i := range f.Rows {
				f.Rows[i].Name = f.Name() + ": " + f.Rows[i].Name
				for _, program := range []*ebpf.Program{uplink, tunnelled(t, uplink)} {
					r.bindingRow(t, program, &f.Rows[i])
				}
			}
			must(t, r.clear())
		}
	})
}

func (r *rig) bindingRow(t *testing.T, program *ebpf.Program, row *golden.Row) {
	frame, ifindex := row.Input()
	frame = addressed(t, frame, ifindex)
	end := row.Want.Verdict
	if end == "dropped" {
		end = string(row.Want.Reason)
	}
	before := r.counters(t)
	verdict, out := runOn(t, program, frame, ifindex)
	counted := since(before, r.counters(t))
	if (verdict == tcxRedirect) != (end == "forwarded") {
		t.Errorf("%s: verdict %d, want it %s", row.Name, verdict, end)
	}
	if diff := cmp.Diff(model.Counts(row.Want.Counters), counted); diff != "" {
		t.Errorf("%s: counters (-want +got):\n%s", row.Name, diff)
	}
	if end == "forwarded" && !bytes.Equal(trim(out), row.Want.Out) {
		t.Errorf("%s: it sends\n%x, want\n%x", row.Name, out, row.Want.Out)
	}
}
