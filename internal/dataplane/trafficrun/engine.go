package trafficrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Engine is the loaded object of bpf/traffic.c.
type Engine struct {
	objects  trafficObjects
	links    []link.Link
	ring     *ringbuf.Reader
	frame    []byte // the longest of the job
	duration time.Duration
	batch    uint32
	device   uint32 // that sends, where what it refuses is counted
	netns    uint32 // its namespace's inode
}

// Load loads the programs.
func Load() (*Engine, error) {
	e := &Engine{}
	if err := loadTrafficObjects(&e.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that send and receive: %w", err)
	}
	ring, err := ringbuf.NewReader(e.objects.TrafficRing)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the ring of shown frames: %w", err), e.objects.Close())
	}
	ring.SetDeadline(time.Unix(1, 0)) // never wait
	e.ring = ring
	return e, nil
}

// Close detaches and unloads everything.
func (e *Engine) Close() error {
	var errs []error
	for _, l := range e.links {
		errs = append(errs, l.Close())
	}
	e.links = nil
	return errors.Join(append(errs, e.ring.Close(), e.objects.Close())...)
}

// Device is the interface, of the caller's network namespace, that sends. With
// countRefused it is counted what it has no room for, at some cost to whatever
// is redirected on this machine.
func (e *Engine) Device(ifindex int, countRefused bool) error {
	if err := e.objects.TrafficDevice.Put(uint32(0), uint32(ifindex)); err != nil {
		return fmt.Errorf("set the sending interface %d: %w", ifindex, err)
	}
	if !countRefused {
		return nil
	}
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
		return fmt.Errorf("name the network namespace: %w", err)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: e.objects.TrafficRefused})
	if err != nil {
		return fmt.Errorf("count what the interface refuses: %w", err)
	}
	e.links = append(e.links, l)
	e.device, e.netns = uint32(ifindex), uint32(namespace.Ino)
	return nil
}

// ErrBusy says that an interface has an XDP program of somebody else's.
var ErrBusy = errors.New("another XDP program is attached")

// Receive counts what the interface of the caller's network namespace gets; at
// the sending one, `returned`, nothing is expected to come. It says whether the
// driver runs the program, or only the kernel's generic code.
func (e *Engine) Receive(ifindex int, returned bool) (native bool, err error) {
	program := e.objects.TrafficReceive
	if returned {
		program = e.objects.TrafficWatch
	}
	for _, mode := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		var l link.Link
		l, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: ifindex, Flags: mode})
		if err == nil {
			e.links = append(e.links, l)
			return mode == link.XDPDriverMode, nil
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return false, ErrBusy
		}
	}
	return false, err
}

// HandOver gives what comes to e's receiving interface, or with `returned` to its
// sending one, and is of no packet of e's trial, to other, which needs not be
// attached there.
func (e *Engine) HandOver(returned bool, other *Engine) error {
	slot, program := trafficTrafficCallTRAFFIC_CALL_RECEIVE, other.objects.TrafficReceive
	if returned {
		slot, program = trafficTrafficCallTRAFFIC_CALL_WATCH, other.objects.TrafficWatch
	}
	return put("let another receiver have what is its own", e.objects.TrafficOther, uint32(slot), program)
}

// TakeTurns lets other make each Turns-th packet of e's jobs with Turns, by its own
// job: whose pace does not count, and whose sending interface does.
func (e *Engine) TakeTurns(other *Engine) error {
	slot := uint32(trafficTrafficCallTRAFFIC_CALL_SEND)
	return put("let another generator take turns", e.objects.TrafficOther, slot, other.objects.TrafficSend)
}

// State is how far the generator is.
type State struct {
	Begin, Last  uint64        // ns of CLOCK_MONOTONIC; 0: nothing was sent
	Paused       time.Duration // when the generator did not have the CPU
	Overruns     uint32        // packets that were later than Job.CatchUp because of those before
	Sent, Octets uint64
	Refused      uint64 // of Sent, by the interface
	Over         bool
	Failed       uint32 // frames that could not be made
}

// State reads it.
func (e *Engine) State() (State, error) {
	var s trafficTrafficState
	if err := e.objects.TrafficState.Lookup(uint32(0), &s); err != nil {
		return State{}, fmt.Errorf("read the generator's state: %w", err)
	}
	return State{
		Begin: s.Begin, Last: s.Last, Paused: time.Duration(s.Paused >> fixedPoint), Overruns: s.Overruns,
		Sent: s.Sent, Refused: s.Refused, Octets: s.Octets, Over: s.Over != 0, Failed: s.Failed,
	}, nil
}

// Wrong is what a frame was found to be.
type Wrong uint32

