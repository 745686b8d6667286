package pfcp

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// worker owns a share of the sessions: those whose SEID it gave out. Its
// goroutine handles their requests one after another.
type worker struct {
	mailbox
	s     *Server
	index int

	// sessions has the association of each session, by its index (worker.place);
	// apps has the SEIDs of sessions whose rules name applications.
	sessions session.Table[*association]
	apps     map[uint64]struct{}
	// last is the index of the SEID that was made last, random its random bits.
	last   uint32
	random *rand.ChaCha8
	// purges are under way: a few sessions are removed between two batches.
	purges []*purge
	b      request.Builder

	// going are deletions under way, by their requests. The user plane puts
	// those that it has finished into gone, and signals some.
	going  map[uint64]*deletion
	goneMu sync.Mutex
	gone   []*deletion
	some   chan struct{}
}

// mailbox is what a worker or the node takes from others, and how it answers.
type mailbox struct {
	queue   chan *batch
	tasks   chan func()
	answers *transactions
	out     outbox
	scratch []byte
}

// taskQueue is how many tasks may wait for a worker or the node.
const taskQueue = 1 << 14

func newMailbox() mailbox {
	return mailbox{
		queue:   make(chan *batch, queueLength),
		tasks:   make(chan func(), taskQueue),
		answers: newTransactions(),
	}
}

// post queues f for the goroutine. It does not wait: false means that the queue
// is full.
func (m *mailbox) post(f func()) bool {
	select {
	case m.tasks <- f:
		return true
	default:
		return false
	}
}

func newWorker(s *Server, index int) *worker {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // it never fails
	return &worker{
		mailbox: newMailbox(), s: s, index: index,
		apps:   map[uint64]struct{}{},
		going:  map[uint64]*deletion{},
		some:   make(chan struct{}, 1),
		random: rand.NewChaCha8(seed),
	}
}

func (w *worker) run(ctx context.Context) error {
	// idle never blocks while a purge is under way.
	idle := make(chan struct{})
	close(idle)
	for ctx.Err() == nil {
		var more chan struct{}
		if len(w.purges) > 0 {
			more = idle
		}
		select {
		case b := <-w.queue:
			w.receiveAll(b)
			w.out.flush(w.s.conns, w.s.lost)
		case <-w.some:
			w.deleted()
			w.out.flush(w.s.conns, w.s.lost)
		case f := <-w.tasks:
			f()
		case <-more:
			w.purgeSome()
		case <-ctx.Done():
		}
	}
	return nil
}

// receiveAll handles a batch, unless it has waited for too long.
func (w *worker) receiveAll(b *batch) {
	if !b.early.IsZero() && time.Since(b.early) > longestEarly {
		w.s.counters.overflows.Add(uint64(len(b.packets)))
	} else {
		for i := range b.packets {
			w.receive(&b.packets[i])
		}
	}
	b.release()
}

// lost counts and logs a message that the socket did not take.
func (s *Server) lost(err error) {
	s.counters.unsent.Add(1)
	s.warn(&s.complain.unsent, logevent.PFCPSendFailed, "PFCP message not sent", "error", err)
}

// receive handles one datagram, a request about a session: it repeats an answer
// that it has given, or handles the request and keeps the answer.
func (w *worker) receive(p *packet) {
	h, body, _, err := wire.ReadHeader(p.data)
	accepts := false // with an answer that says nothing else
	of := w.s.peers.Load().at(p.from.Addr())
	if len(of) == 0 {
		// A sender without an association makes us keep nothing.
		w.s.counters.unauthorised.Add(1)
		w.s.warn(&w.s.complain.unauthorised, logevent.PFCPUnauthorised, "request without an association", "from", p.from)
		w.refuse(p, h, 0, &wire.Refusal{Cause: ie.CauseNoEstablishedPFCPAssociation})
		w.out.add(p.conn, p.to, w.scratch)
		return
	}
	if h.Type != message.MsgTypeSessionEstablishmentRequest {
		defer func() { w.s.signalling.Give(h.SEID, h.Sequence, accepts) }()
	}
	key := w.answers.key(p.from, p.data)
	if answer := w.answers.find(key); answer != nil {
		w.s.counters.repeated.Add(1)
		w.out.add(p.conn, p.to, answer)
		return
	}
	if d := w.going[key]; d != nil {
		w.s.counters.repeated.Add(1)
		d.times++
		return
	}
	if err != nil {
		w.refuse(p, h, 0, &wire.Refusal{Cause: ie.CauseInvalidLength, Err: err})
	} else {
		switch h.Type {
		case message.MsgTypeSessionEstablishmentRequest:
			w.establish(p, h, body)
		case message.MsgTypeSessionModificationRequest:
			accepts = w.modify(p, h, body)
		default: // a deletion is answered later
			w.delete(p, h, key)
		}
	}
	if w.going[key] == nil {
		w.answers.keep(key, w.scratch, time.Now())
		w.out.add(p.conn, p.to, w.scratch)
	}
}

