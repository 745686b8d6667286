package pfcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
)

// claim is a sender's wish to be the SMF of a Node ID. UDP sources can be
// forged: what would take something from an association waits for answers to
// heartbeats of ours (docs/adr/0017-who-speaks-for-an-smf.md).
type claim struct {
	peer      setupIEs
	from      netip.Addr
	silent    *association // of the Node ID elsewhere, which did not answer
	confirmed bool         // from has answered with the Recovery Time Stamp of peer
	// done is called once in the node's goroutine; nil: the claim holds now.
	done func(why *wire.Refusal)
}

// decide calls c.done, now or when those concerned were asked. It begins again
// after each answer, because associations may have changed meanwhile.
func (n *node) decide(c *claim) {
	if why := n.admissible(c); why != nil {
		c.done(why)
		return
	}
	old := n.s.peers.Load().byNode[c.peer.node]
	switch {
	case old != nil && !old.has(c.from) && old != c.silent:
		n.ask(old.addrs[0], func(_ uint32, err error) {
			if !errors.Is(err, ErrNoAnswer) {
				n.s.counters.unauthorised.Add(1)
				c.done(rejected("node ID %q belongs to the SMF at %v, which answers (%v): stop that SMF, or release its association",
					c.peer.node, old.addrs[0], err))
				return
			}
			c.silent = old
			n.decide(c)
		})
	case !c.confirmed && n.takes(c):
		n.ask(c.from, func(stamp uint32, err error) {
			if why := n.unconfirmed(c, stamp, err); why != nil {
				c.done(why)
				return
			}
			c.confirmed = true
			n.decide(c)
		})
	default:
		c.done(nil)
	}
}

// admissible returns why nobody may make the claim, whoever answers; or nil.
func (n *node) admissible(c *claim) *wire.Refusal {
	if id, err := netip.ParseAddr(c.peer.node); err == nil && id.Unmap() != c.from {
		n.s.counters.unauthorised.Add(1)
		return rejected("node ID %v is an address, but not the sender's (%v): let the SMF send from it, or use a name", id, c.from)
	}
	ps := n.s.peers.Load()
	for _, addr := range c.peer.others {
		foreign := slices.ContainsFunc(ps.at(addr), func(a *association) bool { return a.node != c.peer.node })
		if foreign || !n.s.smfs.Load().allows(addr) {
			n.s.counters.unauthorised.Add(1)
			return &wire.Refusal{
				Cause: ie.CauseMandatoryIEIncorrect, Offending: ie.AlternativeSMFIPAddress,
				Err: fmt.Errorf("alternative SMF address %v is not in smfs, or belongs to another association", addr),
			}
		}
	}
	if ps.byNode[c.peer.node] == nil && len(ps.byNode) >= maxAssociations && ps.deserted() == nil {
		return &wire.Refusal{Cause: ie.CauseNoResourcesAvailable}
	}
	return nil
}

// takes says whether a claim would end or move an association, or remove
// sessions.
func (n *node) takes(c *claim) bool {
	ps := n.s.peers.Load()
	if len(c.restarted(ps)) > 0 {
		return true
	}
	old := ps.byNode[c.peer.node]
	if old == nil {
		return false
	}
	all := c.peer.retain && len(c.peer.retainFrom) == 0
	return old.recovery != c.peer.recovery || old.addrs[0] != c.from || old.sessions.Load() > 0 && !all
}

// restarted returns the associations of other Node IDs that end with the claim.
// An address is one PFCP entity, with one Recovery Time Stamp: what it had under
// another Node ID and stamp was lost with its restart.
func (c *claim) restarted(ps *peers) (list []*association) {
	for _, a := range ps.at(c.from) {
		if a.node != c.peer.node && a.recovery != c.peer.recovery && a.addrs[0] == c.from {
			list = append(list, a)
		}
	}
	return list
}

// unconfirmed returns why the answer to our heartbeat does not confirm a claim,
// or nil.
func (n *node) unconfirmed(c *claim, stamp uint32, err error) *wire.Refusal {
	if err != nil {
		return rejected("no answer to our heartbeat (%w): let UDP port %d of the SMF answer", err, Port)
	}
	if stamp != c.peer.recovery {
		n.s.counters.unconfirmed.Add(1)
		return rejected("the SMF answers our heartbeat with another Recovery Time Stamp: somebody else may use its address")
	}
	return nil
}

func rejected(format string, args ...any) *wire.Refusal {
	return &wire.Refusal{Cause: ie.CauseRequestRejected, Err: fmt.Errorf(format, args...)}
}

// question is a Heartbeat Request that asks which Recovery Time Stamp an SMF has.
type question struct {
	request *outgoing
	sent    time.Time
	then    []func(stamp uint32, err error)
}

const (
	// maxAskers is how many may wait for one answer. More get ErrBusy.
	maxAskers = 256
	// askAgain is after how long the next asker makes us repeat a question: an
	// SMF that has just started must not wait for T1.
	askAgain = 100 * time.Millisecond
)

// ask sends a Heartbeat Request to an SMF, one at a time, and calls then in the
// node's goroutine: with the Recovery Time Stamp, or with ErrNoAnswer after all
// repetitions, or with ErrBusy.
func (n *node) ask(addr netip.Addr, then func(stamp uint32, err error)) {
	if q := n.asking[addr]; q != nil {
		if len(q.then) >= maxAskers {
			then(0, ErrBusy)
			return
		}
		q.then = append(q.then, then)
		if time.Since(q.sent) >= askAgain {
			q.sent = time.Now()
			n.s.requests.nudge(q.request)
		}
		return
	}
	q := &question{sent: time.Now(), then: []func(uint32, error){then}}
	q.request = n.newHeartbeat(addr, func(stamp uint32, err error) {
		delete(n.asking, addr)
		for _, then := range q.then {
			then(stamp, err)
		}
	})
	n.asking[addr] = q
	n.s.requests.send(q.request)
}

// newHeartbeat returns a Heartbeat Request whose answer goes to done, in the
// node's goroutine.
func (n *node) newHeartbeat(to netip.Addr, done func(stamp uint32, err error)) *outgoing {
	return &outgoing{
		msgType: message.MsgTypeHeartbeatRequest, to: netip.AddrPortFrom(to, Port), secret: true,
		ies: []*ie.IE{ie.NewUint32IE(ie.RecoveryTimeStamp, n.s.stamps.Load().to(to))},
		done: func(body wire.IEs, err error) {
			stamp, why := readStamp(body)
			if err == nil && why != nil {
				err = why
			}
			n.hand(func() { done(stamp, err) })
		},
	}
}

// readStamp reads the Recovery Time Stamp of a heartbeat.
func readStamp(body wire.IEs) (stamp uint32, err error) {
	var d wire.Decoder
	found := false
	for i := range d.Each(body) {
		if i.Type() == ie.RecoveryTimeStamp && !found {
			found, stamp = true, i.U32()
		}
	}
	if d.Err != nil {
		return 0, d.Err
	}
	if !found {
		return 0, wire.Missing(ie.RecoveryTimeStamp)
	}
	return stamp, nil
}
