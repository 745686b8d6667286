package smf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Group is the sessions made from one Spec.
type Group struct {
	c       *Client
	spec    Spec
	base    uint64 // CP SEID of session 0
	encoder encoder
	// Guarded by the client:
	state []state
	woken []int // sessions that a downlink data report came for
}

// state is one session, small enough to have a million.
type state struct {
	upSEID         uint64
	access, core   fteid // the UPF's
	peer, next     fteid // the gNB's, and the next UPF's
	ue4            [4]byte
	ue6            [8]byte
	live, reported bool
}

// fteid is an F-TEID. Its address is the number of a place.
type fteid struct{ place, teid uint32 }

// place is the address of an F-TEID; few are shared by all sessions.
type place struct{ v4, v6 netip.Addr }

// fteid returns an F-TEID at a place, which gets a number. The client is locked.
func (c *Client) fteid(p place, teid uint32) fteid {
	n, ok := c.placeNumbers[p]
	if !ok {
		n = uint32(len(c.places))
		c.places = append(c.places, p)
		c.placeNumbers[p] = n
	}
	return fteid{n, teid}
}

// fteidOf is a peer's: it has one address.
func (c *Client) fteidOf(e endpoint) fteid {
	if e.addr.Is4() {
		return c.fteid(place{v4: e.addr}, e.teid)
	}
	return c.fteid(place{v6: e.addr}, e.teid)
}

func (c *Client) endpoint(f fteid) endpoint {
	p := c.places[f.place]
	return endpoint{cmp.Or(p.v4, p.v6), f.teid}
}

// Add makes a group; nothing is sent yet.
func (c *Client) Add(spec Spec) (*Group, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.add(spec)
}

func (c *Client) add(spec Spec) (*Group, error) {
	if c.player != nil {
		return nil, errBoth
	}
	if err := spec.Complete(c.options.Dialect); err != nil {
		return nil, err
	}
	for _, g := range c.groups {
		if g.spec.Name == spec.Name {
			return nil, fmt.Errorf("there are two session groups %s: give one another name", spec.Name)
		}
	}
	g := &Group{c: c, spec: spec, base: c.nextSEID, state: make([]state, spec.Count)}
	c.nextSEID += uint64(spec.Count)
	g.encoder = encoder{
		spec: &g.spec, dialect: c.options.Dialect, node: c.options.NodeID, addr: c.options.Local.Addr(), rules: rulesOf(c.options.Dialect),
	}
	for i := range g.state {
		g.begin(i)
	}
	c.groups = append(c.groups, g)
	return g, nil
}

// begin is a session as it is before it is established.
func (g *Group) begin(i int) {
	s := &g.state[i]
	*s = state{ue4: g.spec.ue4(i)}
	ue6 := g.spec.ue6(i)
	copy(s.ue6[:], ue6[:8])
	s.peer, s.next = g.c.fteidOf(g.spec.Access.at(i)), g.c.fteidOf(g.spec.Core.at(i))
	if l := g.spec.Local; l != nil {
		s.access = g.c.fteidOf(endpoint{l.Address, l.AccessTEID + uint32(i)})
		if l.CoreTEID != 0 {
			s.core = g.c.fteidOf(endpoint{l.Address, l.CoreTEID + uint32(i)})
		}
	}
}

// find is the session of a CP SEID. The client is locked.
func (c *Client) find(seid uint64) (*Group, int) {
	n := sort.Search(len(c.groups), func(i int) bool { return c.groups[i].base > seid }) - 1
	if n < 0 || seid-c.groups[n].base >= uint64(len(c.groups[n].state)) {
		return nil, 0
	}
	return c.groups[n], int(seid - c.groups[n].base)
}

// Groups are all that were added, in that order.
func (c *Client) Groups() []*Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.groups)
}

// Count is how many sessions the group has, established or not.
func (g *Group) Count() int { return len(g.state) }

// identity is what session i's messages say. The client is locked.
func (g *Group) identity(i int) identity {
	s := &g.state[i]
	id := identity{
		cpSEID: g.base + uint64(i), ue4: s.ue4, localAccess: s.access.teid, localCore: s.core.teid,
		access: g.c.endpoint(s.peer), core: g.c.endpoint(s.next),
	}
	if g.spec.UE6.IsValid() {
		id.ue6 = g.spec.UE6.Addr().As16() // the interface identifier
		copy(id.ue6[:8], s.ue6[:])
	}
	return id
}

