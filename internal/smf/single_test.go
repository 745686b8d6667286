package smf

import (
	"context"
	"fmt"
	"slices"
)

// Session is one of a group's: what tests say of one session.
type Session struct {
	g *Group
	i int
}

// Session is the group's i-th, from 0.
func (g *Group) Session(i int) Session { return Session{g, i} }

// Info is what is known of the session.
func (s Session) Info() Info { return s.g.Info(s.i) }

func (s Session) pace() Pace { return Pace{First: s.i, Count: 1} }

// one is the error of a result, and the usage in it.
func one(r Result, err error) ([]Usage, error) {
	if err == nil && r.Requests == 0 {
		err = fmt.Errorf("%s: the session is not established, or was already", r.Procedure)
	}
	if err == nil {
		err = r.Err()
	}
	if len(r.Usage) == 0 {
		return nil, err
	}
	return r.Usage[0].Reports, err
}

// Establish establishes one session. If spec has a gNB's tunnel, it then sends the
// UPF that tunnel. If Establish fails, no session is left.
func (c *Client) Establish(ctx context.Context, spec Spec) (Session, error) {
	spec.Count = 1
	if spec.Name == "" {
		c.mu.Lock()
		spec.Name = fmt.Sprintf("session-%d", c.nextSEID)
		c.mu.Unlock()
	}
	g, err := c.Add(spec)
	if err != nil {
		return Session{}, err
	}
	s := g.Session(0)
	if _, err = one(g.Establish(ctx, s.pace())); err == nil && spec.Access != nil {
		_, err = one(g.Forward(ctx, s.pace()))
	}
	if err != nil && !s.Info().Live {
		c.remove(g)
	}
	return s, err
}

func (c *Client) remove(g *Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups = slices.DeleteFunc(c.groups, func(other *Group) bool { return other == g })
}

// Handover moves the session to another tunnel; see Group.Handover.
func (c *Client) Handover(ctx context.Context, s Session, to Tunnel, endMarker bool) error {
	to.TEID -= uint32(s.i) // a group's session i has TEID + i
	_, err := one(s.g.Handover(ctx, s.pace(), to, endMarker))
	return err
}

// Idle lets the UPF buffer the session's downlink packets.
func (c *Client) Idle(ctx context.Context, s Session) error {
	_, err := one(s.g.Idle(ctx, s.pace()))
	return err
}

// Page waits for the session's downlink data report, and lets packets go again.
func (c *Client) Page(ctx context.Context, s Session) error {
	_, err := one(s.g.Page(ctx, s.pace(), nil))
	return err
}

// Query asks for the session's usage.
func (c *Client) Query(ctx context.Context, s Session) ([]Usage, error) {
	return one(s.g.Query(ctx, s.pace()))
}

// Modify changes the session.
func (c *Client) Modify(ctx context.Context, s Session, change Change) error {
	_, err := one(s.g.Modify(ctx, s.pace(), change))
	return err
}

// Delete ends the session, and returns its last usage.
func (c *Client) Delete(ctx context.Context, s Session) ([]Usage, error) {
	return one(s.g.Delete(ctx, s.pace()))
}

// Live is how many sessions are established.
func (g *Group) Live() int {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	n := 0
	for i := range g.state {
		if g.state[i].live {
			n++
		}
	}
	return n
}
