package pfcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
)

// Config configures an N4 server. Addresses are required, and Allow to hear anybody.
type Config struct {
	// Addresses are ours on N4, with UDP port 8805: at least one, all of them
	// addresses of this node. The first of each family is in our F-SEIDs.
	Addresses []netip.Addr
	// NodeID is an address or a domain name; empty: the first address.
	NodeID string
	// Allow are the SMFs that we listen to; none: nobody.
	Allow []netip.Prefix
	// Connect are SMFs that we set up an association with, again whenever it is
	// lost. Other SMFs set it up themselves.
	Connect []netip.Addr
	// Heartbeat is the time between two heartbeats (default 10 s). We repeat a
	// request after RetryAfter (T1, default 3 s), Retries times (N1, default 3);
	// then the peer counts as lost.
	Heartbeat, RetryAfter time.Duration
	Retries               int
	// MaxReports bounds the unanswered reports (default 4096).
	MaxReports int
	// Workers is how many goroutines handle sessions (default: the CPUs).
	Workers int
	// StampFile keeps our Recovery Time Stamps where Listen can read it before the
	// sessions are there; empty: nowhere.
	StampFile string
	Log       *slog.Logger
}

// queueLength is how many batches may wait for a worker. More are dropped, and
// the SMF repeats its requests.
const queueLength = 256

func (c *Config) defaults() error {
	if len(c.Addresses) == 0 {
		return errors.New("the N4 server needs an address")
	}
	for _, a := range c.Addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() {
			return fmt.Errorf("%v cannot be in our F-SEIDs: give a unicast address of this node", a)
		}
	}
	if c.NodeID == "" {
		c.NodeID = c.Addresses[0].String()
	}
	if len(c.NodeID) > 253 {
		return fmt.Errorf("node ID %q is longer than 253 characters", c.NodeID)
	}
	c.Heartbeat = cmp.Or(max(c.Heartbeat, 0), 10*time.Second)
	c.RetryAfter = cmp.Or(max(c.RetryAfter, 0), 3*time.Second)
	c.Retries = cmp.Or(max(c.Retries, 0), 3)
	c.MaxReports = cmp.Or(max(c.MaxReports, 0), 4096)
	c.Workers = cmp.Or(max(c.Workers, 0), runtime.GOMAXPROCS(0))
	c.Log = cmp.Or(c.Log, slog.Default())
	return nil
}

// smfs are the SMFs that we listen to (none: nobody), and those that we set
// up an association with.
type smfs struct {
	allow   []netip.Prefix
	connect []netip.Addr
}

