package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/overlay"
)

// fakePods are the data path's pods and the interfaces of an overlay.
type fakePods struct {
	pods    map[int]pod.Pod
	uplinks map[int]bool
	members map[overlay.Member]bool
	guarded bool
	entry   int // 0: none

	enforced bool
	policed  map[int]pod.PolicyCounts
	isolated netpol.Desired // what was applied last

	records chan flow.Record
	left    map[int]uint64
}

// readRecords takes those that the test sends.
func (p *fakePods) readRecords(ctx context.Context, each func(flow.Record), after func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-p.records:
			each(r)
			after()
		}
	}
}

func (p *fakePods) leftOut() (map[int]uint64, error) { return p.left, nil }

// fakePolicies are the data path's NetworkPolicies.
type fakePolicies struct{ f *fakeDataPath }

func (p fakePolicies) Enforce(enforce bool) error {
	return p.f.do(func() error { p.f.enforced = enforce; return nil }, "enforce %v", enforce)
}

func (p fakePolicies) Apply(d netpol.Desired) error {
	return p.f.do(func() error { p.f.isolated = d; return nil }, "isolate")
}

func newFakePods() fakePods {
	return fakePods{pods: map[int]pod.Pod{}, uplinks: map[int]bool{}, members: map[overlay.Member]bool{}, records: make(chan flow.Record)}
}

func (f *fakeDataPath) PutPod(p pod.Pod) error {
	return f.do(func() error { f.pods[p.Ifindex] = p; return nil }, "pod %d", p.Ifindex)
}

func (f *fakeDataPath) DeletePod(ifindex int) error {
	return f.do(func() error { delete(f.pods, ifindex); return nil }, "delete pod %d", ifindex)
}

func (f *fakeDataPath) Pods() []pod.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.pods))
}

func (f *fakeDataPath) AttachUplink(ifindex int) error {
	return f.do(func() error { f.uplinks[ifindex] = true; return nil }, "uplink %d", ifindex)
}

func (f *fakeDataPath) DetachUplink(ifindex int) error {
	return f.do(func() error { delete(f.uplinks, ifindex); return nil }, "delete uplink %d", ifindex)
}

func (f *fakeDataPath) PutMember(m overlay.Member) error {
	return f.do(func() error { f.members[m] = true; return nil }, "member %s", m)
}

func (f *fakeDataPath) DeleteMember(m overlay.Member) error {
	return f.do(func() error { delete(f.members, m); return nil }, "delete member %s", m)
}

func (f *fakeDataPath) GuardForwarded(guard bool) error {
	return f.do(func() error { f.guarded = guard; return nil }, "guard %v", guard)
}

func (f *fakeDataPath) AttachEntry(ifindex int) error {
	return f.do(func() error { f.entry = ifindex; return nil }, "entry %d", ifindex)
}

func (f *fakeDataPath) DetachEntry(int) error {
	return f.do(func() error { f.entry = 0; return nil }, "delete entry")
}

// fakeHost is a kernel's network.
type fakeHost struct {
	mu        sync.Mutex
	failOn    func(call string) error
	pods      map[string]netdev.Pod
	addresses []netip.Addr // of the entry; nil: no entry
	mtu       int
	mac       netdev.MAC // of the entry
	routes    map[netip.Prefix]netdev.HostRoute
	ready     []string // interfaces that forward
	masked    [2][]netip.Prefix
	podMTU    map[string]int
}

func newFakeHost() *fakeHost {
	return &fakeHost{pods: map[string]netdev.Pod{}, routes: map[netip.Prefix]netdev.HostRoute{}, podMTU: map[string]int{}}
}

// Where the entry is.
const (
	fakeEntry = 900
	fakeExit  = 901
)

func (h *fakeHost) do(change func(), format string, args ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failOn != nil {
		if err := h.failOn(fmt.Sprintf(format, args...)); err != nil {
			return err
		}
	}
	change()
	return nil
}

func (h *fakeHost) Close() {}

func (h *fakeHost) PutPod(p netdev.Pod) error {
	return h.do(func() { h.pods[p.Name] = p }, "pod %s", p.Name)
}

func (h *fakeHost) ForgetPod(p netdev.Pod) error {
	return h.do(func() { delete(h.pods, p.Name) }, "forget pod %s", p.Name)
}

func (h *fakeHost) DeletePod(p netdev.Pod) error {
	return h.do(func() { delete(h.pods, p.Name) }, "delete pod %s", p.Name)
}

func (h *fakeHost) CheckPod(p netdev.Pod) (wrong []string, err error) {
	err = h.do(func() {
		if _, there := h.pods[p.Name]; !there {
			wrong = append(wrong, "the host has no route to "+p.Name)
		}
	}, "check pod %s", p.Name)
	return wrong, err
}

func (h *fakeHost) PutEntry(addresses []netip.Addr, mtu int) (netdev.Entry, error) {
	e := netdev.Entry{Ifindex: fakeEntry, Exit: fakeExit}
	return e, h.do(func() { h.addresses, h.mtu, e.MAC = addresses, mtu, h.mac }, "entry")
}

func (h *fakeHost) DeleteEntry() error {
	return h.do(func() { h.addresses = nil; clear(h.routes) }, "delete entry")
}

func (h *fakeHost) PutRoute(r netdev.HostRoute) error {
	return h.do(func() { h.routes[r.Prefix] = r }, "route %s", r.Prefix)
}

func (h *fakeHost) DeleteRoute(r netdev.HostRoute) error {
	return h.do(func() { delete(h.routes, r.Prefix) }, "delete route %s", r.Prefix)
}

func (h *fakeHost) Forwarding(interfaces []string) error {
	return h.do(func() { h.ready = interfaces }, "forward")
}

func (h *fakeHost) Masquerade(pods, cluster []netip.Prefix) error {
	return h.do(func() { h.masked = [2][]netip.Prefix{pods, cluster} }, "masquerade")
}

func (h *fakeHost) Masquerades([]netip.Prefix) (there bool, err error) {
	err = h.do(func() { there = h.masked[0] != nil }, "look at masquerade")
	return there, err
}

func (h *fakeHost) SetPodMTU(_, name string, mtu int) error {
	return h.do(func() { h.podMTU[name] = mtu }, "MTU of %s", name)
}
