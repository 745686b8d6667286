package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// TestPodsSpread sends the packets of many flows between the pods of two nodes, which all have
// the same outer addresses, to a node with receive packet steering: the kernel gives the flows
// to both CPUs, and all packets of a flow to one.
func TestPodsSpread(t *testing.T) {
	cpus, err := proc.Allowed()
	must(t, err)
	if len(cpus) < 2 {
		t.Fatal("want two CPUs")
	}
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	for _, to := range b.pods[0].addresses() {
		frames := flowsOnWire(t, f, a.pods[0], b.pods[0], to, 64)
		b.steerPackets(t, cpus[:2])
		flows := b.flowsByCPU(t, f.router, frames)
		if flows[cpus[0]] < len(frames)/4 || flows[cpus[1]] < len(frames)/4 {
			t.Errorf("to %s: flows by CPU: %v of %d", to, flows, len(frames))
		}
	}
	f.noDrops(t)
}

// flowsOnWire are the frames of a datagram of each of several flows between pods, as the router
// meets them.
func flowsOnWire(t *testing.T, f *fabric, from, to *fabricPod, at netip.Addr, flows int) (frames [][]byte) {
	t.Helper()
	var server net.PacketConn
	var wire int
	to.Do(t, func() {
		var err error
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 9000).String())
		must(t, err)
	})
	t.Cleanup(func() { server.Close() })
	f.router.Do(t, func() { wire = packetSocket(t, f.router.Interface(t, "n1").Index) })
	from.Do(t, func() {
		for range flows { // each from a port of its own
			client, err := net.Dial("udp", server.LocalAddr().String())
			must(t, err)
			t.Cleanup(func() { client.Close() })
			_, err = client.Write([]byte("one of a flow"))
			must(t, err)
		}
	})
	b := make([]byte, 2048)
	for len(frames) < flows {
		n, _, err := unix.Recvfrom(wire, b, 0)
		must(t, err)
		if binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IPV6 && bytes.HasSuffix(b[:n], []byte("one of a flow")) {
			frames = append(frames, bytes.Clone(b[:n]))
		}
	}
	return frames
}

// steerPackets has the kernel spread what the node's uplink receives over CPUs.
func (n *fabricNode) steerPackets(t *testing.T, cpus []int) {
	t.Helper()
	mask := 0
	for _, cpu := range cpus {
		mask |= 1 << cpu
	}
	n.Run(t, "unshare", "--mount", "sh", "-c", fmt.Sprintf("mount -t sysfs none /sys && echo %x >/sys/class/net/up/queues/rx-0/rps_cpus", mask))
}

// flowsByCPU sends the node four packets of each flow, and counts flows by the CPU that handled
// all of them.
func (n *fabricNode) flowsByCPU(t *testing.T, router *netns.NS, frames [][]byte) map[int]int {
	t.Helper()
	device := fmt.Sprintf("n%d", n.number)
	var wire int
	router.Do(t, func() { wire = packetSocket(t, router.Interface(t, device).Index) })
	flows := map[int]int{}
	for _, frame := range frames {
		copy(frame, n.Interface(t, "up").HardwareAddr)
		copy(frame[6:], router.Interface(t, device).HardwareAddr)
		before := n.forwardedByCPU(t)
		const each = 4
		for range each {
			_, err := unix.Write(wire, frame)
			must(t, err)
		}
		deadline, cpu := time.Now().Add(5*time.Second), -1
		for cpu < 0 {
			for i, now := range n.forwardedByCPU(t) {
				if now-before[i] == each {
					cpu = i
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("packets of a flow by CPU: %v, before %v", n.forwardedByCPU(t), before)
			}
		}
		flows[cpu]++
	}
	return flows
}

// forwardedByCPU is how many packets each CPU has forwarded.
func (n *fabricNode) forwardedByCPU(t *testing.T) (packets []uint64) {
	t.Helper()
	var each []abi.Counter
	must(t, n.d.maps[abi.MapOutcomes].Lookup(uint32(abi.ReasonREASON_FORWARDED), &each))
	for _, c := range each {
		packets = append(packets, c.Packets)
	}
	return packets
}