// Info is what is known of a session.
type Info struct {
	Group  string     `json:"group"`
	Index  int        `json:"session"`
	Live   bool       `json:"established"`
	CPSEID uint64     `json:"cp_seid,string"`
	UPSEID uint64     `json:"up_seid,string,omitempty"`
	UE4    netip.Addr `json:"ue4,omitzero"`
	UE6    netip.Addr `json:"ue6,omitzero"`
	// Access and Core are the UPF's F-TEIDs; Peer and Next those of the gNB and
	// of the next UPF.
	Access *Created `json:"access,omitempty"`
	Core   *Created `json:"core,omitempty"`
	Peer   *Created `json:"peer,omitempty"`
	Next   *Created `json:"next,omitempty"`
	// CPFunction is the UPF's F-TEID for the SMF, of a captured session.
	CPFunction *Created `json:"cp_function,omitempty"`
}

// Info is of session i.
func (g *Group) Info(i int) Info {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	return g.info(i)
}

func (g *Group) info(i int) Info {
	s := &g.state[i]
	info := Info{Group: g.spec.Name, Index: i, Live: s.live, CPSEID: g.base + uint64(i), UPSEID: s.upSEID}
	if s.ue4 != [4]byte{} {
		info.UE4 = netip.AddrFrom4(s.ue4)
	}
	if s.ue6 != [8]byte{} {
		var a [16]byte
		copy(a[:], s.ue6[:])
		if g.spec.UE6.IsValid() {
			a = g.identity(i).ue6
		}
		info.UE6 = netip.AddrFrom16(a)
	}
	at := func(f fteid) *Created {
		if f.teid == 0 {
			return nil
		}
		return &Created{TEID: f.teid, Addr4: g.c.places[f.place].v4, Addr6: g.c.places[f.place].v6}
	}
	info.Access, info.Core, info.Peer, info.Next = at(s.access), at(s.core), at(s.peer), at(s.next)
	return info
}

// Establish sends Session Establishment Requests for sessions that are not
// established.
func (g *Group) Establish(ctx context.Context, p Pace) (Result, error) {
	return g.run(ctx, p, procedure{
		name: "establish", kind: message.MsgTypeSessionEstablishmentRequest, build: (*encoder).establish, fresh: true,
		accept: func(s *state, _ int, a *wire.Answer) error {
			if a.SEID == 0 {
				return badAnswer("establish", "has no F-SEID")
			}
			s.upSEID, s.live = a.SEID, true
			for _, c := range a.Created {
				g.created(s, &c)
			}
			if s.access.teid == 0 || g.spec.Role == Intermediate && s.core.teid == 0 {
				return badAnswer("establish", "has no F-TEID for a PDR that the UPF must choose one for")
			}
			if g.spec.ChooseUE != "" && s.ue4 == [4]byte{} && s.ue6 == [8]byte{} {
				return badAnswer("establish", "has no UE address, which the UPF must choose")
			}
			return nil
		},
	})
}

// created notes what the UPF chose for a PDR of ours.
func (g *Group) created(s *state, c *wire.CreatedPDR) {
	if c.TEID != 0 {
		at := g.c.fteid(place{c.Addr4, c.Addr6}, c.TEID)
		switch c.ID {
		case g.encoder.up:
			s.access = at
		case g.encoder.down:
			s.core = at
		}
	}
	if c.UE4.IsValid() {
		s.ue4 = c.UE4.As4()
	}
	if c.UE6.IsValid() {
		a := c.UE6.As16()
		copy(s.ue6[:], a[:8])
	}
}

// run does a procedure for sessions.
func (g *Group) run(ctx context.Context, p Pace, what procedure) (Result, error) {
	w, err := g.work(p, what)
	if err != nil {
		return Result{}, err
	}
	return w.run(ctx, w.all())
}

// Forward sends the UPF the gNB's tunnel of each session: the second half of an
// establishment.
func (g *Group) Forward(ctx context.Context, p Pace) (Result, error) {
	return g.run(ctx, p, g.forwarding("forward", nil, (*encoder).forward))
}

