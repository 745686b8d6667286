package smf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/replay"
	"github.com/culvert-net/culvert/internal/smf/wire"
)

// errBoth: sessions of a capture have the capture's SEIDs.
var errBoth = errors.New("a client plays a capture, or has sessions of its own: not both")

// Replay makes the client play the SMF's part of a captured conversation. Reports of
// the UPF are answered as in the capture from here on.
func (c *Client) Replay(settings replay.Settings) (*replay.Player, error) {
	if len(c.Groups()) > 0 {
		return nil, errBoth
	}
	p, err := replay.New(settings, played{c})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.player = p
	return p, nil
}

// replaying is what the client plays; nil: nothing.
func (c *Client) replaying() *replay.Player {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.player
}

// played is a client as a player sees it.
type played struct{ c *Client }

// Ends implements replay.Client.
func (p played) Ends() replay.Ends {
	o := &p.c.options
	return replay.Ends{SMF: o.Local.Addr(), UPF: o.UPF.Addr(), NodeID: o.NodeID, Started: p.c.stamp()}
}

// Exchange implements replay.Client.
func (p played) Exchange(ctx context.Context, request []byte) (wire.Header, error) {
	h, err := p.c.request(ctx, request)
	switch {
	case errors.Is(err, ErrUnanswered):
		return h, fmt.Errorf("%w from %s, which was asked %d times: does it list this SMF (%s)?", err, p.c.options.UPF, p.c.options.Attempts, p.c.options.Local.Addr())
	case err != nil:
		return h, err
	}
	if h.Kind == message.MsgTypeAssociationSetupResponse {
		ies, err := parse(h.Payload)
		if err != nil {
			return h, err
		}
		_, _ = p.c.setUp(ies) // what the answer lacks is for the player to find
	}
	return h, nil
}

// SetUp implements replay.Client.
func (p played) SetUp(ctx context.Context) error {
	_, err := p.c.Associate(ctx)
	return err
}

// Restart implements replay.Client.
func (p played) Restart(started time.Time) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.options.Started = started
}

// replayedReport delivers a report of a captured session, and returns the answer, nil
// for none; known is false if the session is none.
func (c *Client) replayedReport(h wire.Header) (answer []byte, known bool) {
	p := c.replaying()
	if p == nil {
		return nil, false
	}
	answer, about, known := p.Report(h)
	if !known {
		return nil, false
	}
	r := readReport(h)
	r.Group, r.Session = captured(about.Session), about.Copy
	if !c.once(h, r) {
		return nil, true
	}
	return answer, true
}

// captured is what the group of a captured session's copies is called.
func captured(session int) string { return fmt.Sprintf("s%d", session+1) }

// replayedInfo is what is known of a copy of a captured session.
func replayedInfo(s replay.Session) Info {
	at := func(t replay.Tunnel) *Created {
		if t.TEID == 0 {
			return nil
		}
		return &Created{TEID: t.TEID, Addr4: t.Addr4, Addr6: t.Addr6}
	}
	return Info{
		Group: captured(s.Session), Index: s.Copy, Live: s.Established, CPSEID: s.CPSEID, UPSEID: s.UPSEID, UE4: s.UE4, UE6: s.UE6,
		Access: at(s.Access), CPFunction: at(s.CPFunction), Peer: at(s.Peer),
	}
}

// replay plays the scenario's capture on.
func (r *Runner) replay(ctx context.Context, p *Step, result *StepResult) error {
	played, err := r.player.Play(ctx, p.Until, time.Duration(p.Timeout))
	result.Replay = &played
	for i := range r.player.Conversation().Sessions {
		for _, s := range r.player.Sessions(i, 1) {
			result.Sessions = append(result.Sessions, replayedInfo(s))
		}
	}
	if err != nil {
		return err
	}
	err = played.Err()
	result.Differ = err != nil
	return err
}

// showReplayed shows the first copies of a captured session, or one of each.
func (r *Runner) showReplayed(p *Step, result *StepResult) error {
	for i := range r.player.Conversation().Sessions {
		most := 1
		if p.Sessions != "" {
			most = shown
		}
		if p.Sessions != "" && p.Sessions != captured(i) {
			continue
		}
		for _, s := range r.player.Sessions(i, most) {
			result.Sessions = append(result.Sessions, replayedInfo(s))
		}
	}
	if len(result.Sessions) == 0 {
		return fmt.Errorf("the capture has no session %q: it has s1 to s%d", p.Sessions, len(r.player.Conversation().Sessions))
	}
	return nil
}