// allows says whether we listen to an address.
func (s *smfs) allows(addr netip.Addr) bool {
	return slices.ContainsFunc(s.allow, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// names says whether an address is given by itself, not in a prefix with others.
func (s *smfs) names(addr netip.Addr) bool {
	return slices.Contains(s.connect, addr) || slices.Contains(s.allow, netip.PrefixFrom(addr, addr.BitLen()))
}

// Server is the UP function's end of N4.
//
// Each session belongs to one worker, which its SEID names. The worker handles
// its requests in order, and shares no lock with other workers. Associations
// belong to the node's goroutine; the workers read what it publishes.
type Server struct {
	cfg      Config
	upf      UPF
	log      *slog.Logger
	features session.Features
	// signalling shares the sessions with us.
	signalling Signalling
	sharing    sync.Mutex
	stamps     atomic.Pointer[stamps]
	running    atomic.Bool  // requests are handled
	early      atomic.Int64 // requests that came before
	conns      []*conn
	listen     sync.Once
	readers    errgroup.Group
	workers    []*worker
	node       *node
	peers      atomic.Pointer[peers]
	smfs       atomic.Pointer[smfs]
	limits     *limits // nil: none
	ports      atomic.Pointer[[]int]
	requests   requests
	counters   counters
	complain   struct {
		stranger, astray, unauthorised, malformed, overflow, excess, unsent, refused, panicked, app, unsaved complaint
		silent, back, unknown, kept                                                                          complaint
		unconfirmed, restarted, associated, released                                                         complaint
	}
}

var _ Reporter = (*Server)(nil)

// New opens the sockets and takes over what survived a restart. Datagrams wait
// until Listen or Run is called. Close or Run ends the server.
func New(cfg Config, upf UPF) (*Server, error) {
	s, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.Restore(upf); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Open opens the sockets. Restore must follow before Run; Listen may be called
// before it.
func Open(cfg Config) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, limits: newLimits(), signalling: alone{}}
	s.stamps.Store(&stamps{})
	s.peers.Store(&peers{})
	s.smfs.Store(&smfs{cfg.Allow, cfg.Connect})
	s.SetPorts(nil)
	s.requests.init(s)
	for i := range cfg.Workers {
		s.workers = append(s.workers, newWorker(s, i))
	}
	s.node = newNode(s)
	for i, a := range cfg.Addresses {
		c, err := listen(i, a)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

// Close closes the sockets, which ends Run. Associations and sessions stay for
// the next start.
func (s *Server) Close() {
	for _, c := range s.conns {
		_ = c.udp.Close()
	}
}

// Share has somebody share the sessions. It comes before Restore.
func (s *Server) Share(with Signalling) { s.signalling = with }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	defer s.requests.stop()
	inner, cancel := context.WithCancel(context.Background())
	defer cancel()
	var inside errgroup.Group
	for _, w := range s.workers {
		inside.Go(func() error { return w.run(inner) })
	}
	inside.Go(func() error { return s.node.run(inner) })
	s.running.Store(true)
	s.Listen()
	err := s.readers.Wait()
	cancel()
	return errors.Join(err, inside.Wait())
}

// Listen answers heartbeats, and nothing else before Run, if the Recovery Time Stamp
// is known: from StampFile, or after Restore.
func (s *Server) Listen() { s.listen.Do(s.read) }

func (s *Server) read() {
	if s.stamps.Load().Own == 0 {
		s.stamps.Store(s.readStampFile())
	}
	for _, c := range s.conns {
		s.readers.Go(func() error {
			d := newDispatcher(s)
			err := c.read(func(in int, from netip.AddrPort, to net.Addr, data []byte) {
				if s.hears(in, from) {
					d.dispatch(c, from, to, data)
				}
			}, d.flush)
			s.Close() // all sockets or none
			return err
		})
	}
}

// Requests about sessions that come while these are being restored wait: so many, and so
// long at most. SMFs repeat what has no answer (T1), and give it up in the end (T1 * N1).
const (
	mostEarly     = 1 << 14
	mostEarlySize = 4096 // octets
	longestEarly  = 2 * time.Second
)

// waits says whether a request waits until sessions are restored.
func (s *Server) waits(octets int) bool {
	return octets <= mostEarlySize && s.early.Add(1) <= mostEarly
}

// ready says whether a request can be handled now. SMFs repeat those that come too early.
func (s *Server) ready(what topic) bool {
	return s.running.Load() || what == heartbeat && s.stamps.Load().Own != 0
}

// workerOf returns the worker that a SEID of ours belongs to.
func (s *Server) workerOf(seid uint64) *worker {
	return s.workers[session.PlaceOf(seid)%uint32(len(s.workers))]
}

// SetSMFs changes which SMFs we listen to, and which we set up an association
// with. An SMF that we no longer listen to counts as lost when its heartbeats are due.
// Its sessions stay as they are: only an SMF that we listen to releases them.
func (s *Server) SetSMFs(allow []netip.Prefix, connect []netip.Addr) {
	s.smfs.Store(&smfs{allow, connect})
	s.share()
	s.node.post(s.node.connect) // or with the next heartbeat
}

// SetPorts changes by which interfaces PFCP may come in, given by their indexes. Until
// it is called only the loopback interface is heard.
func (s *Server) SetPorts(indexes []int) { s.ports.Store(&indexes) }

// loopback is the index of the loopback interface in Linux. The node's own datagrams
// come by it, or by the interface that has the address.
const loopback = 1

// IsSMF implements Reporter.
func (s *Server) IsSMF(from netip.Addr, in int) bool {
	return s.isPort(in) && s.smfs.Load().allows(from)
}

func (s *Server) isPort(in int) bool { return in == loopback || slices.Contains(*s.ports.Load(), in) }

// hears says whether a datagram came in by an interface of N4. It counts those that did
// not.
func (s *Server) hears(in int, from netip.AddrPort) bool {
	if s.isPort(in) {
		return true
	}
	s.counters.astray.Add(1)
	s.warn(&s.complain.astray, logevent.PFCPWrongInterface, "PFCP by an interface that is not for N4", "from", from, "interface", in)
	return false
}
