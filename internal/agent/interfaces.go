package agent

import (
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/netdev"
)

// Interfaces are those of the configuration, as they are.
func (a *Agent) Interfaces() ([]InterfaceStatus, error) {
	var closed map[int]attach.Mode
	return each(a.core, func(r desired.Resource, v config.Interface) (InterfaceStatus, error) {
		if closed == nil {
			closed = a.core.dp.Closing.On()
		}
		l, there := a.core.links.Link(v.Name)
		s := InterfaceStatus{Interface: v, Ifindex: l.Index, MTU: l.MTU}
		mode, attached := a.core.writer.Modes[v.Name]
		failure := a.core.writer.Failures[r.Ref]
		switch {
		case !there:
			s.Attached = "not attached: there is no such interface"
		case failure != nil:
			s.Attached = "not attached: " + failure.Error()
		case attached:
			s.Attached = string(mode)
		}
		if !there {
			return s, nil
		}
		s.Link = l.State()
		var err error
		if s.Closed = string(closed[l.Index]); s.Closed != "" {
			s.Attached += "; the interface is closed: the kernel gets only what host lists"
		}
		s.Lost, err = a.core.dp.Counters.Lost(l.Index)
		return s, err
	})
}

// closed are the interfaces of the configuration that are closed, and what became of frames by
// closed interfaces. The caller holds the lock.
func (c *core) closed(configured map[string]string) (how map[string]string, frames map[string]uint64) {
	how, frames = map[string]string{}, map[string]uint64{}
	on := c.dp.Closing.On()
	for name := range configured {
		if l, there := c.links.Link(name); there && on[l.Index] != "" {
			how[name] = string(on[l.Index])
		}
	}
	counters, err := c.dp.Counters.Closed()
	for i, r := range reason.All() {
		if err == nil && i < len(counters) && (r == reason.Passed || counters[i].Packets > 0) {
			frames[r.String()] = counters[i].Packets
		}
	}
	return how, frames
}

// lost are the frames that interfaces did not send, of those that are configured and of
// others that lost some; empty where nothing counts them. The caller holds the lock.
func (c *core) lost(configured map[string]string) map[string]uint64 {
	out := map[string]uint64{}
	if c.dp.Counters.LossError() != nil {
		return out
	}
	for i := range c.links.Links {
		l := &c.links.Links[i]
		if !l.Ethernet {
			continue
		}
		n, err := c.dp.Counters.Lost(l.Index)
		if _, is := configured[l.Name]; err == nil && (is || n > 0) {
			out[l.Name] = n
		}
	}
	return out
}

// up has 1 for interfaces of the configuration, and a member's uplinks, that are up and have a
// carrier, and 0 for the others. One that does not exist is left out. The caller holds the lock.
func (c *core) up(configured map[string]string) map[string]int {
	out := map[string]int{}
	add := func(name string) {
		if l, there := c.links.Link(name); there {
			out[name] = 0
			if l.State() == netdev.LinkUp {
				out[name] = 1
			}
		}
	}
	for name := range configured {
		add(name)
	}
	for _, name := range c.overlay.UplinkNames() {
		add(name)
	}
	return out
}

// uplinkProblems are of uplinks that are down or have no carrier. The caller holds the lock.
func (c *core) uplinkProblems(names []string) (out []string) {
	for _, name := range names {
		if l, there := c.links.Link(name); there && l.State() != netdev.LinkUp {
			out = append(out, "uplink "+name+" "+l.State().Problem())
		}
	}
	return out
}
