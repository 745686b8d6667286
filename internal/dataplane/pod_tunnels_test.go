package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// Of struct __sk_buff.
const (
	skbLen      = 0
	skbProtocol = 16
	skbGSOSize  = 176
)

// Of bpf_skb_adjust_room.
const (
	roomMAC         = 1
	roomFixedGSO    = 1 << 0
	roomEncapL3IPv6 = 1 << 2
	roomNoCsumReset = 1 << 5
	roomDecapL3IPv4 = 1 << 7
	roomDecapL3IPv6 = 1 << 8
)

const (
	protocolIPv4 = 0x0008 // as the kernel has them, in network order
	protocolIPv6 = 0xdd86
)

// notTunnelled is the answer of a program of tunnelled whose preparation failed.
const notTunnelled = 77

func adjustRoom(by int32, flags int64) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, by), asm.Mov.Imm(asm.R3, roomMAC), asm.LoadImm(asm.R4, flags, asm.DWord),
		asm.FnSkbAdjustRoom.Call(),
		asm.JNE.Imm(asm.R0, 0, "failed"),
	}
}

// tunnelled puts before a program one that has each IP packet go into a tunnel and
// come out of it: the packet is as it was, but the kernel knows it as one in a
// tunnel from then on, like those that came from another node or are a pod's own.
func tunnelled(t testing.TB, p *ebpf.Program) *ebpf.Program {
	t.Helper()
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { must(t, next.Close()) })
	load := func(offset int16) asm.Instruction { return asm.LoadMem(asm.R7, asm.R6, offset, asm.Word) }
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1),
		load(skbLen), asm.JLT.Imm(asm.R7, 14+40, "run"), // the kernel would not take the headers off again
		load(skbProtocol), asm.JEq.Imm(asm.R7, protocolIPv4, "into"), asm.JNE.Imm(asm.R7, protocolIPv6, "run")}
	into := adjustRoom(40, roomFixedGSO|roomEncapL3IPv6)
	into[0] = into[0].WithSymbol("into")
	code = append(append(code, into...), asm.JEq.Imm(asm.R7, protocolIPv4, "ipv4"))
	code = append(append(code, adjustRoom(-40, roomFixedGSO|roomNoCsumReset|roomDecapL3IPv6)...), asm.Ja.Label("run"))
	out := adjustRoom(-40, roomFixedGSO|roomNoCsumReset|roomDecapL3IPv4)
	out[0] = out[0].WithSymbol("ipv4")
	code = append(append(code, out...),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("run"), asm.LoadMapPtr(asm.R2, next.FD()), asm.Mov.Imm(asm.R3, 0), asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, notTunnelled).WithSymbol("failed"), asm.Return())
	before, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: ebpf.AttachTCXIngress, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { must(t, before.Close()) })
	must(t, next.Put(uint32(0), p))
	return before
}

// seen is what passed an interface, by what the kernel takes packets for.
type seen struct {
	IPv6, Others uint64 // skb->protocol
	Whole        uint64 // many packets that are one still
	TooLong      uint64 // more than a frame of 1500 octets
}

// watch counts packets at an interface.
func watch(t testing.TB, ns *netns.NS, name string, at ebpf.AttachType) func() seen {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 32, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { must(t, counts.Close()) })
	load := func(offset int16) asm.Instruction { return asm.LoadMem(asm.R1, asm.R6, offset, asm.Word) }
	add := func(field int16) asm.Instruction {
		i := asm.StoreXAdd(asm.R0, asm.R7, asm.DWord)
		i.Offset = 8 * field
		return i
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, AttachType: at, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R7, 1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counts.FD()), asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"),
		load(skbProtocol), asm.JEq.Imm(asm.R1, protocolIPv6, "ipv6"), add(1), asm.Ja.Label("gso"),
		add(0).WithSymbol("ipv6"),
		load(skbGSOSize).WithSymbol("gso"), asm.JEq.Imm(asm.R1, 0, "length"), add(2),
		load(skbLen).WithSymbol("length"), asm.JLE.Imm(asm.R1, 14+1500, "end"), add(3),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("end"), asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { must(t, p.Close()) })
	ns.Do(t, func() {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: ns.Interface(t, name).Index, Attach: at})
		must(t, err)
		t.Cleanup(func() { must(t, l.Close()) })
	})
	return func() (s seen) {
		must(t, counts.Lookup(uint32(0), &s))
		return s
	}
}

// forwardsTo has a node translate what is for its own addresses, as kube-proxy
// does for a NodePort, to a pod, whose answers come back by it.
func (n *fabricNode) forwardsTo(t testing.TB, pod *fabricPod) {
	t.Helper()
	for family, to := range map[string][2]string{
		"ip":  {fmt.Sprintf("10.244.%d.1", n.number), pod.ipv4.String()},
		"ip6": {fmt.Sprintf("fd00:%d::1", n.number), pod.ipv6.String()},
	} {
		n.Run(t, "nft", fmt.Sprintf("add table %[1]s nat; "+
			"add chain %[1]s nat pre { type nat hook prerouting priority -100; }; "+
			"add chain %[1]s nat post { type nat hook postrouting priority 100; }; "+
			"add rule %[1]s nat pre %[1]s daddr %[2]s meta l4proto tcp dnat to %[3]s; "+
			"add rule %[1]s nat post ct status dnat masquerade", family, to[0], to[1]))
	}
}

