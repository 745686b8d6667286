package dataplane

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// skbTCIndex is an offset in struct __sk_buff.
const skbTCIndex = 44

// tcIndex runs `program` on IPv4 packets behind the programs that an interface has, with a map of one number
// in R0 and the packet in R6.
func tcIndex(t *testing.T, ns *netns.NS, name string, at ebpf.AttachType, program asm.Instructions) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { m.Close() })
	ipv4 := binary.NativeEndian.Uint16([]byte{8, 0})
	all := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R1, skbProtocol, asm.Word),
		asm.JNE.Imm(asm.R1, int32(ipv4), "end"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
	}
	all = append(append(all, program...), asm.Mov.Imm(asm.R0, -1).WithSymbol("end"), asm.Return()) // TCX_NEXT
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: all})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	ns.Do(t, func() {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: ns.Interface(t, name).Index, Attach: at, Anchor: link.Tail()})
		must(t, err)
		t.Cleanup(func() { l.Close() })
	})
	return m
}

// TestSenderSaid: what culvert_pod says of a sender to culvert_forward is true, nobody else can say it, and it
// does not count for what the kernel translates since.
func TestSenderSaid(t *testing.T) {
	const open, allowed = 1, 2
	w := newTenancy(t)
	a, client := w.nodes[0], w.client
	outside := addr("198.51.100.254")
	a.Addr(t, "up", "198.51.100.1/24")
	w.router.Addr(t, "n1", "198.51.100.254/24")
	(&fabricPod{NS: w.router}).echo(t)
	a.Run(t, "nft", "add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post oifname up masquerade")

	seen := tcIndex(t, a.NS, client.host.Name, ebpf.AttachTCXIngress, asm.Instructions{
		asm.LoadMem(asm.R1, asm.R6, skbTCIndex, asm.Word),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.Word),
	})
	forge := asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.StoreMem(asm.R6, skbTCIndex, asm.R1, asm.Word),
	}
	forged := tcIndex(t, client.NS, "eth0", ebpf.AttachTCXEgress, forge)
	var mark uint32
	said := func(what string, want uint32) {
		t.Helper()
		var got uint32
		must(t, seen.Lookup(uint32(0), &got))
		if want != 0 {
			want |= mark
		}
		if got != want {
			t.Errorf("%s: said %#x, want %#x", what, got, want)
		}
	}
	port := 20000
	talk := func(times int) net.Conn { // a flow to outside
		t.Helper()
		port++
		conn := fromPort(t, client.NS, "udp", port, outside)
		for range times {
			ask(t, "outside", conn)
		}
		return conn
	}

	w.apply(t)
	conn := talk(1)
	must(t, seen.Lookup(uint32(0), &mark))
	if mark&3 != open {
		t.Fatalf("of a sender without policies: said %#x", mark)
	}
	mark &^= 3
	_, err := conn.Write(make([]byte, 3000))
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Read(make([]byte, 100))
	must(t, err)
	said("fragments", 0)
	must(t, forged.Put(uint32(0), mark|open))

	const policy = `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.254/32}}]}]}`
	w.apply(t, policy)
	w.isRefused(t, client.NS, "udp", addr("198.51.100.253"))
	said("what policies refuse", 0)
	conn = talk(1)
	said("the first packet of a flow", 0)
	ask(t, "outside", conn)
	ask(t, "outside", conn)
	said("a flow that policies allow", allowed)
	w.apply(t, `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]}`)
	w.mustDrop(t, conn)
	said("what policies allow no longer", 0)

	w.apply(t, policy)
	conn = talk(3)
	said("a flow that policies allow", allowed)
	a.Run(t, "nft", "add rule ip nat pre ip daddr 198.51.100.254 dnat to 198.51.100.253")
	a.Do(t, func() { must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable)) })
	w.mustDrop(t, conn)
	said("of the address that the client sees", allowed)

	// What goes back through a Service is the kernel's, too.
	w.apply(t)
	a.IP(t, "-4 route add 10.96.0.0/16 dev culvert0")
	a.Run(t, "nft", fmt.Sprintf("add rule ip nat pre ip daddr 10.96.0.1 udp dport %d dnat to %s:5400", servicePort, w.server.ipv4))
	must(t, tcIndex(t, w.server.NS, "eth0", ebpf.AttachTCXEgress, forge).Put(uint32(0), mark|open))
	var listener net.PacketConn
	w.server.Do(t, func() { listener, err = net.ListenPacket("udp", ":5400") })
	must(t, err)
	defer listener.Close()
	_, err = fromPort(t, client.NS, "udp", port, addr("10.96.0.1")).Write([]byte("question"))
	must(t, err)
	_, from, err := listener.ReadFrom(make([]byte, 100))
	must(t, err)
	w.apply(t, `x: {podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress]}`)
	w.mustDrop(t, answering{listener, from})
}

// answering writes to who has asked.
type answering struct {
	net.PacketConn
	to net.Addr
}

func (a answering) Write(data []byte) (int, error) { return a.WriteTo(data, a.to) }

// mustDrop sends on a flow, and wants policies to drop it.
func (w *tenancy) mustDrop(t testing.TB, flow io.Writer) {
	t.Helper()
	before := w.refusals(t)
	_, err := flow.Write([]byte("question"))
	must(t, err)
	for end := time.Now().Add(5 * time.Second); w.refusals(t) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was dropped")
		}
	}
}
