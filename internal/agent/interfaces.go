package agent

import "github.com/culvert-net/culvert/internal/dataplane/reason"

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
