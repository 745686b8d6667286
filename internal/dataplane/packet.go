package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Verdicts of an XDP program.
const (
	VerdictAborted  = 0
	VerdictDrop     = 1
	VerdictPass     = 2
	VerdictTX       = 3
	VerdictRedirect = 4
)

// VerdictName is the kernel's word for a verdict, such as "XDP_PASS".
func VerdictName(v uint32) string {
	names := []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}
	if int(v) >= len(names) {
		return fmt.Sprintf("XDP_%d", v)
	}
	return names[v]
}

// minFrame is the shortest frame that the kernel runs a program on.
const minFrame = 14

// liveFrames makes a test run send what it forwards
// (BPF_F_TEST_XDP_LIVE_FRAMES).
const liveFrames = 1 << 1

// xdpMD is the kernel's struct xdp_md.
type xdpMD struct {
	Data, DataEnd, DataMeta       uint32
	IngressIfindex, RxQueue, Exit uint32
}

// TestRun runs the program on a frame of at least 14 bytes as if it had come
// in on an interface, and returns the verdict and the frame as it is then.
// Nothing is sent, but everything is counted.
func (d *DataPlane) TestRun(frame []byte, ifindex int) (verdict uint32, out []byte, err error) {
	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+1024),
		Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	if err := checkFrame(frame); err != nil {
		return 0, nil, err
	}
	if verdict, err = d.prog.Run(&opts); err != nil {
		return 0, nil, fmt.Errorf("test run on interface %s: %w", interfaceName(ifindex), err)
	}
	return verdict, opts.DataOut, nil
}

func checkFrame(frame []byte) error {
	if len(frame) < minFrame {
		return fmt.Errorf("frame of %d bytes: want at least %d", len(frame), minFrame)
	}
	return nil
}

// Inject sends a frame through the program as if it had come in on an
// interface.
func (d *DataPlane) Inject(frame []byte, ifindex int) error {
	return d.inject(nil, frame, ifindex)
}

// InjectKept does so with a frame that PuntBuffer handed up: rules that still
// keep what comes send it on.
func (d *DataPlane) InjectKept(frame []byte, ifindex int) error {
	return d.inject(keptMark, frame, ifindex)
}

// keptMark is KEPT_MARK of bpf/def/tables.h.
var keptMark = binary.NativeEndian.AppendUint32(nil, 0x6b657074)

// inject sends a frame through the program with metadata before it.
func (d *DataPlane) inject(meta, frame []byte, ifindex int) error {
	if err := checkFrame(frame); err != nil {
		return err
	}
	data := frame
	if len(meta) > 0 {
		data = slices.Concat(meta, frame)
	}
	_, err := d.prog.Run(&ebpf.RunOptions{
		Data: data, Repeat: 1, Flags: liveFrames,
		Context: xdpMD{Data: uint32(len(meta)), DataEnd: uint32(len(data)), IngressIfindex: uint32(ifindex)},
	})
	if err != nil {
		return fmt.Errorf("inject on interface %s: %w", interfaceName(ifindex), err)
	}
	return nil
}

// PuntKind says what the daemon is to do with a packet.
type PuntKind uint32

const (
	PuntReassemble      = PuntKind(abi.PuntKindPUNT_REASSEMBLE)
	PuntFragment        = PuntKind(abi.PuntKindPUNT_FRAGMENT)
	PuntICMP            = PuntKind(abi.PuntKindPUNT_ICMP)
	PuntErrorIndication = PuntKind(abi.PuntKindPUNT_ERROR_INDICATION)
	PuntNeighbour       = PuntKind(abi.PuntKindPUNT_NEIGHBOUR)
	PuntBuffer          = PuntKind(abi.PuntKindPUNT_BUFFER)    // for an idle UE
	PuntDuplicate       = PuntKind(abi.PuntKindPUNT_DUPLICATE) // a copy
	PuntFlood           = PuntKind(abi.PuntKindPUNT_FLOOD)     // for all Ethernet sessions of Link
)

