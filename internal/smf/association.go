package smf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Association is what the UPF says of itself.
type Association struct {
	NodeID   string    `json:"node_id"`
	Started  time.Time `json:"recovery_time_stamp"`
	Features []string  `json:"features"` // UP Function Features, as TS 29.244 section 8.2.25 names them
}

// Associate sets the association up. Heartbeats go on by themselves from here
// on.
func (c *Client) Associate(ctx context.Context) (Association, error) {
	m := message.NewAssociationSetupRequest(0,
		ie.NewNodeIDHeuristic(c.options.NodeID), ie.NewRecoveryTimeStamp(c.stamp()), ie.NewCPFunctionFeatures(0))
	ies, err := c.node(ctx, "association setup", m)
	if err != nil {
		return Association{}, err
	}
	return c.setUp(ies)
}

// setUp takes in the answer that accepts an association.
func (c *Client) setUp(ies []*ie.IE) (Association, error) {
	a, err := readAssociation(ies)
	if err != nil {
		return a, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.associated, c.upfStarted = true, a.Started
	return a, nil
}

// stamp is the Recovery Time Stamp.
func (c *Client) stamp() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.options.Started
}

func readAssociation(ies []*ie.IE) (a Association, err error) {
	for _, i := range ies {
		var wrong error
		switch i.Type {
		case ie.NodeID:
			a.NodeID, wrong = i.NodeID()
		case ie.RecoveryTimeStamp:
			a.Started, wrong = i.RecoveryTimeStamp()
			a.Started = a.Started.UTC()
		case ie.UPFunctionFeatures:
			a.Features = wire.Names(i.Payload, wire.UPFeatures)
		}
		if wrong != nil {
			return a, badAnswer("association setup", "has an unreadable %s: %v", wire.IEName(i.Type), wrong)
		}
	}
	if a.NodeID == "" || a.Started.IsZero() {
		return a, badAnswer("association setup", "has no Node ID, or no Recovery Time Stamp")
	}
	return a, nil
}

// Release ends the association: the UPF's sessions of it go.
func (c *Client) Release(ctx context.Context) error {
	_, err := c.node(ctx, "association release", message.NewAssociationReleaseRequest(0, ie.NewNodeIDHeuristic(c.options.NodeID)))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.associated = false
	for _, g := range c.groups {
		for i := range g.state {
			g.state[i].live = false
		}
	}
	return nil
}

// node sends a request that is about no session, and returns the IEs of the
// answer that accepts it.
func (c *Client) node(ctx context.Context, procedure string, m message.Message) ([]*ie.IE, error) {
	b, err := marshal(m)
	if err != nil {
		return nil, err
	}
	h, err := c.request(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", procedure, err)
	}
	var a wire.Answer
	a.Read(h.Payload)
	if err := refusal(procedure, &a); err != nil {
		return nil, err
	}
	return parse(h.Payload)
}

// parse reads IEs by go-pfcp, which some input may bring to panic: an
// instrument says so and lives on.
func parse(b []byte) (ies []*ie.IE, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("IEs that go-pfcp cannot read: %v", r)
		}
	}()
	return ie.ParseMultiIEs(b)
}

// heartbeat asks whether the UPF lives, and is still the one that it was.
func (c *Client) heartbeat(ctx context.Context) {
	c.mu.Lock()
	associated := c.associated
	c.mu.Unlock()
	if !associated {
		return
	}
	b, _ := marshal(message.NewHeartbeatRequest(0, ie.NewRecoveryTimeStamp(c.stamp()), nil)) // nothing in it can be wrong
	switch h, err := c.request(ctx, b); {
	case err == nil:
		c.sawStart(h.Payload)
	case errors.Is(err, ErrUnanswered):
		c.deliver(Report{Kind: ReportPathLost})
	}
}

// sawStart reports a UPF that is not the one that the association was made
// with: its sessions are gone (TS 23.527).
func (c *Client) sawStart(payload []byte) {
	ies, _ := parse(payload)
	i := slices.IndexFunc(ies, func(i *ie.IE) bool { return i.Type == ie.RecoveryTimeStamp })
	if i < 0 {
		return
	}
	t, err := ies[i].RecoveryTimeStamp()
	if err != nil {
		return
	}
	c.mu.Lock()
	restarted := c.associated && !t.Equal(c.upfStarted)
	c.associated = c.associated && !restarted
	c.mu.Unlock()
	if restarted {
		c.deliver(Report{Kind: ReportRestarted})
	}
}

// askAgain is how long an answer to a heartbeat is waited for by Await.
const askAgain = time.Millisecond

func marshal(m message.Message) ([]byte, error) {
	b := make([]byte, m.MarshalLen())
	return b, m.MarshalTo(b)
}

// Await asks a UPF for a heartbeat, as a node that is not associated with it,
// until it answers or ctx ends: every millisecond, so that it is known when it
// began to answer.
func Await(ctx context.Context, upf netip.AddrPort) error {
	request, err := marshal(message.NewHeartbeatRequest(0, ie.NewRecoveryTimeStamp(time.Now()), nil))
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", upf.String())
	if err != nil {
		return fmt.Errorf("ask %s for a heartbeat: %w", upf, err)
	}
	defer conn.Close()
	answer := make([]byte, 1500)
	var next time.Time
	for ; ctx.Err() == nil; time.Sleep(time.Until(next)) {
		next = time.Now().Add(askAgain)
		if _, err := conn.Write(request); err != nil {
			continue // nobody listens there yet
		}
		if err := conn.SetReadDeadline(next); err != nil {
			return fmt.Errorf("ask %s for a heartbeat: %w", upf, err)
		}
		if n, err := conn.Read(answer); err == nil && n > 1 && answer[1] == message.MsgTypeHeartbeatResponse {
			return nil
		}
	}
	return fmt.Errorf("%s answers no heartbeat: %w", upf, ctx.Err())
}
