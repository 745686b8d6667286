package slowpath

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/culvert-net/culvert/internal/tally"
)

// Kind says what to do with a packet (enum punt_kind of the data path).
type Kind uint32

// The kinds of work.
const (
	Reassemble      Kind = 1 // an outer fragment
	Fragment        Kind = 2 // IPv4 without DF, too big for Info bytes of layer 3
	ICMPError       Kind = 3 // an error to the sender of the packet at L3
	ErrorIndication Kind = 4 // GTP-U with an unknown TEID
	AwaitNeighbour  Kind = 5 // NextHop is to be resolved, and the frame sent in again
	// FragmentOuter is a finished frame, whose packet at L3, the outer one of a tunnel, leaves in
	// fragments of at most Info bytes.
	FragmentOuter Kind = 11
)

// Packet is a frame that the data path hands up.
type Packet struct {
	Kind    Kind
	Ifindex int    // that it was received on
	Info    uint32 // ICMP: pointer or MTU; Fragment: MTU; GTP-U: TEID
	L3      int    // offset of the IP header that is meant
	// Type and Code are those of ICMPv6, also for IPv4 packets.
	Type, Code uint8
	Data       []byte // from the Ethernet header; an error's may be cut short
	// Table is the kernel table in which the packet was looked up. 0: none.
	Table uint32
	// Rewritten says that the packet came out of others at this node: an error about it goes by
	// Table, not back to where the frame came from.
	Rewritten bool
	Session   uint64    // the UE's whose packet an error is about, where Table says so
	NextHop   Neighbour // AwaitNeighbour; of FragmentOuter the interface that the frame leaves by
}

// Injector sends a frame through the data path, as if it had been received on an
// interface.
type Injector interface {
	Inject(frame []byte, ifindex int) error
}

// ErrNoRoute reports that a table has no route to the destination.
var ErrNoRoute = errors.New("no route back")

const mainTable = 254

// Way says where a packet of the node itself goes. Two customers may have the same
// addresses, so an address alone does not say.
type Way struct {
	Ifindex int // that the packet to answer was received on
	// Back is the Ethernet header, with tags, of a frame that leaves on Ifindex, to
	// where the packet came from. Without it the packet is routed by Table.
	Back  []byte
	Table uint32 // kernel table; 0: none, there is no way
	// Session is the session of the UE that the packet is for.
	Session uint64
}

// Sender sends packets of the node itself. Its errors wrap ErrNoRoute if the way's table
// has no route.
type Sender interface {
	// Source returns one of the node's addresses to send from.
	Source(dst netip.Addr, way Way) (netip.Addr, error)
	// Send sends an IP packet with all its lengths and checksums.
	Send(packet []byte, way Way) error
}

// Options are what a SlowPath needs. Zero values stand for the defaults.
type Options struct {
	Injector Injector
	Sender   Sender
	Logger   *slog.Logger
	// Resolve asks the kernel to resolve a neighbour. Resolved says whether the data
	// path can send to it now.
	Resolve  func(Neighbour)
	Resolved func(Neighbour) bool
	// MaxNeighbours limits the neighbours that frames wait for: 256.
	MaxNeighbours int
	// Timeout is how long fragments are kept: 60 seconds (RFC 8200 section 4.5).
	Timeout time.Duration
	// MaxBytes and MaxDatagrams limit the memory of unfinished datagrams: 4 MiB and
	// 1024. Beyond, the oldest of whoever holds most is dropped, by interface and then by source.
	MaxBytes     int
	MaxDatagrams int
	// ErrorsPerSecond limits the errors about timeouts and malformed fragments: 100.
	// The data path limits the errors that it asks for.
	ErrorsPerSecond int
	// Now is the clock: time.Now.
	Now func() time.Time
}

