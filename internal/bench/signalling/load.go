package signalling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/smf"
)

// Options are the two ends of N4, and the sessions.
type Options struct {
	Namespace string           // path of the SMFs' network namespace; "": ours
	UPF       netip.AddrPort   // over IPv4
	SMFs      []netip.AddrPort // addresses of SMFs, with PFCP's port
	// Spec is of all sessions together, which the SMFs share; its Count is a multiple of
	// theirs. Its Access is the first of two gNBs, the second has the next address.
	Spec smf.Spec
}

// Load is SMFs with sessions in a UPF. Close ends the SMFs; sessions stay.
type Load struct {
	node.Undo
	upf      netip.AddrPort
	gnbs     [2]netip.Addr
	smfs     []*endpoint
	sequence uint32 // of the next request
}

// endpoint is an SMF's socket and sessions. A run reads the socket in the client's place.
type endpoint struct {
	client   *smf.Client
	packets  *ipv4.PacketConn
	local    netip.Addr
	fd       int
	sessions []pduSession
	next     int // session whose turn it is
	batch    *smf.Batch
	out      [][]byte // room for one batch
}

// pduSession is what is known of a session.
type pduSession struct {
	up, cp uint64 // SEIDs
	teid   uint32 // at the first gNB
	gnb    uint8  // 0 or 1
	idle   bool
	busy   bool // a request is under way
}

// firstSequence keeps away from the sequence numbers with which sessions were set up.
const firstSequence = 1 << 23

// Dial makes SMFs, which associate with the UPF and set up the sessions.
func Dial(ctx context.Context, o Options) (_ *Load, err error) {
	l := &Load{upf: o.UPF, sequence: firstSequence}
	defer l.OnError(&err)
	if len(o.SMFs) == 0 || o.Spec.Count == 0 || o.Spec.Count%len(o.SMFs) != 0 {
		return nil, fmt.Errorf("signalling: %d sessions of %d SMFs: give one SMF or more, and as many sessions each", o.Spec.Count, len(o.SMFs))
	}
	if o.Spec.Access == nil || !o.Spec.Access.Address.Is4() || !o.UPF.Addr().Is4() {
		return nil, errors.New("signalling: give the UPF and the gNBs (access) IPv4 addresses")
	}
	o.Spec.NetworkInstance = networkInstance
	l.gnbs = [2]netip.Addr{o.Spec.Access.Address, o.Spec.Access.Address.Next()}
	for i, local := range o.SMFs {
		err := proc.Inside(o.Namespace, func() error {
			e, err := l.open(local)
			if err == nil {
				e.sessions, err = establish(ctx, e.client, part(o.Spec, i, len(o.SMFs)))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

// part is the i-th of n parts of all sessions.
func part(all smf.Spec, i, n int) smf.Spec {
	all.Count /= n
	first := uint32(i * all.Count)
	access := *all.Access
	access.TEID, access.Addresses = access.TEID+first, 2
	all.Access = &access
	all.UE4 = netip.PrefixFrom(later(all.UE4.Addr(), first), all.UE4.Bits())
	if all.Local != nil {
		local := *all.Local
		local.AccessTEID += first
		if local.CoreTEID != 0 {
			local.CoreTEID += first
		}
		all.Local = &local
	}
	return all
}

// started is the Recovery Time Stamp of all SMFs. A UPF takes a later one for a restart, and deletes
// the sessions.
var started = time.Now()

// DialSMF opens the socket of an SMF. One that opens it again has not restarted meanwhile.
func DialSMF(o smf.Options) (*smf.Client, error) {
	o.Dialect, o.Started = smf.Open5GS, started
	c, err := smf.Dial(o)
	if err != nil {
		return nil, fmt.Errorf("signalling: %w", err)
	}
	return c, nil
}

// open opens the socket of the SMF at an address: all its requests come from one port, by which some
// UPFs know it.
func (l *Load) open(local netip.AddrPort) (*endpoint, error) {
	client, err := DialSMF(smf.Options{UPF: l.upf, Local: local})
	if err != nil {
		return nil, err
	}
	l.Later(client.Close)
	conn, err := client.Share()
	if err != nil {
		return nil, err
	}
	l.Later(conn.Close)
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := &endpoint{client: client, packets: ipv4.NewPacketConn(conn), local: local.Addr(), batch: smf.NewBatch(net.UDPAddrFromAddrPort(l.upf))}
	const octets = 64 << 20
	err = raw.Control(func(fd uintptr) {
		e.fd = int(fd)
		err = errors.Join(unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, octets), unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, octets))
	})
	for range smf.BatchSize {
		e.out = append(e.out, make([]byte, 0, len(forward)))
	}
	l.smfs = append(l.smfs, e)
	return e, err
}

// establish sets up sessions.
func establish(ctx context.Context, c *smf.Client, spec smf.Spec) ([]pduSession, error) {
	if _, err := c.Associate(ctx); err != nil {
		return nil, err
	}
	g, err := c.Add(spec)
	if err != nil {
		return nil, err
	}
	for _, do := range []func(context.Context, smf.Pace) (smf.Result, error){g.Establish, g.Forward} {
		r, err := do(ctx, smf.Pace{Window: 256})
		if err := errors.Join(err, r.Err()); err != nil {
			return nil, err
		}
	}
	list := make([]pduSession, g.Count())
	for i := range list {
		info := g.Info(i)
		list[i] = pduSession{up: info.UPSEID, cp: info.CPSEID, teid: spec.Access.TEID + uint32(i), gnb: uint8(i % 2)}
	}
	return list, nil
}

// later is the n-th address behind one.
func later(a netip.Addr, n uint32) netip.Addr {
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b)
}

// pick is a session without a request under way; -1: none of those whose turn it is.
func (e *endpoint) pick() int {
	for range min(len(e.sessions), smf.BatchSize) {
		i := e.next
		e.next = (i + 1) % len(e.sessions)
		if !e.sessions[i].busy {
			return i
		}
	}
	return -1
}

// message writes over b what makes the UPF do what a session's state says.
func (l *Load) message(b []byte, s *pduSession, sequence uint32) []byte {
	if s.idle {
		return toRequest(b, idle, s.up, sequence)
	}
	return ToForward(b, s.up, sequence, s.teid+uint32(s.gnb)<<24, l.gnbs[s.gnb])
}