// Handover moves sessions to other tunnels: session i to TEID + i. With
// endMarker the UPF is asked to send End Markers on the old ones (SNDEM).
func (g *Group) Handover(ctx context.Context, p Pace, to Tunnel, endMarker bool) (Result, error) {
	return g.run(ctx, p, g.forwarding("handover", &to, func(e *encoder) []*ie.IE { return e.handover(endMarker) }))
}

// forwarding sends downlink packets to other tunnels, or, if to is nil, to those
// that the sessions have.
func (g *Group) forwarding(name string, to *Tunnel, build func(*encoder) []*ie.IE) procedure {
	invalid := asError(faults("", name, to.check("access")...))
	if to == nil && g.spec.Access == nil {
		invalid = fmt.Errorf("%s: where to? session group %s has no access tunnel: give one", name, g.spec.Name)
	}
	return procedure{
		name: name, invalid: invalid, build: build, access: to,
		accept: func(s *state, _ int, _ *wire.Answer) error { s.reported = false; return nil },
	}
}

// Idle lets the UPF buffer downlink packets and report the first (BUFF, NOCP).
func (g *Group) Idle(ctx context.Context, p Pace) (Result, error) {
	return g.run(ctx, p, procedure{
		name: "idle", build: (*encoder).idle, prepare: func(s *state) { s.reported = false },
	})
}

// Page waits for each session's downlink data report, and then lets packets go
// to where they went before, or to another tunnel. It ends with ctx.
func (g *Group) Page(ctx context.Context, p Pace, to *Tunnel) (Result, error) {
	w, err := g.work(p, g.forwarding("page", to, (*encoder).forward))
	if err != nil {
		return Result{}, err
	}
	missing := len(w.all())
	for missing > 0 {
		woken, err := g.wokenIn(ctx, p)
		if err != nil {
			result := w.result()
			result.Requests += missing // not sent
			if errors.Is(err, context.DeadlineExceeded) {
				err = errors.New("none came in time")
			}
			result.fail(fmt.Errorf("page: no downlink data report for %d of %d sessions: %w", missing, len(w.all()), err), missing)
			return result, nil
		}
		missing -= len(woken)
		if result, err := w.run(ctx, woken); err != nil {
			return result, err
		}
	}
	return w.result(), nil
}

// wokenIn waits for sessions that were reported, and returns each of them once.
func (g *Group) wokenIn(ctx context.Context, p Pace) ([]int, error) {
	stop := g.c.wakeWith(ctx)
	defer stop()
	first, end := p.span(len(g.state))
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	for {
		var found, others []int
		for _, i := range g.woken {
			switch {
			case i < first || i >= end:
				others = append(others, i)
			case g.state[i].reported && g.state[i].live:
				g.state[i].reported = false
				found = append(found, i)
			}
		}
		g.woken = others
		if len(found) > 0 {
			return found, nil
		}
		if err := errors.Join(ctx.Err(), g.c.broken); err != nil {
			return nil, err
		}
		g.c.answered.Wait()
	}
}

// Query asks for the usage of each session.
func (g *Group) Query(ctx context.Context, p Pace) (Result, error) {
	var invalid error
	if g.spec.URR == nil {
		invalid = fmt.Errorf("query: session group %s has no urr", g.spec.Name)
	}
	return g.run(ctx, p, procedure{
		name: "query", invalid: invalid, build: func(e *encoder) []*ie.IE { return e.modification(e.query()...) }, keep: true,
	})
}

// Modify changes sessions.
func (g *Group) Modify(ctx context.Context, p Pace, change Change) (Result, error) {
	return g.run(ctx, p, procedure{
		name: "modify", invalid: change.check(&g.spec), build: func(e *encoder) []*ie.IE { return e.change(&change) }, core: change.Core,
	})
}

// Delete ends sessions, and returns their last usage.
func (g *Group) Delete(ctx context.Context, p Pace) (Result, error) {
	return g.delete(ctx, p, g.spec.URR != nil)
}

func (g *Group) delete(ctx context.Context, p Pace, keep bool) (Result, error) {
	return g.run(ctx, p, procedure{
		name: "delete", kind: message.MsgTypeSessionDeletionRequest, build: func(*encoder) []*ie.IE { return nil }, keep: keep,
		accept: func(_ *state, i int, _ *wire.Answer) error { g.begin(i); return nil },
	})
}
