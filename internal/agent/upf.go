package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/upf"
)

// userPlane is the node as a user plane function: the N4 server, and what holds
// its sessions. The methods of nil are those of a node that is none.
type userPlane struct {
	upf    *upf.UPF
	config pfcp.Config
	open   func(pfcp.Config, pfcp.UPF) (*pfcp.Server, error)
	server *pfcp.Server
	path   *sessionPath
}

// sessionPath notes that a session was put: it may lead to a next hop that
// nobody has resolved yet.
type sessionPath struct {
	upf.DataPath
	put chan struct{} // a session was put
}

func (p *sessionPath) PutSession(s dataplane.Session) error {
	err := p.DataPath.PutSession(s)
	select {
	case p.put <- struct{}{}:
	default:
	}
	return err
}

// newUserPlane reads the sessions of an earlier daemon. What they are put into
// is told by use.
func newUserPlane(a *Agent, p desired.Process) (*userPlane, error) {
	c := p.UPF
	if !c.IsSet() {
		return nil, nil
	}
	u := &userPlane{path: &sessionPath{put: make(chan struct{}, 1)}, open: a.open.server}
	var err error
	u.upf, err = upf.New(upf.Options{
		DataPath: u.path, Journal: a.options.StatePath + ".sessions", Logger: a.log,
		Sessions: int(p.Limits.Sessions),
	})
	if err != nil {
		return nil, err
	}
	u.config = pfcp.Config{Addresses: c.N4, NodeID: c.NodeID, Allow: c.SMFs, Connect: c.Connect, Log: a.log}
	return u, nil
}

// plane is nil for a node that is none.
func (u *userPlane) plane() *upf.UPF {
	if u == nil {
		return nil
	}
	return u.upf
}

// sessions is nil for a node that is none.
func (u *userPlane) sessions() apply.Sessions {
	if u == nil {
		return nil
	}
	return u.upf
}

// touched tells, not more often than that, that sessions were put.
func (u *userPlane) touched() <-chan struct{} {
	if u == nil {
		return nil
	}
	return u.path.put
}

// use comes before anything else that needs the data path.
func (u *userPlane) use(dp upf.DataPath) {
	if u != nil {
		u.path.DataPath = dp
	}
}

// restore puts the sessions again, before what was not put is swept.
func (u *userPlane) restore() {
	if u != nil {
		u.upf.Restore()
	}
}

// start answers SMFs, until ctx ends.
func (u *userPlane) start(ctx context.Context, group *errgroup.Group) error {
	if u == nil {
		return nil
	}
	server, err := u.open(u.config, u.upf)
	if err != nil {
		return fmt.Errorf("upf.n4: %w", err)
	}
	u.server = server
	u.upf.Start(server)
	group.Go(func() error { return ignoreCancel(server.Run(ctx)) })
	group.Go(func() error { return u.upf.Run(ctx) })
	return nil
}

func (u *userPlane) close() error {
	if u == nil {
		return nil
	}
	return u.upf.Close()
}

// validate refuses what takes another start.
func (u *userPlane) validate(c *config.UPF) error {
	switch {
	case u == nil && c.IsSet():
		return fmt.Errorf("%w: upf: the daemon did not start as a user plane function: restart it with this configuration", ErrInvalid)
	case u != nil && !c.IsSet():
		return fmt.Errorf("%w: upf: the daemon is a user plane function: restart it with this configuration", ErrInvalid)
	case u != nil && !slices.Equal(c.N4, u.config.Addresses):
		return fmt.Errorf("%w: upf.n4: sessions name %v as where they are controlled: restart the daemon with this configuration, or leave it at that", ErrInvalid, u.config.Addresses)
	case u != nil && c.NodeID != u.config.NodeID:
		return fmt.Errorf("%w: upf.node_id: SMFs know the daemon as %s: restart it with this configuration, or leave it at that", ErrInvalid, u.config.NodeID)
	}
	return nil
}

// setSMFs lets the SMFs be those of a configuration.
func (u *userPlane) setSMFs(c *config.UPF) {
	if u != nil && u.server != nil {
		u.server.SetSMFs(c.SMFs, c.Connect)
	}
}

// pause between looks for next hops that new sessions lead to.
const syncPause = 50 * time.Millisecond

// syncSessions resolves the next hops that sessions lead to, of all that were put
// in the meantime at once.
func (c *core) syncSessions() {
	time.Sleep(syncPause)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReady() == nil {
		c.network.SyncHops()
	}
}