// withoutOffload has a device that can neither cut packets up nor make checksums.
func (n *fabricNode) withoutOffload(t testing.TB, name string) {
	t.Helper()
	n.Run(t, "ethtool", "-K", name, "tso", "off", "gso", "off", "tx", "off")
}

// TestTunnelToTunnel: a large packet that leaves one tunnel enters another
// unsegmented and with its metadata, and is segmented where the device needs it.
// A pod of node 3 sends to node 1, where a pod of node 2 answers.
func TestTunnelToTunnel(t *testing.T) {
	f := served(t, 3)
	a, b, c := f.nodes[0], f.nodes[1], f.nodes[2]
	for _, n := range []*fabricNode{b, c} {
		n.reach(t, a, srv6.HEncapsRed)
	}
	a.forwardsTo(t, b.pods[0])
	a.withoutOffload(t, "up")
	for _, tunnel := range []struct {
		behavior srv6.Behavior
		via      []netip.Addr
	}{{srv6.HEncapsRed, nil}, {srv6.HEncaps, []netip.Addr{sidOf(nodeSID, 2)}}} {
		a.reach(t, b, tunnel.behavior, tunnel.via...)
		a.reach(t, c, tunnel.behavior)
		for i, at := range b.pods[0].addresses() {
			t.Run(fmt.Sprintf("%s, to %s", tunnel.behavior, at), func(t *testing.T) {
				var listener net.Listener
				var err error
				b.pods[0].Do(t, func() { listener, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()) })
				must(t, err)
				defer listener.Close()
				_, port, _ := net.SplitHostPort(listener.Addr().String())
				node := []string{"10.244.1.1", "fd00:1::1"}[i]
				out, in := watch(t, a.NS, "up", ebpf.AttachTCXEgress), watch(t, f.router, "n1", ebpf.AttachTCXIngress)
				send(t, c.pods[0].NS, listener, net.JoinHostPort(node, port), 8<<20)
				if s := out(); s.Whole < 100 || s.Others > 0 {
					t.Errorf("node 1 sent %+v, want many that are whole, and all IPv6", s)
				}
				if s := in(); s.IPv6 < 2*(8<<20)/1400 || s.Others+s.Whole+s.TooLong > 0 {
					t.Errorf("from node 1 came %+v, want packets of IPv6 that are cut", s)
				}
			})
		}
	}
	f.noDrops(t)
}

// TestTunnelIntoPolicy: a large packet inside a tunnel that reaches a binding SID
// enters the policy's tunnel unsegmented, and is segmented behind it.
func TestTunnelIntoPolicy(t *testing.T) {
	f := served(t, 3)
	a, b, c := f.nodes[0], f.nodes[1], f.nodes[2]
	end, binding := addr("fc00:ff:0:6::"), addr("fc00:1:0:b::")
	f.router.Sysctl(t, "net.ipv6.conf.all.seg6_enabled", "1")
	f.router.Sysctl(t, "net.ipv6.conf.n1.seg6_enabled", "1")
	f.router.IP(t, "-6 route add "+end.String()+" encap seg6local action End.DT6 table 254 dev n1")
	a.Do(t, func() {
		must(t, a.d.Policies.Put(srpolicy.Policy{Name: "bound", Behavior: srv6.HEncapsRed, BindingSID: binding,
			SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{end}}}}))
	})
	a.withoutOffload(t, "up")
	c.reach(t, b, srv6.HEncapsRed, binding)
	b.reach(t, c, srv6.HEncapsRed, binding)
	for _, p := range []*fabricPod{b.pods[0], c.pods[0]} {
		p.IP(t, "-4 route replace default via 169.254.1.1 mtu 1360") // two tunnels and an SRH
		p.IP(t, "-6 route replace default via fe80::1 dev eth0 mtu 1360")
	}
	out, in := watch(t, a.NS, "up", ebpf.AttachTCXEgress), watch(t, f.router, "n1", ebpf.AttachTCXIngress)
	for _, at := range b.pods[0].addresses() {
		transfer(t, c.pods[0].NS, b.pods[0].NS, at, 8<<20)
	}
	if s := out(); s.Whole < 100 || s.Others > 0 {
		t.Errorf("node 1 sent %+v, want many that are whole, and all IPv6", s)
	}
	if s := in(); s.IPv6 < 4*(8<<20)/1400 || s.Others+s.Whole+s.TooLong > 0 {
		t.Errorf("from node 1 came %+v, want packets of IPv6 that are cut", s)
	}
	f.noDrops(t)
}
