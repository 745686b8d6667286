package replay

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Client is the SMF that a Player plays through.
type Client interface {
	Ends() Ends
	// Exchange sends a request with a sequence number of its own, and returns the
	// answer.
	Exchange(ctx context.Context, request []byte) (wire.Header, error)
	// SetUp sets an association up, as the capture does not.
	SetUp(ctx context.Context) error
	// Restart sets the Recovery Time Stamp, before the request that says it.
	Restart(started time.Time)
}

// Player plays a conversation. Report may be called at any time, the other methods
// one after another.
type Player struct {
	settings Settings
	v        *Conversation
	t        *translation
	client   Client
	// Progress, if set, is called with how many exchanges of the capture are done,
	// before each.
	Progress func(done, of int)

	next       int // exchange
	associated bool
	began      time.Time // when the first request would have been sent

	mu     sync.Mutex
	states [][]state // of each session its copies
	result *Result
}

// New prepares a conversation to be played.
func New(settings Settings, client Client) (*Player, error) {
	if err := settings.Complete(); err != nil {
		return nil, err
	}
	c, err := Open(settings.Capture)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	v, err := c.Conversation(settings.From, settings.To)
	if err != nil {
		return nil, fmt.Errorf("capture: %s: %w", settings.Capture, err)
	}
	p := &Player{settings: settings, v: v, client: client, states: make([][]state, len(v.Sessions))}
	if p.t, err = newTranslation(v, &p.settings, client.Ends()); err != nil {
		return nil, fmt.Errorf("capture: %s: %w", settings.Capture, err)
	}
	for i := range p.states {
		p.states[i] = make([]state, p.settings.Times)
	}
	return p, nil
}

// Conversation is the one that is played.
func (p *Player) Conversation() *Conversation { return p.v }

// Result is what became of a part of a conversation.
type Result struct {
	// Frame of the capture that was played last, and whether it is the last of all.
	Frame    int  `json:"frame"`
	Complete bool `json:"complete"`
	// Requests that were sent, of all copies, and those that were left out: the
	// capture's UPF did not answer them, or their session was not established.
	Requests int `json:"requests"`
	LeftOut  int `json:"left_out"`
	// Reports of the capture that were waited for and came, of all copies.
	Reports int `json:"reports"`
	// Sessions that are established now.
	Sessions    int          `json:"sessions"`
	Differences []Difference `json:"differences"`
}

// Matter is how many differences matter to an SMF.
func (r *Result) Matter() (n int) {
	for _, d := range r.Differences {
		if d.Matters {
			n++
		}
	}
	return n
}

// Err is nil if nothing that matters differs.
func (r *Result) Err() error {
	for _, d := range r.Differences {
		if d.Matters {
			return &DifferError{r.Matter(), d}
		}
	}
	return nil
}

// DifferError says that the live UPF answers otherwise than the capture's.
type DifferError struct {
	Count int
	First Difference
}

// Error names the first difference.
func (e *DifferError) Error() string {
	return fmt.Sprintf("the UPF differs in %d points, first in frame %d, %s: %s: captured %s, live %s",
		e.Count, e.First.Frame, e.First.Message, e.First.IE, e.First.Captured, e.First.Live)
}

