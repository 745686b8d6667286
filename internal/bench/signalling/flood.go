package signalling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
	"github.com/culvert-net/culvert/internal/smf"
)

// Flooded is how many requests a UPF accepts in a second if more come than it can answer:
// sockets cannot send so many.
const Flooded = "n4_flooded_per_s"

const (
	// settled is for how long no answer comes after the last one, patience how long it is
	// waited for that.
	settled  = 100 * time.Millisecond
	patience = 3 * time.Second
)

// Flood is what became of a flood of requests.
type Flood struct {
	Sessions int // that the requests are of
	trafficrun.Requested
	PerSecond float64 // accepted
}

// Err is nil where the UPF did what it was asked for: what it had no time for is a result.
func (f *Flood) Err() error {
	if f.Failed+f.Refused+f.Wrong+f.Again > 0 {
		return fmt.Errorf("signalling: of a flood of %d requests %d were accepted, %d refused and %d not made; %d answers were wrong, %d came twice",
			f.Sent, f.Accepted, f.Refused, f.Failed, f.Wrong, f.Again)
	}
	return nil
}

// Flood has the SMFs of a node of DialNode send handovers from a CPU as fast as XDP can, for
// a time. They are of as many sessions as are a power of two. The UPF knows both gNBs.
func (l *Load) Flood(ctx context.Context, n *node.Network, cpu int, duration time.Duration) (f Flood, err error) {
	job, err := l.floodJob(n, duration)
	if err != nil {
		return f, err
	}
	f.Sessions = len(job.Sessions)
	err = proc.Inside(n.Around.Path(), func() (err error) {
		link, err := net.InterfaceByName(around)
		if err != nil {
			return err
		}
		r, err := trafficrun.LoadRequests(job, link.Index)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := proc.Pin(cpu); err != nil {
			return err
		}
		if err := r.Send(ctx.Done()); err != nil {
			return fmt.Errorf("interface %s: %w", around, err)
		}
		f.Requested, err = settle(ctx, r)
		return err
	})
	f.PerSecond = float64(f.Accepted) / max(f.Elapsed.Seconds(), 1e-9)
	l.sequence = job.First + uint32(f.Sent)
	return f, err
}

// settle waits for late answers.
func settle(ctx context.Context, r *trafficrun.Requests) (now trafficrun.Requested, err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		before := now
		if now, err = r.Counts(); err != nil || now == before {
			return now, err
		}
		if err := node.Wait(ctx, settled); err != nil {
			return now, err
		}
	}
	return now, nil
}

// floodJob are the requests of a flood.
func (l *Load) floodJob(n *node.Network, duration time.Duration) (trafficrun.RequestJob, error) {
	j := trafficrun.RequestJob{
		Tunnel: headers + tunnelAt, GNBs: l.gnbs, Ports: [2]uint16{smf.Port, l.upf.Port()}, Duration: duration,
	}
	to, err := addressOf(n.Node, PortN4)
	if err != nil {
		return j, err
	}
	from, err := addressOf(n.Around, around)
	if err != nil {
		return j, err
	}
	j.Frame, j.Sum = floodFrame(from, to, l.upf)
	for _, e := range l.smfs {
		for i := range e.sessions {
			s := &e.sessions[i]
			j.Sessions = append(j.Sessions, trafficrun.RequestSession{UP: s.up, CP: s.cp, SMF: e.local, TEID: s.teid})
		}
	}
	sessions := uint32(1) << (bits.Len(uint(len(j.Sessions))) - 1)
	j.Sessions = j.Sessions[:sessions]
	j.First = (l.sequence + sessions) &^ (sessions - 1)
	return j, nil
}

// addressOf is the Ethernet address of an interface.
func addressOf(in node.Namespace, name string) (mac net.HardwareAddr, err error) {
	err = in.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err == nil {
			mac = link.HardwareAddr
		}
		return err
	})
	return mac, err
}

// Octets of headers in front of a message.
const (
	ethernet = 14
	ipv4Only = 20
	udpOnly  = 8
	headers  = ethernet + ipv4Only + udpOnly
)

// floodFrame is a request with 0 for what requests differ in, and the sum of its UDP checksum.
func floodFrame(from, to net.HardwareAddr, upf netip.AddrPort) (frame []byte, sum uint32) {
	message := ToForward(nil, 0, 0, 0, netip.IPv4Unspecified())
	b := append(append(make([]byte, 0, trafficrun.MaxRequestFrame), to...), from...)
	b = append(b, 8, 0, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Only+udpOnly+len(message)))
	b = append(b, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0) // Don't Fragment, TTL, UDP
	b = append(b, upf.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, smf.Port)
	b = binary.BigEndian.AppendUint16(b, upf.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(udpOnly+len(message)))
	b = append(append(b, 0, 0), message...)
	pseudo := binary.BigEndian.AppendUint16(append(upf.Addr().AsSlice(), 0, 17), uint16(udpOnly+len(message)))
	for _, part := range [][]byte{pseudo, b[ethernet+ipv4Only:]} {
		for i := range part { // words as the data path loads them, which is for little endian
			sum += uint32(part[i]) << (8 * (i % 2))
		}
	}
	return b, sum
}