// The kinds.
const (
	Right      = Wrong(trafficTrafficWrongTRAFFIC_RIGHT)
	Length     = Wrong(trafficTrafficWrongTRAFFIC_LENGTH)
	Header     = Wrong(trafficTrafficWrongTRAFFIC_HEADER)
	Number     = Wrong(trafficTrafficWrongTRAFFIC_NUMBER)
	Unreadable = Wrong(trafficTrafficWrongTRAFFIC_UNREADABLE)
	Unexpected = Wrong(trafficTrafficWrongTRAFFIC_UNEXPECTED)
)

// Counts are what the receiver saw, of all CPUs.
type Counts struct {
	Received, Octets, Duplicated, Reordered uint64
	Wrong                                   map[Wrong]uint64 // without Right
	Returned, Stale                         uint64
	NotShown                                uint64
	Gap                                     time.Duration // the longest between two of Received
	Latest                                  uint64        // when the last of them came, ns of CLOCK_MONOTONIC
}

// Seen is how many frames came, of whatever kind.
func (c Counts) Seen() uint64 {
	return c.Received + c.Duplicated + c.Wrong[Unreadable] + c.Wrong[Unexpected] + c.Stale
}

// Counts reads them.
func (e *Engine) Counts() (Counts, error) {
	var all []trafficTrafficCounts
	if err := e.objects.TrafficCounts.Lookup(uint32(0), &all); err != nil {
		return Counts{}, fmt.Errorf("read the receiver's counters: %w", err)
	}
	var arrival trafficTrafficArrival
	if err := e.objects.TrafficArrival.Lookup(uint32(0), &arrival); err != nil {
		return Counts{}, fmt.Errorf("read the longest gap: %w", err)
	}
	sum := Counts{Wrong: map[Wrong]uint64{}, Gap: time.Duration(arrival.Gap), Latest: arrival.Last}
	for _, c := range all {
		sum.Received += c.Received
		sum.Octets += c.Octets
		sum.Duplicated += c.Duplicated
		sum.Reordered += c.Reordered
		sum.Returned += c.Returned
		sum.Stale += c.Stale
		sum.NotShown += c.NotShown
		for w := Length; w <= Unexpected; w++ {
			sum.Wrong[w] += c.Wrong[w]
		}
	}
	return sum, nil
}

// Shown is a frame that the receiver shows: a sample, or a wrong one.
type Shown struct {
	Wrong    Wrong
	Returned bool // it came to the sending interface
	// Size is the index in Job.Frames of what it was made of, if it has a tag.
	Size             int
	Stream, Sequence uint32
	Length           int    // of the frame
	Data             []byte // of it, at most MaxFrame; valid until see returns
}

// Show hands all frames over that were shown since.
func (e *Engine) Show(see func(Shown)) error {
	var record ringbuf.Record
	for {
		err := e.ring.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read shown frames: %w", err)
		}
		u32 := func(i int) uint32 { return binary.NativeEndian.Uint32(record.RawSample[4*i:]) } // of struct traffic_shown
		s := Shown{
			Wrong: Wrong(u32(0)), Returned: u32(1) != 0, Length: int(u32(2)), Size: int(u32(3)),
			Stream: u32(4), Sequence: u32(5),
		}
		s.Data = record.RawSample[shownLength-MaxFrame : shownLength-MaxFrame+min(s.Length, MaxFrame)]
		see(s)
	}
}

// buckets of the histogram: 128 of one ns, and 64 for each power of two up to
// 2^32 ns, so that none is wider than 1/64 of its values.
const buckets = 1728

// Bucket counts packets whose latency, in ns, was from Lower to Upper - 1.
type Bucket struct{ Lower, Upper, Count uint64 }

func bounds(i int) (lower, upper uint64) {
	if i < 128 {
		return uint64(i), uint64(i) + 1
	}
	octave, step := (i-128)/64, uint64(i-128)%64
	width := uint64(2) << octave
	return (64 + step) * width, (65 + step) * width
}

// Latency reads the buckets that are not empty, rising.
func (e *Engine) Latency() ([]Bucket, error) {
	var list []Bucket
	keys, counts := make([]uint32, buckets), make([]uint64, buckets*ebpf.MustPossibleCPU())
	var cursor ebpf.MapBatchCursor
	if _, err := e.objects.TrafficLatency.BatchLookup(&cursor, keys, counts, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("read latencies: %w", err)
	}
	cpus := ebpf.MustPossibleCPU()
	for i, key := range keys {
		b := Bucket{}
		for _, n := range counts[i*cpus : (i+1)*cpus] {
			b.Count += n
		}
		if b.Count > 0 {
			b.Lower, b.Upper = bounds(int(key))
			list = append(list, b)
		}
	}
	return list, nil
}
