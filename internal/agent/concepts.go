package agent

import (
	"context"
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// concepts is a data path as joined names its methods: joined(dp) can take them from
// DataPlane's fields (SIDs.Put ...), and then concepts goes.
type concepts struct{ *dataplane.DataPlane }

func (c concepts) Attach(ifindex int, mode dataplane.Mode) (dataplane.Mode, error) {
	return c.DataPlane.XDP.Attach(ifindex, mode)
}
func (c concepts) Detach(ifindex int) error         { return c.DataPlane.XDP.Detach(ifindex) }
func (c concepts) Attached() map[int]dataplane.Mode { return c.DataPlane.XDP.Attached() }
func (c concepts) AttachUplink(ifindex int) error   { return c.DataPlane.TCX.AttachUplink(ifindex) }
func (c concepts) DetachUplink(ifindex int) error   { return c.DataPlane.TCX.DetachUplink(ifindex) }
func (c concepts) AttachEntry(ifindex int) error    { return c.DataPlane.TCX.AttachEntry(ifindex) }
func (c concepts) DetachEntry(ifindex int) error    { return c.DataPlane.TCX.DetachEntry(ifindex) }
func (c concepts) SIDCounter(p netip.Prefix) (dataplane.Counter, error) {
	return c.DataPlane.SIDs.Counter(p)
}
func (c concepts) ListCounters(policy string) ([]dataplane.Counter, error) {
	return c.DataPlane.Policies.Counters(policy)
}
func (c concepts) TunnelCounters(name string) (received, sent dataplane.Counter, err error) {
	return c.DataPlane.Tunnels.Counters(name)
}
func (c concepts) Punts(ctx context.Context, f func(dataplane.Punt)) error {
	return c.DataPlane.Punts.Read(ctx, f)
}
func (c concepts) SetTrace(f *dataplane.TraceFilter) error { return c.DataPlane.Trace.Set(f) }
func (c concepts) Trace(ctx context.Context, f func(dataplane.TraceEvent)) error {
	return c.DataPlane.Trace.Read(ctx, f)
}
func (c concepts) SetPort(ifindex int, p dataplane.Port) error {
	return c.DataPlane.Ports.Set(ifindex, p)
}
func (c concepts) DeletePort(ifindex int) error       { return c.DataPlane.Ports.Delete(ifindex) }
func (c concepts) PutPolicy(p srpolicy.Policy) error  { return c.DataPlane.Policies.Put(p) }
func (c concepts) DeletePolicy(name string) error     { return c.DataPlane.Policies.Delete(name) }
func (c concepts) PutTunnel(t gtpu.Tunnel) error      { return c.DataPlane.Tunnels.Put(t) }
func (c concepts) DeleteTunnel(name string) error     { return c.DataPlane.Tunnels.Delete(name) }
func (c concepts) PutSID(l srv6.LocalSID) error       { return c.DataPlane.SIDs.Put(l) }
func (c concepts) DeleteSID(p netip.Prefix) error     { return c.DataPlane.SIDs.Delete(p) }
func (c concepts) PutSessionSID(p netip.Prefix) error { return c.DataPlane.SIDs.PutForSessions(p) }
func (c concepts) DeleteSessionSID(p netip.Prefix) error {
	return c.DataPlane.SIDs.DeleteForSessions(p)
}
func (c concepts) PutLink(l dataplane.Link) error           { return c.DataPlane.Links.Put(l) }
func (c concepts) DeleteLink(l dataplane.Link) error        { return c.DataPlane.Links.Delete(l) }
func (c concepts) PutSteering(m srpolicy.Steering) error    { return c.DataPlane.Steering.Put(m) }
func (c concepts) DeleteSteering(m srpolicy.Steering) error { return c.DataPlane.Steering.Delete(m) }
func (c concepts) PutLocal(a netip.Addr) error              { return c.DataPlane.Steering.PutLocal(a) }
func (c concepts) DeleteLocal(a netip.Addr) error           { return c.DataPlane.Steering.DeleteLocal(a) }
func (c concepts) AdjacencyKeys() []dataplane.AdjacencyKey  { return c.DataPlane.Adjacencies.Keys() }
func (c concepts) AdjacencyChanges() (fresh, gone []dataplane.AdjacencyKey) {
	return c.DataPlane.Adjacencies.Changes()
}
func (c concepts) SetNextHop(k dataplane.AdjacencyKey, n *dataplane.NextHop) error {
	return c.DataPlane.Adjacencies.SetNextHop(k, n)
}
func (c concepts) PutRoute(table uint32, p netip.Prefix, via []dataplane.AdjacencyKey) error {
	return c.DataPlane.Routes.Put(table, p, via)
}
func (c concepts) DeleteRoute(table uint32, p netip.Prefix) error {
	return c.DataPlane.Routes.Delete(table, p)
}
func (c concepts) PutDevice(ifindex int) error    { return c.DataPlane.Ports.PutDevice(ifindex) }
func (c concepts) DeleteDevice(ifindex int) error { return c.DataPlane.Ports.DeleteDevice(ifindex) }
func (c concepts) PutPod(p dataplane.Pod) error   { return c.DataPlane.Pods.Put(p) }
func (c concepts) DeletePod(ifindex int) error    { return c.DataPlane.Pods.Delete(ifindex) }
func (c concepts) Pods() []dataplane.Pod          { return c.DataPlane.Pods.List() }
func (c concepts) Inject(frame []byte, ifindex int) error {
	return c.DataPlane.Frames.Inject(frame, ifindex)
}
func (c concepts) InjectKept(frame []byte, ifindex int) error {
	return c.DataPlane.Frames.InjectKept(frame, ifindex)
}
func (c concepts) PuntsIdle() bool                      { return c.DataPlane.Punts.Idle() }
func (c concepts) PutSession(s dataplane.Session) error { return c.Sessions.Put(s) }
func (c concepts) RemoveSession(id uint64, done func([]dataplane.RuleUsage, error)) error {
	return c.Sessions.Remove(id, done)
}
func (c concepts) DropSession(id uint64) error                           { return c.Sessions.Drop(id) }
func (c concepts) SessionUsage(id uint64) ([]dataplane.RuleUsage, error) { return c.Sessions.Usage(id) }
func (c concepts) SetRuleLimits(id uint64, rule uint16, l dataplane.RuleLimits) error {
	return c.Sessions.SetLimits(id, rule, l)
}
func (c concepts) NewTEID() (uint32, error)   { return c.Sessions.NewTEID() }
func (c concepts) TakeTEID(teid uint32) error { return c.Sessions.TakeTEID(teid) }
func (c concepts) FreeTEID(teid uint32)       { c.Sessions.FreeTEID(teid) }
