package flow

import (
	"cmp"
	"container/list"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Directory knows who has an address.
type Directory interface {
	// Who is a pod or a node, or the address alone. pod is the ifindex of a pod of this node,
	// which is meant where the address is not valid.
	Who(tenant uint8, address netip.Addr, pod int) End
}

// Limits of what is kept.
type Limits struct {
	Flows int           // DefaultFlows unless set
	Pairs int           // of workloads, with their own counts; DefaultPairs unless set
	Keep  time.Duration // how long a flow without packets is kept; DefaultKeep unless set
}

// What is kept unless Limits say otherwise.
const (
	DefaultFlows = 8192
	DefaultPairs = 1000
	DefaultKeep  = 10 * time.Minute
)

// joinWithin is how long after a packet to a Service the translated one is waited for, and how
// long a flow's first packets are before it is counted.
const joinWithin = 2 * time.Second

// ephemeral is the first port that clients have (RFC 6056 recommends more; Linux does that).
const ephemeral = 32768

// policy begins the reasons of packets that NetworkPolicies refuse.
const policy = "policy_"

// key is a flow's, in both directions.
type key struct {
	tenant   uint8
	protocol uint8
	low      netip.AddrPort
	high     netip.AddrPort
	pod      int    // of packets that were not read
	reason   string // of these
}

// client is one end of a flow, which the kernel translates.
type client struct {
	tenant, protocol uint8
	at               netip.AddrPort
}

// entry is a flow in the table.
type entry struct {
	Flow
	keys    []key
	client  client
	payer   int
	at      *list.Element // of the payer's
	changed uint64
	begun   bool           // who began it is known
	syn     time.Time      // of the last one
	counted [2]Count       // of what is allowed and dropped: pairs have it
	asked   bool           // Explain knows its drops
	ingress bool           // of the last drop by policies
	refused netip.AddrPort // who sent that packet
}

// Table holds flows.
type Table struct {
	who    Directory
	limits Limits

	mu     sync.Mutex
	flows  map[key]*entry
	payers map[int]*list.List // the oldest first
	count  int
	byID   map[uint64]*entry
	// waiting are flows to what may be a Service, by who sends; nil: there are two.
	waiting map[client]*entry
	pairs   map[Pair]*Count
	lastID  uint64
	change  uint64
}

// New makes a table without flows.
func New(who Directory, l Limits) *Table {
	l.Flows, l.Pairs, l.Keep = cmp.Or(l.Flows, DefaultFlows), cmp.Or(l.Pairs, DefaultPairs), cmp.Or(l.Keep, DefaultKeep)
	return &Table{
		who: who, limits: l, flows: map[key]*entry{}, payers: map[int]*list.List{}, byID: map[uint64]*entry{},
		waiting: map[client]*entry{}, pairs: map[Pair]*Count{},
	}
}

// keyOf is the same for both directions.
func keyOf(r *Record) key {
	k := key{tenant: r.Tenant, protocol: r.Protocol, low: r.Source, high: r.Destination}
	if !r.Source.IsValid() {
		return key{pod: r.Pod, reason: r.Reason}
	}
	if k.low.Compare(k.high) > 0 {
		k.low, k.high = k.high, k.low
	}
	return k
}

// Fold takes the next record.
func (t *Table) Fold(r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(&r)
	if e == nil {
		return
	}
	t.change++
	e.changed = t.change
	e.Last = r.Time
	t.payers[e.payer].MoveToBack(e.at)
	if r.Where != FromKernel || !e.Source.Local {
		e.add(&r)
	}
	e.take(&r)
}

// find is the flow of a record, a new one where none is known. nil: it is none's.
func (t *Table) find(r *Record) *entry {
	k := keyOf(r)
	e := t.flows[k]
	if e != nil && e.Closed && r.Protocol == tcp && r.Flags&(syn|ack) == syn && r.Where != FromKernel {
		e.forget(t) // the ports are used again
		e = nil
	}
	if e == nil {
		e = t.join(r, k)
	}
	if e == nil {
		e = t.begin(r, k)
	}
	return e
}

// join finds the flow to a Service of which a record is, after the kernel translated it.
func (t *Table) join(r *Record, k key) *entry {
	if !r.Source.IsValid() || r.Where == FromPod && r.Reason == "passed" && !t.isAnswer(r) {
		return nil
	}
	for _, d := range []struct{ own, other netip.AddrPort }{{r.Source, r.Destination}, {r.Destination, r.Source}} {
		c := client{r.Tenant, r.Protocol, d.own}
		e := t.waiting[c]
		if e == nil || r.Time.Sub(e.Last) > joinWithin {
			continue
		}
		to := t.end(r, d.other)
		if !to.IsKnown() {
			continue
		}
		delete(t.waiting, c)
		e.Service = netip.AddrPortFrom(e.Destination.Address, e.Destination.Port).String()
		e.Destination = to
		e.keys = append(e.keys, k)
		t.flows[k] = e
		return e
	}
	return nil
}

// isAnswer says whether a pod of this node sends to a client that waits.
func (t *Table) isAnswer(r *Record) bool {
	return t.waiting[client{r.Tenant, r.Protocol, r.Destination}] != nil
}

func (t *Table) end(r *Record, a netip.AddrPort) End {
	e := t.who.Who(r.Tenant, a.Addr(), 0)
	e.Address, e.Port = a.Addr(), a.Port()
	e.Local = e.Local || r.Where == FromPod && a.IsValid() && a == r.Source // a pod that is too new to have a name
	return e
}

// begin makes a flow.
func (t *Table) begin(r *Record, k key) *entry {
	t.lastID++
	e := &entry{keys: []key{k}, payer: r.Pod}
	e.ID, e.First, e.Tenant, e.Protocol, e.Sampling = t.lastID, r.Time, r.Tenant, protocolName(r.Protocol), 1
	e.Source, e.Destination = t.end(r, r.Source), t.end(r, r.Destination)
	if !r.Source.IsValid() {
		e.Source, e.begun = t.who.Who(r.Tenant, netip.Addr{}, r.Pod), true
	} else if e.isAnswered(r) {
		e.turn()
	}
	e.observe()
	if t.count >= t.limits.Flows {
		t.evict()
	}
	queue := t.payers[e.payer]
	if queue == nil {
		queue = list.New()
		t.payers[e.payer] = queue
	}
	e.at = queue.PushBack(e)
	t.flows[k], t.byID[e.ID] = e, e
	t.count++
	if r.Where == FromPod && r.Reason == "passed" && !e.Destination.IsKnown() && e.Source.Local {
		e.client = client{r.Tenant, r.Protocol, r.Source}
		if former, two := t.waiting[e.client]; two && former != nil && r.Time.Sub(former.Last) <= joinWithin {
			delete(t.waiting, e.client) // nobody can tell which of the two is meant
		} else {
			t.waiting[e.client] = e
		}
	}
	return e
}

// isAnswered says whether the record is of the end that did not begin the flow.
func (e *entry) isAnswered(r *Record) bool {
	if r.Protocol == tcp && r.Flags&syn != 0 {
		e.begun = true
		return r.Flags&ack != 0
	}
	if r.Protocol != tcp && r.Flags&ack != 0 { // an ICMP Echo Reply
		return true
	}
	return r.Source.Port() != 0 && r.Source.Port() < ephemeral && r.Destination.Port() >= ephemeral
}

func (e *entry) turn() {
	e.Source, e.Destination = e.Destination, e.Source
	e.Packets, e.Answers = e.Answers, e.Packets
	e.Octets, e.AnswerBytes = e.AnswerBytes, e.Octets
}

func (e *entry) observe() {
	e.Observed = AtDestination
	if e.Source.Local {
		e.Observed = AtSource
	}
}

// sends says whether a record is of the direction from the source.
func (e *entry) sends(r *Record) bool {
	return !r.Source.IsValid() || r.Source == netip.AddrPortFrom(e.Source.Address, e.Source.Port)
}

// add counts a record.
func (e *entry) add(r *Record) {
	if !e.begun && r.Protocol == tcp && r.Flags&syn != 0 {
		if e.begun = true; e.sends(r) == (r.Flags&ack != 0) {
			e.turn()
			e.observe()
		}
	}
	if r.Dropped && r.Protocol != tcp && strings.HasPrefix(r.Reason, policy) && !e.sends(r) {
		e.turn() // policies let answers pass: who sent this began
		e.observe()
	}
	packets, octets := r.Packets*uint64(r.Sampling), r.Octets*uint64(r.Sampling)
	e.Sampling = max(e.Sampling, r.Sampling)
	switch {
	case r.Dropped:
		e.Drops += packets
	case e.sends(r):
		e.Packets, e.Octets = e.Packets+packets, e.Octets+octets
	default:
		e.Answers, e.AnswerBytes = e.Answers+packets, e.AnswerBytes+octets
	}
	e.measure(r)
}

// measure follows TCP.
func (e *entry) measure(r *Record) {
	if r.Protocol != tcp || r.Dropped {
		return
	}
	switch r.Flags & (syn | ack) {
	case syn:
		e.syn = r.Time
	case syn | ack:
		if e.Handshake == 0 && !e.syn.IsZero() {
			e.Handshake = max(1, uint64(r.Time.Sub(e.syn).Microseconds()))
		}
	}
	e.Closed = e.Closed || r.Flags&(fin|rst) != 0
}

// take notes how the packet fared.
func (e *entry) take(r *Record) {
	if r.Dropped {
		e.Verdict, e.Reason = Dropped, r.Reason
		if strings.HasPrefix(r.Reason, policy) {
			e.ingress, e.refused = r.Reason == "policy_ingress", r.Source
		}
		return
	}
	if r.Where == FromKernel && e.Verdict == Dropped {
		return
	}
	e.Verdict = Allowed
	if e.Class = cmp.Or(r.Class, e.Class); !e.sends(r) {
		e.Path = cmp.Or(e.Path, pathOfAnswer(r))
		return
	}
	switch {
	case r.Policy != "":
		e.Path, e.SRPolicy, e.SegmentList = PathPolicy, r.Policy, r.List+1
	case r.Where == FromTunnel:
		e.Path = PathTunnel
	case r.Reason == "forwarded":
		e.Path = PathLocal
	case e.Path == "":
		e.Path = PathKernel
	}
}

// pathOfAnswer is how the packets came to which this is the answer.
func pathOfAnswer(r *Record) string {
	switch {
	case r.Where != FromPod || r.Policy != "":
		return PathTunnel
	case r.Reason == "forwarded":
		return PathLocal
	}
	return PathKernel
}

// evict makes room: the pod with the most flows loses its oldest one.
func (t *Table) evict() {
	var most *list.List
	for _, q := range t.payers {
		if most == nil || q.Len() > most.Len() {
			most = q
		}
	}
	if most != nil && most.Len() > 0 {
		t.remove(most.Front().Value.(*entry))
	}
}

// forget has the flow's keys be anybody's.
func (e *entry) forget(t *Table) {
	for _, k := range e.keys {
		if t.flows[k] == e {
			delete(t.flows, k)
		}
	}
	if t.waiting[e.client] == e {
		delete(t.waiting, e.client)
	}
}

func (t *Table) remove(e *entry) {
	t.settle(e)
	e.forget(t)
	delete(t.byID, e.ID)
	queue := t.payers[e.payer]
	if queue.Remove(e.at); queue.Len() == 0 {
		delete(t.payers, e.payer)
	}
	t.count--
}

// Settle counts what happened by workload, and forgets flows that are old.
func (t *Table) Settle(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.byID {
		if now.Sub(e.Last) > t.limits.Keep {
			t.remove(e)
		} else if now.Sub(e.First) > joinWithin {
			t.settle(e)
		}
	}
}

// List is of flows that changed after a number, the oldest first, and the number for the next
// time. since: the time of the last packet is not before this.
func (t *Table) List(f Filter, after uint64, since time.Time) (out []Flow, now uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.byID {
		if e.changed > after && !e.Last.Before(since) && f.Matches(&e.Flow) {
			v := e.Flow
			v.NetworkPolicies = slices.Clone(e.NetworkPolicies)
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b Flow) int { return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.ID, b.ID)) })
	return out, t.change
}

// Drop is a flow that NetworkPolicies drop, with the ends as its last dropped packet had them:
// Ingress says whose policies.
type Drop struct {
	ID      uint64
	Flow    Flow
	Ingress bool
}

// Unexplained are at most n flows that policies drop and nobody was asked about, each once.
func (t *Table) Unexplained(n int) (out []Drop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.byID {
		if len(out) < n && !e.asked && e.Verdict == Dropped && strings.HasPrefix(e.Reason, "policy_") {
			e.asked = true
			d := Drop{e.ID, e.Flow, e.ingress}
			if e.refused == netip.AddrPortFrom(e.Destination.Address, e.Destination.Port) { // an answer, or who began is not known
				d.Flow.Source, d.Flow.Destination = e.Destination, e.Source
			}
			out = append(out, d)
		}
	}
	return out
}

// Explain notes the NetworkPolicies that drop a flow.
func (t *Table) Explain(id uint64, policies []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[id]; e != nil {
		t.change++
		e.NetworkPolicies, e.changed = policies, t.change
	}
}

// Len is how many flows there are.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}
