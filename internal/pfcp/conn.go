package pfcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Port is PFCP's (TS 29.244 section 6.2.1).
const Port = 8805

const (
	// batchSize is how many datagrams one system call takes.
	batchSize = 64
	// maxDatagram is what UDP can carry.
	maxDatagram = 65535
	// socketBuffer holds what arrives while the workers are busy.
	socketBuffer = 8 << 20
)

// conn is a socket on one of our addresses. An answer leaves by the socket that
// the request came in by.
type conn struct {
	index int
	addr  netip.Addr
	udp   *net.UDPConn
	batch interface {
		ReadBatch(ms []ipv4.Message, flags int) (int, error)
		WriteBatch(ms []ipv4.Message, flags int) (int, error)
	}
	// single: the path out does not support UDP_SEGMENT.
	single atomic.Bool
}

func listen(index int, addr netip.Addr) (*conn, error) {
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, Port)))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil, fmt.Errorf("no interface of this machine has %s (fix: ip address add %s dev INTERFACE, or an address that this machine has)", addr, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for PFCP: %w", err)
	}
	enlarge(udp)
	c := &conn{index: index, addr: addr, udp: udp}
	if addr.Is4() {
		p := ipv4.NewPacketConn(udp)
		c.batch, err = p, p.SetControlMessage(ipv4.FlagInterface, true)
	} else {
		p := ipv6.NewPacketConn(udp)
		c.batch, err = p, p.SetControlMessage(ipv6.FlagInterface, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask for the interfaces of PFCP: %w", err), udp.Close())
	}
	return c, nil
}

// enlarge makes the buffers of a socket larger than net.core.rmem_max allows, if it
// may. Smaller ones lose datagrams of SMFs when many come at once.
func enlarge(udp *net.UDPConn) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return
	}
	var forced error
	err = raw.Control(func(fd uintptr) {
		forced = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer))
	})
	if err != nil || forced != nil {
		_ = udp.SetReadBuffer(socketBuffer) // as much as there may be
		_ = udp.SetWriteBuffer(socketBuffer)
	}
}

// overrun returns how many datagrams the kernel has dropped because the socket's
// buffer was full; 0 once the socket is closed.
func (c *conn) overrun() uint64 {
	if c.udp == nil {
		return 0
	}
	raw, err := c.udp.SyscallConn()
	if err != nil {
		return 0
	}
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_ = raw.Control(func(fd uintptr) { // if it fails, info stays zero
		_, _, _ = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	return uint64(info[unix.SK_MEMINFO_DROPS])
}

// packet is a datagram in a batch.
type packet struct {
	conn *conn
	from netip.AddrPort
	to   net.Addr // from again, as WriteBatch wants it
	data []byte
}

// batch are datagrams for one worker, with the memory that they are in.
type batch struct {
	packets []packet
	memory  []byte
	early   time.Time // when they came, if that was while sessions were being restored
}

var batches = sync.Pool{New: func() any { return &batch{} }}

func (b *batch) release() {
	clear(b.packets)
	b.packets, b.early = b.packets[:0], time.Time{}
	// A large datagram must not keep its memory for ever.
	if cap(b.memory) > 1<<18 {
		b.memory = nil
	}
	b.memory = b.memory[:0]
	batches.Put(b)
}

// outbox gathers messages, to send them with one system call.
type outbox struct {
	byConn [][]ipv4.Message
	memory []byte
}

const (
	// mostSegments is how many datagrams the kernel makes of one message
	// (UDP_MAX_SEGMENTS), segmentMost the length that each may have: below any
	// path's MTU.
	mostSegments = 64
	segmentMost  = 1024
)

// add adds a copy of a message. Messages of one length for one peer go through
// the kernel's stack together (UDP_SEGMENT), which takes a third of the time.
func (o *outbox) add(c *conn, to net.Addr, message []byte) {
	at := len(o.memory)
	o.memory = append(o.memory, message...)
	for len(o.byConn) <= c.index {
		o.byConn = append(o.byConn, nil)
	}
	list := o.byConn[c.index]
	if n := len(list); n > 0 && !c.single.Load() && joins(&list[n-1], to, len(message)) {
		m := &list[n-1]
		m.Buffers = append(m.Buffers, o.memory[at:])
		m.OOB = appendSegmentSize(m.OOB[:0], len(message))
		return
	}
	if len(list) < cap(list) {
		list = list[:len(list)+1] // reuse its slice of buffers
	} else {
		list = append(list, ipv4.Message{})
	}
	m := &list[len(list)-1]
	m.Buffers = append(m.Buffers[:0], o.memory[at:])
	m.Addr, m.OOB = to, m.OOB[:0]
	o.byConn[c.index] = list
}

// joins says whether a datagram may go out together with those of m.
func joins(m *ipv4.Message, to net.Addr, length int) bool {
	if length != len(m.Buffers[0]) || length > segmentMost || len(m.Buffers) == mostSegments {
		return false
	}
	a, ok := m.Addr.(*net.UDPAddr)
	b, also := to.(*net.UDPAddr)
	return ok && also && a.AddrPort() == b.AddrPort()
}

// appendSegmentSize appends a UDP_SEGMENT control message.
func appendSegmentSize(dst []byte, size int) []byte {
	dst = append(dst, make([]byte, unix.CmsgSpace(2))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(dst)))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(dst[unix.CmsgLen(0):], uint16(size))
	return dst
}

// flush sends all messages. It passes errors to lost and goes on: a datagram may
// always be lost.
func (o *outbox) flush(conns []*conn, lost func(error)) {
	for i, list := range o.byConn {
		for left := list; len(left) > 0; {
			n, err := conns[i].batch.WriteBatch(left, 0)
			if errors.Is(err, net.ErrClosed) {
				break
			}
			if left = left[max(n, 0):]; err == nil || len(left) == 0 {
				continue
			}
			about := &left[0]
			left = left[1:]
			if len(about.Buffers) > 1 { // each by itself may succeed, or show the cause
				conns[i].single.Store(true)
				var apart []ipv4.Message
				for one := range slices.Chunk(about.Buffers, 1) {
					apart = append(apart, ipv4.Message{Buffers: one, Addr: about.Addr})
				}
				left = append(apart, left...)
				continue
			}
			lost(err)
		}
		o.byConn[i] = list[:0]
	}
	if cap(o.memory) > 1<<20 {
		o.memory = nil
	}
	o.memory = o.memory[:0]
}

// arrival returns the index of the interface that a datagram came in by, from its
// control messages; 0: they do not say.
func arrival(oob []byte) int {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		switch {
		case err != nil:
			return 0
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			return int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return int(binary.NativeEndian.Uint32(data[net.IPv6len:]))
		}
		oob = rest
	}
	return 0
}

// read calls take for each datagram, with the index of the interface that it came in
// by, and done after each batch, until the socket is closed.
func (c *conn) read(take func(in int, from netip.AddrPort, to net.Addr, data []byte), done func()) error {
	messages := make([]ipv4.Message, batchSize)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, maxDatagram)}
		messages[i].OOB = make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	}
	for {
		n, err := c.batch.ReadBatch(messages, 0)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read PFCP: %w", err)
		}
		for i := range messages[:n] {
			m := &messages[i]
			from, ok := m.Addr.(*net.UDPAddr)
			if !ok {
				continue
			}
			at := from.AddrPort()
			at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
			take(arrival(m.OOB[:m.NN]), at, m.Addr, m.Buffers[0][:m.N])
		}
		done()
	}
}