// Punt is a packet that the data path hands to the daemon.
type Punt struct {
	Kind       PuntKind
	Ifindex    int
	Info       uint32 // ICMP: pointer or MTU; fragment: MTU; GTP-U: TEID
	L3         int    // offset of the IP header meant
	Type, Code uint8  // ICMPv6, also where the packet is IPv4
	Table      uint32 // kernel table that the packet was looked up in; 0: none
	// NextHop on the interface Egress is what PuntNeighbour is about.
	NextHop netip.Addr
	Egress  int
	// Session and Rule are what PuntBuffer and PuntDuplicate are about, L3 is
	// the offset of the packet; of PuntICMP with SessionTable they are the
	// sender's. Session 0: the rule has gone meanwhile.
	Session uint64
	Rule    uint16
	Link    Link   // PuntFlood; the zero value: it has gone meanwhile
	Data    []byte // the frame as it came, 2048 bytes at most
}

// SessionTable is Punt.Table of a packet from a UE: errors go to it by its own
// rules.
const SessionTable = 0xffffffff

// Punts calls f for each packet that the data path hands up, until ctx ends.
// There is one reader at a time.
func (d *DataPlane) Punts(ctx context.Context, f func(Punt)) error {
	return readRing(ctx, d, abi.MapSlowPath, func(r *abi.Punt) {
		p := Punt{
			Kind: PuntKind(r.Kind), Ifindex: int(r.Ifindex), Info: r.Info, L3: int(r.L3), Type: r.Type, Code: r.Code,
			Table: r.Table,
			Data:  append([]byte(nil), r.Data[:min(int(r.Length), len(r.Data))]...),
		}
		if p.Kind == PuntNeighbour {
			p.NextHop, p.Egress = netip.AddrFrom16(r.Address.B).Unmap(), int(r.Egress)
		}
		switch {
		case p.Kind == PuntBuffer || p.Kind == PuntDuplicate:
			p.Session, p.Rule = d.Sessions.RuleAt(r.Info)
		case p.Kind == PuntICMP && p.Table == SessionTable:
			p.Session, p.Rule = d.Sessions.RuleAt(r.Egress)
		}
		if p.Kind == PuntFlood {
			d.mu.Lock()
			p.Link = d.linkOf(r.Info)
			d.mu.Unlock()
		}
		f(p)
	})
}

// PuntsIdle says that no packet is on its way to who reads Punts, nor with it.
func (d *DataPlane) PuntsIdle() bool {
	r := d.punts.Load()
	return r == nil || (!r.waits() && !r.busy.Load())
}

// ringState is of a ring that is read.
type ringState struct {
	busy   atomic.Bool // with records that are not done with
	mu     sync.Mutex
	reader *ringbuf.Reader // nil: closed
}

// waits says that there is a record in the ring.
func (r *ringState) waits() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reader != nil && r.reader.AvailableBytes() > 0
}

func (r *ringState) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != nil {
		r.reader.Close()
		r.reader = nil
	}
}

// startReading claims a ring buffer: it has a single place for its reader.
func (d *DataPlane) startReading(name string) (*ebpf.Map, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.maps[name]
	switch {
	case m == nil:
		return nil, errors.New("the data path is closed")
	case d.reading[name]:
		return nil, fmt.Errorf("%s has a reader already", name)
	}
	d.reading[name] = true
	return m, nil
}

func (d *DataPlane) stopReading(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reading, name)
}

// readRing decodes records until ctx ends, which is not an error.
func readRing[T any](ctx context.Context, d *DataPlane, name string, f func(*T)) error {
	m, err := d.startReading(name)
	if err != nil {
		return err
	}
	defer d.stopReading(name)
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("read %s: %w", m, err)
	}
	state := &ringState{reader: reader}
	defer state.close()
	stop := context.AfterFunc(ctx, state.close)
	defer stop()
	if name == abi.MapSlowPath {
		d.punts.Store(state)
		defer d.punts.Store(nil)
	}
	var record ringbuf.Record
	var value T
	size := unsafe.Sizeof(value)
	for {
		// Busy before a record leaves the ring, so that it is never in neither.
		state.busy.Store(state.waits())
		err := reader.ReadInto(&record)
		state.busy.Store(err == nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", m, err)
		case uintptr(len(record.RawSample)) < size:
			// left in the pinned ring by a build whose records were shorter
			d.log.Warn("a record of another build is skipped", "ring", name, "bytes", len(record.RawSample), "want", size)
			continue
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&value)), size), record.RawSample)
		f(&value)
	}
}