// Counters count what happened to the packets that were handed up.
type Counters struct {
	Fragments           atomic.Uint64 `metric:"fragments"`            // received to be put together
	Reassembled         atomic.Uint64 `metric:"reassembled"`          // datagrams that became whole and were sent in again
	AtomicFragments     atomic.Uint64 `metric:"atomic_fragments"`     // of them, those that were whole at once (RFC 6946)
	ReassemblyTimeout   atomic.Uint64 `metric:"reassembly_timeout"`   // datagrams whose time was over
	ReassemblyEvicted   atomic.Uint64 `metric:"reassembly_evicted"`   // datagrams that gave way to newer ones, of the interface and source that held most
	ReassemblyOverlap   atomic.Uint64 `metric:"reassembly_overlap"`   // datagrams with overlapping fragments (RFC 5722)
	ReassemblyTooLong   atomic.Uint64 `metric:"reassembly_too_long"`  // datagrams longer than a frame can be
	ReassemblyMalformed atomic.Uint64 `metric:"reassembly_malformed"` // fragments whose header makes no sense
	ReassemblyECN       atomic.Uint64 `metric:"reassembly_ecn"`       // datagrams with contradictory marks (RFC 3168)
	FragmentsDiscarded  atomic.Uint64 `metric:"fragments_discarded"`  // fragments of datagrams already given up

	Fragmented           atomic.Uint64 `metric:"fragmented"`            // packets that were cut
	FragmentsMade        atomic.Uint64 `metric:"fragments_made"`        // into so many
	FragmentationRefused atomic.Uint64 `metric:"fragmentation_refused"` // DF, no room, or not an IPv4 packet

	ICMPSent       atomic.Uint64 `metric:"icmp_sent"`
	ICMPSuppressed atomic.Uint64 `metric:"icmp_suppressed"` // about errors, multicast and the like
	ICMPLimited    atomic.Uint64 `metric:"icmp_limited"`    // beyond ErrorsPerSecond
	ICMPNoRoute    atomic.Uint64 `metric:"icmp_no_route"`   // no way back in the table that the packet is of

	ErrorIndicationsSent atomic.Uint64 `metric:"error_indications_sent"`

	NeighbourHeld     atomic.Uint64 `metric:"neighbour_held"`     // frames that waited for a neighbour
	NeighbourResolved atomic.Uint64 `metric:"neighbour_resolved"` // of them, those that were sent in again
	NeighbourTimeout  atomic.Uint64 `metric:"neighbour_timeout"`  // of them, those whose neighbour did not answer
	NeighbourOverflow atomic.Uint64 `metric:"neighbour_overflow"` // frames that there was no room for

	Malformed    atomic.Uint64 `metric:"malformed"` // records that make no sense
	InjectFailed atomic.Uint64 `metric:"inject_failed"`
	SendFailed   atomic.Uint64 `metric:"send_failed"`
}

// All yields the counters with their metric names, in the order of the fields.
func (c *Counters) All() iter.Seq2[string, uint64] { return tally.All(c) }

// SlowPath handles what the data path hands up.
type SlowPath struct {
	Counters Counters

	options     Options
	reassembler *reassembler
	budget      *rate.Limiter // of the errors that it sends unasked
	waiting     waiting
}

// New makes a SlowPath. It does nothing before Handle or Run.
func New(o Options) *SlowPath {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.MaxNeighbours = cmp.Or(o.MaxNeighbours, 256)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.MaxBytes = cmp.Or(o.MaxBytes, 4<<20)
	o.MaxDatagrams = cmp.Or(o.MaxDatagrams, 1024)
	o.ErrorsPerSecond = cmp.Or(o.ErrorsPerSecond, 100)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &SlowPath{options: o, waiting: waiting{frames: map[Neighbour][]held{}, sent: map[Neighbour]time.Time{}}}
	s.budget = rate.NewLimiter(rate.Limit(o.ErrorsPerSecond), o.ErrorsPerSecond)
	s.reassembler = &reassembler{options: o, counters: &s.Counters, table: map[datagramKey]*unfinished{}, order: list.New(), ports: map[int]*ingress{}}
	return s
}

// Run gives up what has waited too long, until ctx ends, which is not an error.
func (s *SlowPath) Run(ctx context.Context) error {
	tick := time.NewTicker(min(holdTime/4, s.options.Timeout/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.Expire()
			s.Retry()
		}
	}
}

// Expire gives up datagrams that are too old.
func (s *SlowPath) Expire() {
	for _, e := range s.reassembler.expire(s.options.Now()) {
		s.ownError(e)
	}
}

// Handle does what a packet's Kind asks for. It may be called from several goroutines.
// It does not keep p.Data, but may change it.
func (s *SlowPath) Handle(p Packet) {
	if p.L3 < ethernetLength || p.L3 >= len(p.Data) {
		s.Counters.Malformed.Add(1)
		return
	}
	switch p.Kind {
	case Reassemble:
		s.reassemble(p)
	case Fragment:
		s.fragment(p)
	case ICMPError:
		r := requestAbout(p)
		r.kind, r.code, r.info = p.Type, p.Code, p.Info
		s.sendError(r)
	case ErrorIndication:
		s.errorIndication(p)
	case AwaitNeighbour:
		s.awaitNeighbour(p)
	case FragmentOuter:
		s.fragmentOuter(p)
	default:
		s.Counters.Malformed.Add(1)
	}
}

// inject sends a frame through the data path, and says whether it could.
func (s *SlowPath) inject(frame []byte, ifindex int) bool {
	if err := s.options.Injector.Inject(frame, ifindex); err != nil {
		s.Counters.InjectFailed.Add(1)
		s.options.Logger.Debug("cannot send a frame through the data path", "ifindex", ifindex, "error", err)
		return false
	}
	return true
}

// failed counts why a packet of the node itself was not sent.
func (s *SlowPath) failed(err error) {
	if errors.Is(err, ErrNoRoute) {
		s.Counters.ICMPNoRoute.Add(1)
	} else {
		s.Counters.SendFailed.Add(1)
	}
	s.options.Logger.Debug("cannot send a packet of this node", "error", err)
}