// answer leaves the response to h in w.scratch; cpSEID is the control plane's.
func (w *worker) answer(h wire.Header, cpSEID uint64, cause uint8, list ...*ie.IE) {
	h.HasSEID, h.SEID = true, cpSEID
	w.s.counters.answered(h.Type+1, cause)
	w.scratch = wire.AppendMessage(w.scratch[:0], h.Type+1, h, list...)
}

// refuse leaves an answer in w.scratch that refuses the request.
func (w *worker) refuse(p *packet, h wire.Header, cpSEID uint64, r *wire.Refusal) {
	w.s.log.Debug("PFCP request refused", "from", p.from, "message", messageName(h.Type), "seid", h.SEID, "why", r)
	list := r.IEs()
	if h.Type == message.MsgTypeSessionEstablishmentRequest {
		list = append([]*ie.IE{wire.NewNodeID(w.s.cfg.NodeID)}, list...)
	}
	w.answer(h, cpSEID, r.Cause, list...)
}

// read runs f, which reads a peer's octets. If f panics, the request is refused
// with Cause 68 (invalid length). This is the last resort behind all checks.
func (w *worker) read(from netip.AddrPort, f func()) {
	defer func() {
		if v := recover(); v != nil {
			w.s.counters.panics.Add(1)
			w.s.warn(&w.s.complain.panicked, logevent.PFCPPanic, "reading a PFCP message failed", "from", from, "panic", v, "stack", string(debug.Stack()))
			w.b.Err = &wire.Refusal{Cause: ie.CauseInvalidLength, Err: fmt.Errorf("panic: %v", v)}
		}
	}()
	f()
}

// builder returns the worker's request builder, ready for a session. It keeps
// memory from one request to the next.
func (w *worker) builder(to *session.Session, from netip.Addr, of *association) *request.Builder {
	wants := w.b.Wants[:0]
	if cap(wants) > 64 { // an unusual request must not keep its memory for ever
		wants = nil
	}
	clear(wants[:cap(wants)])
	w.b = request.Builder{
		Decoder:  wire.Decoder{Names: w.b.Names},
		Features: w.s.features, Apps: of.filters, Prefer6: from.Is6(), To: to, Wants: wants,
	}
	return &w.b
}

// newSEID returns a SEID of this worker that no session has, and that nobody can guess.
// It takes the next free place: neighbours in time are neighbours in tables.
func (w *worker) newSEID() uint64 {
	n := uint32(len(w.s.workers))
	places := cmp.Or(w.s.signalling.Places(), session.Places) / n
	for tries := 1; ; tries++ {
		random := w.random.Uint64()
		if w.last++; tries%16 == 0 { // away from here: sessions that stay lie close together
			w.last = uint32(random >> 32)
		}
		seid := session.MakeSEID(w.last%places*n+uint32(w.index), uint32(random))
		if seid != 0 && w.owner(seid) == nil && (w.sessions.Free(w.place(seid)) || tries > 64) {
			return seid
		}
	}
}

// place returns the index of a SEID among those of this worker, which has every
// n-th place.
func (w *worker) place(seid uint64) uint64 {
	at := session.PlaceOf(seid)
	return seid - uint64(at) + uint64(at/uint32(len(w.s.workers)))
}

// seidAt returns the SEID at an index.
func (w *worker) seidAt(place uint64) uint64 {
	at := session.PlaceOf(place)
	return place - uint64(at) + uint64(at*uint32(len(w.s.workers))+uint32(w.index))
}

// owner returns the association of a session; nil: this worker has no such
// session.
func (w *worker) owner(seid uint64) *association {
	if w.s.workerOf(seid) != w {
		return nil
	}
	return w.sessions.Get(w.place(seid))
}

// own records the association of a session, and whether its rules name
// applications.
func (w *worker) own(seid uint64, applications bool, of *association) {
	w.sessions.Put(w.place(seid), of)
	if applications {
		w.apps[seid] = struct{}{}
	} else {
		delete(w.apps, seid)
	}
}

// disown forgets a session.
func (w *worker) disown(seid uint64) {
	w.sessions.Delete(w.place(seid))
	delete(w.apps, seid)
}
