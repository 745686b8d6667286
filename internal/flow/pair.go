package flow

import "cmp"

// Pair is whom flows are counted by. Namespaces are empty of what is no pod.
type Pair struct {
	SourceNamespace, Source           string
	DestinationNamespace, Destination string
	Verdict, Observed                 string
}

// What ends are, that are no pods of a workload.
const (
	WorkloadNode    = "node"
	WorkloadOutside = "outside"
	WorkloadUnknown = "unknown" // a pod whose owner is not known
	WorkloadOther   = "other"   // of more pairs than there is room for
)

// Count is what flows of a pair were. Packets that were dropped are counted under that verdict.
type Count struct {
	Flows, Packets, Octets uint64
	Handshakes             uint64
	HandshakeMicroseconds  uint64
}

func (c *Count) add(o Count) {
	c.Flows += o.Flows
	c.Packets += o.Packets
	c.Octets += o.Octets
	c.Handshakes += o.Handshakes
	c.HandshakeMicroseconds += o.HandshakeMicroseconds
}

func workload(e End) string {
	switch {
	case e.Pod != "":
		return cmp.Or(e.Workload, WorkloadUnknown)
	case e.Node != "":
		return cmp.Or(e.Workload, WorkloadNode)
	}
	return WorkloadOutside
}

// settle counts what of a flow is not counted yet. mu is held.
func (t *Table) settle(e *entry) {
	if e.Source.Pod == "" && e.Source.Address.IsValid() {
		e.Source = t.again(e.Source, e.Tenant)
	}
	if e.Destination.Pod == "" && e.Destination.Address.IsValid() {
		e.Destination = t.again(e.Destination, e.Tenant)
	}
	pair := Pair{e.Source.Namespace, workload(e.Source), e.Destination.Namespace, workload(e.Destination), Allowed, e.Observed}
	now := Count{Packets: e.Packets + e.Answers, Octets: e.Octets + e.AnswerBytes}
	if now.Packets > 0 {
		now.Flows = 1
	}
	if e.Handshake > 0 {
		now.Handshakes, now.HandshakeMicroseconds = 1, e.Handshake
	}
	t.pair(pair, now, e.counted[0])
	dropped := Count{Packets: e.Drops}
	if e.Drops > 0 {
		dropped.Flows = 1
	}
	pair.Verdict = Dropped
	t.pair(pair, dropped, e.counted[1])
	e.counted = [2]Count{now, dropped}
}

// again asks for an end that was nobody's: a pod's first packets come before the Kubernetes
// API reports the pod.
func (t *Table) again(e End, tenant uint8) End {
	to := t.who.Who(tenant, e.Address, 0)
	to.Address, to.Port, to.Local = e.Address, e.Port, to.Local || e.Local
	return to
}

// pair adds what a flow has now, less what is counted.
func (t *Table) pair(p Pair, now, counted Count) {
	if now == counted {
		return
	}
	c := t.pairs[p]
	if c == nil && len(t.pairs) >= t.limits.Pairs {
		p = Pair{Source: WorkloadOther, Destination: WorkloadOther, Verdict: p.Verdict, Observed: p.Observed}
		c = t.pairs[p]
	}
	if c == nil {
		c = &Count{}
		t.pairs[p] = c
	}
	c.add(Count{
		now.Flows - counted.Flows, now.Packets - counted.Packets, now.Octets - counted.Octets,
		now.Handshakes - counted.Handshakes, now.HandshakeMicroseconds - counted.HandshakeMicroseconds,
	})
}

// Pairs are the counts. Beyond Limits.Pairs all others are WorkloadOther: four more at most.
func (t *Table) Pairs() map[Pair]Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[Pair]Count, len(t.pairs))
	for p, c := range t.pairs {
		out[p] = *c
	}
	return out
}
