package trafficrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	"github.com/cilium/ebpf/link"
)

// MaxRequestFrame is the longest frame of a request, in octets without FCS.
const MaxRequestFrame = 128

// RequestSession is a session whose forwarding requests change.
type RequestSession struct {
	UP, CP uint64     // SEIDs
	SMF    netip.Addr // which sends the requests; IPv4
	TEID   uint32     // at the gNBs
}

// RequestJob are Session Modification Requests (TS 29.244, 7.5.4) that lead each session from
// one gNB to another and back, as fast as they can be sent.
type RequestJob struct {
	// Frame is a request over IPv4 with 0 for what requests differ in: source address, both
	// checksums, SEID, sequence number, and 8 octets at Tunnel for TEID and address of the gNB.
	// Sum is the Internet checksum's sum, not folded, over UDP, its pseudo-header and the message.
	Frame    []byte
	Tunnel   int
	Sum      uint32
	GNBs     [2]netip.Addr    // IPv4
	Ports    [2]uint16        // of the SMFs, and of the UPF
	Sessions []RequestSession // a power of two of them
	First    uint32           // sequence number, a multiple of their number
	Duration time.Duration
}

// Requests is the loaded object of bpf/requests.c, with a job.
type Requests struct {
	objects requestsObjects
	receive link.Link
	job     RequestJob
}

// LoadRequests loads the programs for a job. The interface of the caller's network namespace
// sends and receives; what comes to another port than that of the job passes. It needs native
// XDP.
func LoadRequests(j RequestJob, ifindex int) (_ *Requests, err error) {
	n := len(j.Sessions)
	if n == 0 || n > 1<<24 || n&(n-1) != 0 || len(j.Frame) > MaxRequestFrame {
		return nil, fmt.Errorf("%d sessions, a frame of %d octets: want a power of two up to 2^24, at most %d octets", n, len(j.Frame), MaxRequestFrame)
	}
	spec, err := loadRequests()
	if err != nil {
		return nil, err
	}
	spec.Maps["request_session"].MaxEntries = uint32(n)
	r := &Requests{job: j}
	if err := spec.LoadAndAssign(&r.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that send requests: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := r.prepare(ifindex); err != nil {
		return nil, err
	}
	r.receive, err = link.AttachXDP(link.XDPOptions{Program: r.objects.RequestReceive, Interface: ifindex, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("receive answers: %w", err)
	}
	return r, nil
}

// prepare fills the tables.
func (r *Requests) prepare(ifindex int) error {
	j, n := &r.job, len(r.job.Sessions)
	entry := requestsRequestJob{
		Duration: uint64(j.Duration), Sessions: uint32(n), Bits: uint32(bits.TrailingZeros(uint(n))),
		First: j.First, Length: uint32(len(j.Frame)), Sum: j.Sum, AtTunnel: uint32(j.Tunnel),
		Gnb: [2]uint32{octets4(j.GNBs[0]), octets4(j.GNBs[1])}, Port: bigEndian16(j.Ports[0]), UpfPort: bigEndian16(j.Ports[1]),
	}
	copy(entry.Frame[:], j.Frame)
	keys, values := make([]uint32, n), make([]requestsRequestSession, n)
	for i, s := range j.Sessions {
		keys[i] = uint32(i)
		values[i] = requestsRequestSession{Up: bits.ReverseBytes64(s.UP), Cp: bits.ReverseBytes64(s.CP), Smf: octets4(s.SMF), Teid: bits.ReverseBytes32(s.TEID)}
	}
	if _, err := r.objects.RequestSession.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("set the sessions of requests: %w", err)
	}
	return errors.Join(put("set the requests", r.objects.RequestJob, 0, &entry),
		put("set the interface of requests", r.objects.RequestDevice, 0, uint32(ifindex)))
}

// octets4 is an IPv4 address as it is in memory.
func octets4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

func bigEndian16(x uint16) uint16 { return bits.ReverseBytes16(x) } // the object is for little endian

// shorter is by how much frames get longer in the program. The kernel takes the length of a
// frame anew only where the program changes it: an answer has left it its own.
const shorter = 1

// Send sends until the job's time is over or stop is closed. The calling thread is locked, and
// in the network namespace and on the CPU that are to send.
func (r *Requests) Send(stop <-chan struct{}) error {
	return live{program: r.objects.RequestSend, frame: r.job.Frame[:len(r.job.Frame)-shorter], batch: 64, duration: r.job.Duration, over: func() (bool, error) {
		s, err := r.state()
		return s.Over != 0, err
	}}.send(stop)
}

func (r *Requests) state() (s requestsRequestState, err error) {
	if err := r.objects.RequestState.Lookup(uint32(0), &s); err != nil {
		return s, fmt.Errorf("read how many requests were sent: %w", err)
	}
	return s, nil
}

// Requested is what became of requests.
type Requested struct {
	Sent              uint64 // those that the interface had no room for, too
	Failed            uint64 // could not be made
	Accepted, Refused uint64
	// Wrong are messages that are no answer to a modification or name another session, Again
	// second answers.
	Wrong, Again uint64
	Elapsed      time.Duration // for which they were sent
}

// Counts says what has become of requests so far.
func (r *Requests) Counts() (Requested, error) {
	s, err := r.state()
	if err != nil {
		return Requested{}, err
	}
	var sums [requestsRequestFateREQUEST_FATES]uint64
	for i := range sums {
		var each []uint64
		if err := r.objects.RequestCount.Lookup(uint32(i), &each); err != nil {
			return Requested{}, fmt.Errorf("read the answers: %w", err)
		}
		for _, n := range each {
			sums[i] += n
		}
	}
	return Requested{
		Sent: s.Sent, Failed: uint64(s.Failed), Elapsed: time.Duration(s.Last - s.Begin),
		Accepted: sums[requestsRequestFateREQUEST_ACCEPTED], Refused: sums[requestsRequestFateREQUEST_REFUSED],
		Wrong: sums[requestsRequestFateREQUEST_WRONG], Again: sums[requestsRequestFateREQUEST_AGAIN],
	}, nil
}

// Close detaches and unloads everything.
func (r *Requests) Close() error {
	var err error
	if r.receive != nil {
		err = r.receive.Close()
	}
	return errors.Join(err, r.objects.Close())
}
