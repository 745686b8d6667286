package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/policycase"
)

// caseRig is a node with the pods of cyclonus' namespaces, except those of z: they are
// another node's, behind policies and tunnels.
type caseRig struct {
	*rig
	programs map[string]*ebpf.Program
	ports    map[string]int // of the pods on this node, by key
	macs     map[int]packet.Hex
	frames   map[string][]byte
	wanted   map[string]uint64 // how often flows end in what
}

var (
	caseOwn    = []string{"x/a", "x/b", "x/c", "x/d", "y/a", "y/b", "y/c", "y-2/a", "y-2/b", "w/a", "w/b", "w/c"}
	caseRemote = []string{"z/a", "z/b", "z/c"}
)

const firstCasePort = 60

// caseAddress is a pod's. Steering of the rows leads to those of z.
func caseAddress(v6 bool, key string) netip.Addr {
	own, remote := "10.2.3.%d", "10.11.3.%d"
	if v6 {
		own, remote = "fd02::3:%d", "fd11::3:%d"
	}
	if i := slices.Index(caseRemote, key); i >= 0 {
		return addr(fmt.Sprintf(remote, 1+i))
	}
	return addr(fmt.Sprintf(own, 1+slices.Index(caseOwn, key)))
}

// frame is the first one of a flow, and the interface that it arrives by.
func (r *caseRig) frame(t *testing.T, f *policycase.Flow, sport uint16) (frame []byte, ifindex int) {
	t.Helper()
	from, to := f.From.Addresses[0].Addr, f.To.Addresses[0].Addr
	ifindex, own := r.ports[f.From.Key()]
	if !own {
		ifindex = rowUplink
	}
	key := fmt.Sprintf("%s %s %d %d", from, to, f.Protocol, f.Port)
	at := 14 + 20
	if from.Is6() {
		at = 14 + 40
	}
	if !own {
		at += 40
	}
	frame = r.frames[key]
	if frame == nil {
		var in layers
		if from.Is4() {
			in = of(packet.IPv4{Src: from, Dst: to})
		} else {
			in = of(packet.IPv6{Src: from, Dst: to})
		}
		if !own {
			sid := dt4
			if from.Is6() {
				sid = dt6
			}
			in = of(ip6(insider, sid), in)
		}
		syn := uint8(2)
		upper := map[uint8]packet.Layer{
			netpol.TCP: packet.TCP{Dport: f.Port, Flags: &syn}, netpol.UDP: packet.UDP{Dport: f.Port},
			netpol.SCTP: packet.Payload{Proto: netpol.SCTP, Data: binary.BigEndian.AppendUint64([]byte{0, 0, byte(f.Port >> 8), byte(f.Port)}, 0)},
		}[f.Protocol]
		if r.macs[ifindex] == nil {
			r.macs[ifindex] = macOf(t, ifindex)
		}
		frame = packet.Frame(of(packet.Ethernet{Dst: r.macs[ifindex], Src: packet.Hex(hostA)}, in, upper)...)
		r.frames[key] = frame
	}
	binary.BigEndian.PutUint16(frame[at:], sport)
	return frame, ifindex
}

// checkStep sends the first packet of each flow that begins or ends on this node.
func (r *caseRig) checkStep(t *testing.T, s *policycase.Step, sport uint16) {
	t.Helper()
	for i := range s.State.Pods {
		p := s.State.Pods[i]
		if ifindex, own := r.ports[p.Key()]; own {
			s.State.Local = append(s.State.Local, netpol.Local{Ifindex: ifindex, Namespace: p.Namespace, Name: p.Name, UID: p.UID, Addresses: p.Addresses})
		}
	}
	must(t, r.d.NetworkPolicies.Apply(netpol.Compile(s.State)))
	for i := range s.Flows {
		f := &s.Flows[i]
		_, sends := r.ports[f.From.Key()]
		_, takes := r.ports[f.To.Key()]
		if !sends && !takes {
			continue
		}
		program, want, end := r.programs[abi.ProgCulvertPod], uint32(tcxDrop), "forwarded"
		if !sends {
			program = r.programs[abi.ProgCulvertUplink]
		}
		switch {
		case sends && !f.Egress:
			end = "policy_egress"
		case takes && !f.Ingress:
			end = "policy_ingress"
		default:
			want = tcxRedirect
		}
		r.wanted[end]++
		frame, ifindex := r.frame(t, f, sport)
		verdict, err := program.Run(&ebpf.RunOptions{Data: frame, Context: skbContext{Ifindex: uint32(ifindex)}})
		must(t, err)
		if verdict != want {
			t.Fatalf("%s: %s to %s, protocol %d, port %d: verdict %d; by cyclonus it is %s", s.Name, f.From.Key(), f.To.Key(), f.Protocol, f.Port, int32(verdict), end)
		}
	}
}

// TestPoliciesOfCyclonus: the first packets of flows between pods pass or are dropped as
// cyclonus' matcher says, at the end that it says, for each of its cases: pods of this node
// among themselves, and with those of another, in both families.
func TestPoliciesOfCyclonus(t *testing.T) {
	ports := slices.Clone(rowPorts)
	for i := range caseOwn {
		ports = append(ports, model.Port{Name: fmt.Sprintf("case%d", i), Ifindex: firstCasePort + i})
	}
	inNamespace(t, ports, func() {
		r := &caseRig{rig: newRowRig(t), ports: map[string]int{}, macs: map[int]packet.Hex{}, frames: map[string][]byte{}, wanted: map[string]uint64{}}
		r.programs = podProgramsOf(t, r.d)
		must(t, r.d.NetworkPolicies.Enforce(true))
		for i, key := range caseOwn {
			r.ports[key] = firstCasePort + i
			must(t, r.d.Pods.Put(pod.Pod{Ifindex: firstCasePort + i, MAC: hostA, Addresses: []netip.Addr{caseAddress(false, key), caseAddress(true, key)}}))
		}
		before := r.counters(t)
		sport := uint16(1000) // another for each step: no flow is one of a step before
		for _, v6 := range []bool{false, true} {
			must(t, policycase.Each(func(namespace, pod string) netip.Addr { return caseAddress(v6, namespace+"/"+pod) }, func(s policycase.Step) {
				sport++
				r.checkStep(t, &s, sport)
			}))
		}
		counted := since(before, r.counters(t))
		t.Logf("%d steps, %v", sport-1000, r.wanted)
		for _, end := range []string{"forwarded", "policy_egress", "policy_ingress"} {
			if n := counted["outcome "+end].Packets; n != r.wanted[end] || n < 1000 {
				t.Errorf("%d packets ended as %s, and not %d", n, end, r.wanted[end])
			}
		}
	})
}
