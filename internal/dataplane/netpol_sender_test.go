package dataplane

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// skbTCIndex is an offset in struct __sk_buff.
const skbTCIndex = 44

// senderFamily is what TestSenderSaid has of IPv4 and IPv6.
type senderFamily struct {
	name               string // nft's
	protocol           int32  // skb->protocol
	service            string // an address of a prefix that is the kernel's
	node, router       string // addresses outside of the overlay
	outside, elsewhere string
	host               int // length of a prefix with one address
	server             func(*tenancy) netip.Addr
}

var senderFamilies = []senderFamily{
	{"ip", protocolIPv4, "10.96.0.1", "198.51.100.1/24", "198.51.100.254/24", "198.51.100.254", "198.51.100.253", 32, func(w *tenancy) netip.Addr { return w.server.ipv4 }},
	{"ip6", protocolIPv6, "fd00:96::1", "2001:db8:fe::1/64", "2001:db8:fe::254/64", "2001:db8:fe::254", "2001:db8:fe::253", 128, func(w *tenancy) netip.Addr { return w.server.ipv6 }},
}

// tcIndex runs `program` on packets of a family behind the programs that an interface has, with a map of one
// number in R0 and the packet in R6. Neighbour discovery is left out.
func tcIndex(t *testing.T, ns *netns.NS, name string, at ebpf.AttachType, of senderFamily, program asm.Instructions) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { m.Close() })
	const nextHeader = 14 + 6 // of IPv6; IPv4 has its flags there, which are another number
	all := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R1, skbProtocol, asm.Word),
		asm.JNE.Imm(asm.R1, of.protocol, "end"),
		asm.LoadAbs(nextHeader, asm.Byte),
		asm.JEq.Imm(asm.R0, unix.IPPROTO_ICMPV6, "end"),
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
	for _, of := range senderFamilies {
		t.Run(of.name, func(t *testing.T) { testSenderSaid(t, of) })
	}
}

func testSenderSaid(t *testing.T, of senderFamily) {
	const open, allowed = 1, 2
	w := newTenancy(t)
	a, client := w.nodes[0], w.client
	outside := addr(of.outside)
	a.Addr(t, "up", of.node)
	w.router.Addr(t, "n1", of.router)
	(&fabricPod{NS: w.router}).echo(t)
	nft := func(format string, args ...any) { a.Run(t, "nft", "add", fmt.Sprintf(format, args...)) }
	nft("table %s nat", of.name)
	nft("chain %s nat pre { type nat hook prerouting priority -100; }", of.name)
	nft("chain %s nat post { type nat hook postrouting priority 100; }", of.name)
	nft("rule %s nat post oifname up masquerade", of.name)

	seen := tcIndex(t, a.NS, client.host.Name, ebpf.AttachTCXIngress, of, asm.Instructions{
		asm.LoadMem(asm.R1, asm.R6, skbTCIndex, asm.Word),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.Word),
	})
	forge := asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.StoreMem(asm.R6, skbTCIndex, asm.R1, asm.Word),
	}
	forged := tcIndex(t, client.NS, "eth0", ebpf.AttachTCXEgress, of, forge)
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

	policy := fmt.Sprintf(`x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "%s/%d"}}]}]}`, of.outside, of.host)
	w.apply(t, policy)
	w.isRefused(t, client.NS, "udp", addr(of.elsewhere))
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
	nft("rule %[1]s nat pre %[1]s daddr %[2]s dnat to %[3]s", of.name, of.outside, of.elsewhere)
	a.Do(t, func() { must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable)) })
	w.mustDrop(t, conn)
	said("of the address that the client sees", allowed)

	// What goes back through a Service is the kernel's, too.
	w.apply(t)
	a.IP(t, fmt.Sprintf("route add %s/%d dev culvert0", of.service, of.host))
	nft("rule %[1]s nat pre %[1]s daddr %[2]s udp dport %[3]d dnat to %[4]s", of.name, of.service, servicePort, netip.AddrPortFrom(of.server(w), 5400))
	must(t, tcIndex(t, w.server.NS, "eth0", ebpf.AttachTCXEgress, of, forge).Put(uint32(0), mark|open))
	var listener net.PacketConn
	w.server.Do(t, func() { listener, err = net.ListenPacket("udp", ":5400") })
	must(t, err)
	defer listener.Close()
	_, err = fromPort(t, client.NS, "udp", port, addr(of.service)).Write([]byte("question"))
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