// Play plays on, up to a frame of the capture (0: to its end). It waits so long for
// each Session Report Request that the capture has (0: it waits for none). An error
// is one that ends the conversation; differences are in the result.
func (p *Player) Play(ctx context.Context, until int, wait time.Duration) (Result, error) {
	r := &Result{Differences: []Difference{}}
	p.mu.Lock()
	p.result = r
	p.mu.Unlock()
	var err error
	for ; err == nil && p.next < len(p.v.Exchanges); p.next++ {
		e := p.v.Exchanges[p.next]
		if until > 0 && e.Request.Frame > until {
			break
		}
		if p.Progress != nil {
			p.Progress(p.next, len(p.v.Exchanges))
		}
		r.Frame = e.Request.Frame
		if err = p.keepPace(ctx, e); err == nil {
			err = p.play(ctx, e, wait)
		}
		if err != nil {
			err = fmt.Errorf("frame %d, %s: %w", e.Request.Frame, kindNames[e.Request.Kind], err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Complete = err == nil && p.next == len(p.v.Exchanges)
	for i := range p.states {
		for k := range p.states[i] {
			if p.states[i][k].live {
				r.Sessions++
			}
		}
	}
	return *r, err
}

// keepPace waits until it is an exchange's time.
func (p *Player) keepPace(ctx context.Context, e *Exchange) error {
	if p.began.IsZero() || p.settings.Pace == Fast {
		p.began = time.Now().Add(-e.Request.Time.Sub(p.v.Exchanges[0].Request.Time))
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(p.began.Add(e.Request.Time.Sub(p.v.Exchanges[0].Request.Time)))):
		return nil
	}
}

// play plays one exchange, for each copy of its session.
func (p *Player) play(ctx context.Context, e *Exchange, wait time.Duration) error {
	switch {
	case e.FromUPF:
		if isReport(e) && e.Session >= 0 && wait > 0 {
			return p.await(ctx, e, wait)
		}
		return nil
	case e.Answer == nil, e.aboutSession() && e.Session < 0:
		p.result.LeftOut++
		return nil
	case !e.aboutSession():
		return p.node(ctx, e)
	}
	if !p.associated {
		if err := p.client.SetUp(ctx); err != nil {
			return err
		}
		p.associated = true
	}
	const window = 64
	copies, ctx := errgroup.WithContext(ctx)
	copies.SetLimit(window)
	for k := range p.states[e.Session] {
		copies.Go(func() error { return p.session(ctx, e, k) })
	}
	return copies.Wait()
}

// node sends a request that is about no session.
func (p *Player) node(ctx context.Context, e *Exchange) error {
	if stamp := find(e.Request.Payload, ie.RecoveryTimeStamp); len(stamp) == 4 {
		p.client.Restart(p.t.stamp(stamp))
	}
	live, err := p.client.Exchange(ctx, p.t.request(e.Request, 0, nil))
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Requests++
	p.differ(e, compareAnswer(e.Answer.Header, live, nil, 0))
	switch e.Request.Kind {
	case message.MsgTypeAssociationSetupRequest:
		p.associated = true
		p.forget() // unless its sessions are retained: then they are established again
	case message.MsgTypeAssociationReleaseRequest:
		p.associated = false
		p.forget()
	}
	return nil
}

// forget marks all sessions as gone.
func (p *Player) forget() {
	for i := range p.states {
		for k := range p.states[i] {
			p.states[i][k].live = false
		}
	}
}

// session sends a request that is about a copy of a session.
func (p *Player) session(ctx context.Context, e *Exchange, k int) error {
	s := &p.states[e.Session][k]
	p.mu.Lock()
	establish := e.Request.Kind == message.MsgTypeSessionEstablishmentRequest
	if !establish && s.up == 0 {
		p.result.LeftOut++
		p.mu.Unlock()
		return nil
	}
	if establish {
		s.begin(e.Answer)
	}
	request := p.t.request(e.Request, k, s)
	p.mu.Unlock()
	live, err := p.client.Exchange(ctx, request)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Requests++
	p.differ(e, compareAnswer(e.Answer.Header, live, s, p.t.seids.at(p.v.Sessions[e.Session], k)))
	if c := find(live.Payload, ie.Cause); len(c) == 1 && c[0] == ie.CauseRequestAccepted {
		h, _ := wire.ParseHeader(request)
		s.learn(h, live)
		s.live = e.Request.Kind != message.MsgTypeSessionDeletionRequest
	}
	return nil
}

// differ adds differences of one copy to those of the others.
func (p *Player) differ(e *Exchange, list []Difference) {
	for _, d := range list {
		d.Frame, d.Message, d.Session = e.Request.Frame, kindNames[e.Request.Kind], e.Session+1
		same := func(o Difference) bool {
			o.Copies = 0
			return o == d
		}
		i := slices.IndexFunc(p.result.Differences, same)
		if i < 0 {
			p.result.Differences = append(p.result.Differences, d)
			i = len(p.result.Differences) - 1
		}
		p.result.Differences[i].Copies++
	}
}

// await waits for the reports of all copies of a session, and compares them.
func (p *Player) await(ctx context.Context, e *Exchange, wait time.Duration) error {
	end := time.Now().Add(wait)
	for k := range p.states[e.Session] {
		s := &p.states[e.Session][k]
		if s.up == 0 {
			p.result.LeftOut++
			continue
		}
		live, err := p.report(ctx, s, end)
		if err != nil {
			return err
		}
		p.mu.Lock()
		if live == nil {
			p.differ(e, []Difference{{IE: "report", Captured: reported(e.Request.Payload), Live: fmt.Sprintf("none within %v", wait), Matters: true}})
		} else {
			p.result.Reports++
			p.differ(e, compareReport(e.Request.Header, *live))
		}
		p.mu.Unlock()
	}
	return nil
}

// report is the next report of a session; nil: none came.
func (p *Player) report(ctx context.Context, s *state, end time.Time) (*wire.Header, error) {
	for {
		p.mu.Lock()
		if s.awaited < len(s.reported) {
			defer p.mu.Unlock()
			s.awaited++
			return &s.reported[s.awaited-1], nil
		}
		p.mu.Unlock()
		if time.Now().After(end) {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Report takes in a Session Report Request of the live UPF, and returns the answer:
// the one that the capture's SMF gave to a report of the same session and type, or
// acceptance. It is nil where that SMF gave none. ok says that the session is one of
// the player's.
func (p *Player) Report(h wire.Header) (answer []byte, about Session, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	captured, k, ok := p.t.seids.find(h.SEID)
	i := slices.Index(p.v.Sessions, captured)
	if !ok || i < 0 || k >= len(p.states[i]) {
		return nil, about, false
	}
	s := &p.states[i][k]
	n := slices.IndexFunc(s.reported, func(o wire.Header) bool { return o.Sequence == h.Sequence })
	if n < 0 {
		n = len(s.reported)
		h.Payload = bytes.Clone(h.Payload)
		s.reported = append(s.reported, h)
	}
	answer = p.answer(i, k, n, h)
	if answer != nil {
		wire.SetSequence(answer, h.Sequence)
	}
	return answer, p.about(i, k), true
}

// answer is to the n-th report of a copy.
func (p *Player) answer(i, k, n int, h wire.Header) []byte {
	s, kind := &p.states[i][k], find(h.Payload, ie.ReportType)
	var answers []*Message
	for _, e := range p.v.Exchanges {
		if isReport(e) && e.Session == i && bytes.Equal(find(e.Request.Payload, ie.ReportType), kind) {
			answers = append(answers, e.Answer)
		}
	}
	if len(answers) == 0 {
		cause := ie.CauseRequestAccepted
		if !s.live {
			cause = ie.CauseSessionContextNotFound
		}
		m := message.NewSessionReportResponse(0, 0, s.up, h.Sequence, 0, ie.NewCause(cause))
		b := make([]byte, m.MarshalLen())
		if m.MarshalTo(b) != nil { // nothing in it can be wrong
			return nil
		}
		return b
	}
	captured := answers[min(n, len(answers)-1)]
	if captured == nil {
		return nil
	}
	return p.t.request(captured, k, s)
}

// AnswersNodeReports says whether the capture's SMF answers Node Report Requests: one
// that the capture shows to be silent does not.
func (p *Player) AnswersNodeReports() bool {
	silent := false
	for _, e := range p.v.Exchanges {
		if e.FromUPF && e.Request.Kind == message.MsgTypeNodeReportRequest {
			if e.Answer != nil {
				return true
			}
			silent = true
		}
	}
	return !silent
}

// Sessions are those of a session of the capture, from 0: all copies, or the first.
func (p *Player) Sessions(session, most int) (list []Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.states[session][:min(most, len(p.states[session]))] {
		list = append(list, p.about(session, k))
	}
	return list
}

func (p *Player) about(i, k int) Session {
	s := &p.states[i][k]
	return Session{
		Session: i, Copy: k, Established: s.live, CPSEID: p.t.seids.at(p.v.Sessions[i], k), UPSEID: s.up, UE4: s.ue[0], UE6: s.ue[1],
		Access: tunnel(s.entry(access)), CPFunction: tunnel(s.entry(cpFunction)), Peer: s.peer.tunnel(),
	}
}
