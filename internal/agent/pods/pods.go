package pods

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/ipam"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
)

// Attachment names an interface of a container, as CNI does.
type Attachment = ipam.Key

// Pod is what the CNI plugin says of a pod that it attaches.
type Pod struct {
	Network       string `json:"network"` // name of the CNI network configuration
	NetNS         string `json:"netns"`   // path
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	UID           string `json:"uid,omitempty"`
	HostInterface string `json:"host_interface"` // the host's end of its veth
	HostIfindex   int    `json:"host_ifindex"`
	MAC           string `json:"mac"` // of its own end
	// Tenant names the tenant whose network it is; empty: the cluster's own.
	Tenant string `json:"tenant,omitempty"`
	// Shaped: another plugin limits its bandwidth by queues of the kernel, which
	// would not see what the data path forwards. So it checks what this pod sends
	// and leaves its packets to the kernel: other nodes' leave and come by the
	// kernel's interface into the overlay.
	Shaped bool `json:"shaped,omitempty"`
	// Labels are what Kubernetes said last. They are kept, so that a daemon knows the
	// classes of its pods' packets before the API answers.
	Labels map[string]string `json:"labels,omitempty"`
}

// Network is what a pod is to be configured with.
type Network struct {
	Addresses []netip.Addr `json:"addresses"`
	Gateways  []netip.Addr `json:"gateways"` // one for each address, on the link
	MTU       int          `json:"mtu"`
	// Routes are the destinations that the pod reaches by this interface.
	Routes []netip.Prefix `json:"routes"`
}

// Status is a pod, and what is wrong with how it is reached.
type Status struct {
	Attachment
	Pod
	Addresses []netip.Addr `json:"addresses"`
	Problem   string       `json:"problem,omitempty"`
	TenantID  uint8        `json:"tenant_id,omitempty"` // of the tenant that the pod is in
}

// Key is how people call a pod: namespace/name, or the attachment where a pod
// has no name.
func (s Status) Key() string {
	if s.Name == "" {
		return s.Attachment.String()
	}
	return s.Namespace + "/" + s.Name
}

// Readiness says whether pods can be added.
type Readiness struct {
	Ready  bool
	Reason string // why not
	// Limited: pods that are there already may be cut off, too.
	Limited bool
}

// The gateways of every pod: nobody's address, with a neighbour entry in the pod
// that leads to the host's end.
var (
	podGateway4 = netip.MustParseAddr("169.254.1.1")
	podGateway6 = netip.MustParseAddr("fe80::1")
)

// Errors that a caller may want to decide by.
var (
	// ErrExhausted: pods hold every address of a family.
	ErrExhausted = ipam.ErrExhausted
	// ErrNotReady: no pod can be added now.
	ErrNotReady = errors.New("not ready")
	// ErrNoCluster: the node is no member of a cluster.
	ErrNoCluster = errors.New("this node is in no cluster: its configuration has no overlay.mode")
)

// Table is what pods need of the data path.
type Table interface {
	Put(pod.Pod) error
	Delete(ifindex int) error
	List() []pod.Pod
}

// Host is what pods need of the kernel: *netdev.Host.
type Host interface {
	PutPod(netdev.Pod) error
	ForgetPod(netdev.Pod) error
	DeletePod(netdev.Pod) error
	CheckPod(netdev.Pod) ([]string, error)
	SetPodMTU(netns, name string, mtu int) error
	Close()
}

// Settings are what pods depend on of the node's place in the cluster.
type Settings struct {
	Prefixes []netip.Prefix
	Tenants  []Tenant
	MTU      int
	Problem  string // why no pod can be added
	Limited  bool   // and pods that are there may be cut off
}

// Pods are the pods on this node.
type Pods struct {
	log   *slog.Logger
	book  *ipam.Book[Pod]
	host  Host
	table Table

	// gate is held for reading while something is done with the data path.
	gate   sync.RWMutex
	closed bool

	mu       sync.Mutex
	settings Settings
	busy     map[Attachment]bool
	free     sync.Cond            // an attachment is busy no more
	failures map[Attachment]error // of pods to be connected again
	fresh    map[Attachment]freshPod
	classes  *class.Table
	labels   Labels
}

// Labels returns the labels of a pod, and whether they are known.
type Labels func(namespace, name string) (map[string]string, bool)

// freshPod is one that the plugin may still be configuring, with the MTU that it was
// given: a change of that may have come too early for it.
type freshPod struct {
	mtu   int
	since time.Time
}

// freshTime is longer than the plugin takes.
const freshTime = 30 * time.Second

// Open reads who holds which address. It owns host from then on.
func Open(db *bbolt.DB, host Host, log *slog.Logger) (*Pods, error) {
	book, err := ipam.Open[Pod](db)
	if err != nil {
		host.Close()
		return nil, err
	}
	p := &Pods{
		log: log, book: book, host: host, settings: Settings{Problem: ErrNoCluster.Error()},
		busy: map[Attachment]bool{}, failures: map[Attachment]error{}, fresh: map[Attachment]freshPod{},
	}
	p.free.L = &p.mu
	return p, nil
}

// Use calls f while the data path is there to stay. After Close it is ErrNotReady.
func (p *Pods) Use(f func() error) error {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.closed {
		return fmt.Errorf("%w: the daemon is ending", ErrNotReady)
	}
	return f()
}

// Close waits for what is going on, and lets nothing else begin.
func (p *Pods) Close() {
	p.gate.Lock()
	defer p.gate.Unlock()
	if !p.closed {
		p.closed = true
		p.host.Close()
	}
}

// Set goes along with what changes about the node.
func (p *Pods) Set(s Settings) error {
	of := map[uint8][]netip.Prefix{0: s.Prefixes}
	for _, t := range s.Tenants {
		of[t.ID] = t.Prefixes
	}
	if err := p.book.SetPrefixes(of); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings = s
	return nil
}

func (p *Pods) now() Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

// hold keeps others from an attachment until release is called.
func (p *Pods) hold(key Attachment) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.busy[key] {
		p.free.Wait()
	}
	p.busy[key] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, key)
		p.free.Broadcast()
	}
}

// check says what is missing for a pod to be attached.
func (v Pod) check(key Attachment) error {
	for _, f := range []struct{ name, value string }{
		{"container_id", key.ContainerID}, {"interface", key.Interface}, {"network", v.Network}, {"netns", v.NetNS}, {"host_interface", v.HostInterface},
	} {
		if f.value == "" {
			return fmt.Errorf("%w: %s is missing", desired.ErrInvalid, f.name)
		}
	}
	if mac, err := net.ParseMAC(v.MAC); err != nil || len(mac) != 6 {
		return fmt.Errorf("%w: mac: %q is no Ethernet address", desired.ErrInvalid, v.MAC)
	}
	if v.HostIfindex <= 0 {
		return fmt.Errorf("%w: host_ifindex is %d", desired.ErrInvalid, v.HostIfindex)
	}
	return nil
}

// Add gives a pod its addresses and has packets reach it, or leaves nothing.
func (p *Pods) Add(key Attachment, v Pod) (Network, error) {
	if err := v.check(key); err != nil {
		return Network{}, err
	}
	defer p.hold(key)()
	now := p.now()
	if now.Problem != "" {
		return Network{}, fmt.Errorf("%w: %s", ErrNotReady, now.Problem)
	}
	tenant, err := now.tenantOf(v)
	if err != nil {
		return Network{}, err
	}
	if old, there := p.book.Get(key); there && old.Holder.HostIfindex != v.HostIfindex {
		if err := p.disconnect(old); err != nil {
			return Network{}, err
		}
	}
	p.relabel(&v)
	lease, existed, err := p.book.Add(key, tenant.ID, v)
	if err != nil {
		return Network{}, err
	}
	if err := p.connect(lease); err != nil {
		if !existed {
			err = errors.Join(err, p.disconnect(lease), p.book.Release(key))
		}
		return Network{}, err
	}
	p.log.Info("pod added", "event", logevent.PodAdded, "pod", v.Namespace+"/"+v.Name, "addresses", lease.Addresses, "interface", v.HostInterface, "container", key.ContainerID)
	// Who changes the MTU sees this pod, or this pod sees the change.
	given := Network{Addresses: lease.Addresses, MTU: p.now().MTU, Routes: routesOf(tenant, lease.Addresses)}
	for _, a := range lease.Addresses {
		if a.Is4() {
			given.Gateways = append(given.Gateways, podGateway4)
		} else {
			given.Gateways = append(given.Gateways, podGateway6)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh[key] = freshPod{given.MTU, time.Now()}
	return given, nil
}

// forKernel and forTable are a lease as the kernel and the data path know it.
func forKernel(l ipam.Lease[Pod]) netdev.Pod {
	mac, _ := net.ParseMAC(l.Holder.MAC) // checked before it was written
	k := netdev.Pod{Name: l.Holder.HostInterface, Ifindex: l.Holder.HostIfindex, MAC: mac}
	if l.Tenant == 0 { // the addresses of tenants are none of the kernel's
		k.Addresses = l.Addresses
	}
	return k
}

func (p *Pods) forTable(l ipam.Lease[Pod]) pod.Pod {
	k := forKernel(l)
	return pod.Pod{Ifindex: k.Ifindex, MAC: k.MAC, Addresses: l.Addresses, Classifier: p.classifier(l.Holder), Tenant: l.Tenant, ToKernel: l.Holder.Shaped}
}

// classifier is that of what a pod sends.
func (p *Pods) classifier(v Pod) class.Classifier {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.classes.Classifier(class.Source{Kind: class.SourcePod, Namespace: v.Namespace, Labels: v.Labels})
}

// SetClasses has pods' packets classified by other classes.
func (p *Pods) SetClasses(classes *class.Table) {
	p.mu.Lock()
	p.classes = classes
	p.mu.Unlock()
	p.Reclassify()
}

// SetLabels says where the labels of pods are known. When some change, Relabel has to come
// next.
func (p *Pods) SetLabels(labels Labels) {
	p.mu.Lock()
	p.labels = labels
	p.mu.Unlock()
	p.Relabel()
}

// relabel fills in a pod's labels where they are known, and says whether they have changed.
func (p *Pods) relabel(v *Pod) (changed bool) {
	p.mu.Lock()
	labels := p.labels
	p.mu.Unlock()
	if labels == nil {
		return false
	}
	now, known := labels(v.Namespace, v.Name)
	if !known || maps.Equal(now, v.Labels) {
		return false
	}
	v.Labels = now
	return true
}

// Reclassify writes the classifiers that differ, once Restore has connected the pods.
func (p *Pods) Reclassify() {
	p.each(func(ipam.Lease[Pod]) bool { return true })
}

// Relabel does so for pods whose labels have changed.
func (p *Pods) Relabel() {
	p.each(func(l ipam.Lease[Pod]) bool { return p.relabel(&l.Holder) })
}

// each connects again, with the labels of now, the pods that some chooses.
func (p *Pods) each(some func(ipam.Lease[Pod]) bool) {
	if p.table == nil {
		return
	}
	for _, l := range p.book.Leases() {
		if !some(l) {
			continue
		}
		release := p.hold(l.Key)
		if now, there := p.book.Get(l.Key); there {
			var err error
			if p.relabel(&now.Holder) {
				now, _, err = p.book.Add(now.Key, now.Tenant, now.Holder)
			}
			if err == nil {
				err = p.connect(now)
			}
			p.note(l.Key, err)
		}
		release()
	}
}

// connect has the kernel and the data path lead to a pod.
func (p *Pods) connect(l ipam.Lease[Pod]) error {
	if err := p.host.PutPod(forKernel(l)); errors.Is(err, netdev.ErrNoInterface) {
		return fmt.Errorf("%w: %w in the agent's network namespace: it has to be the one that the plugin runs in", desired.ErrInvalid, err)
	} else if err != nil {
		return err
	}
	return p.table.Put(p.forTable(l))
}

// disconnect is the reverse, whatever of it was done.
func (p *Pods) disconnect(l ipam.Lease[Pod]) error {
	return errors.Join(p.table.Delete(l.Holder.HostIfindex), p.host.ForgetPod(forKernel(l)))
}

// Remove takes a pod's addresses back, whatever of it is gone already.
func (p *Pods) Remove(key Attachment) error {
	defer p.hold(key)()
	lease, there := p.book.Get(key)
	if !there {
		return nil
	}
	if err := p.takeAway(lease); err != nil {
		return err
	}
	p.note(key, nil)
	return nil
}

func (p *Pods) takeAway(lease ipam.Lease[Pod]) error {
	key := lease.Key
	if err := p.table.Delete(lease.Holder.HostIfindex); err != nil {
		return err
	}
	if err := p.host.DeletePod(forKernel(lease)); err != nil {
		return err
	}
	if err := p.book.Release(key); err != nil {
		return err
	}
	p.log.Info("pod removed", "event", logevent.PodRemoved, "pod", lease.Holder.Namespace+"/"+lease.Holder.Name, "addresses", lease.Addresses, "container", key.ContainerID)
	return nil
}

// Check says what of a pod is not as add left it. v is what the plugin says of it, without its host's ifindex.
func (p *Pods) Check(key Attachment, v Pod) ([]string, error) {
	defer p.hold(key)()
	if err := p.regain(key, v); err != nil {
		return nil, err
	}
	lease, there := p.book.Get(key)
	if !there {
		return []string{fmt.Sprintf("the agent knows no attachment %s", key)}, nil
	}
	wrong, err := p.host.CheckPod(forKernel(lease))
	if err != nil {
		return nil, err
	}
	want := p.forTable(lease)
	sorted := func(list []netip.Addr) []netip.Addr {
		return slices.SortedFunc(slices.Values(list), netip.Addr.Compare)
	}
	if !slices.ContainsFunc(p.table.List(), func(e pod.Pod) bool {
		return e.Ifindex == want.Ifindex && e.ToKernel == want.ToKernel && slices.Equal(e.MAC, want.MAC) && slices.Equal(sorted(e.Addresses), sorted(want.Addresses))
	}) {
		wrong = append(wrong, fmt.Sprintf("the data path does not know the pod with the addresses %s", want.Addresses))
	}
	return wrong, nil
}

// Retain removes the pods of a network that are not among the valid ones.
func (p *Pods) Retain(network string, valid []Attachment) (removed []Attachment, err error) {
	var errs []error
	for _, l := range p.book.Leases() {
		if l.Holder.Network != network || slices.Contains(valid, l.Key) {
			continue
		}
		if err := p.Remove(l.Key); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.Key, err))
			continue
		}
		removed = append(removed, l.Key)
	}
	return removed, errors.Join(errs...)
}

// Restore goes on from an earlier run: pods that are there still are connected,
// what others held (before a reboot, say) is free again.
func (p *Pods) Restore(table Table, links *netdev.Snapshot) error {
	p.table = table
	var here []ipam.Lease[Pod]
	var gone sync.WaitGroup // together: they share transactions
	for _, l := range p.book.Leases() {
		if link, there := links.Link(l.Holder.HostInterface); there && link.Index == l.Holder.HostIfindex {
			here = append(here, l)
			continue
		}
		gone.Go(func() { p.note(l.Key, p.Remove(l.Key)) })
	}
	gone.Wait()
	known := map[int]bool{}
	for _, l := range here {
		known[l.Holder.HostIfindex] = true
		p.note(l.Key, p.connect(l))
	}
	lost := len(known) == 0 && p.book.IsNew()
	var errs []error
	for _, e := range table.List() {
		switch {
		case known[e.Ifindex]:
		case lost && p.recover(e, links):
		default:
			errs = append(errs, table.Delete(e.Ifindex))
		}
	}
	return errors.Join(errs...)
}

// note has a failure tried again, or no more.
func (p *Pods) note(key Attachment, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.failures, key)
		return
	}
	if before := p.failures[key]; before == nil || before.Error() != err.Error() {
		p.log.Error("cannot connect a pod; will try again", "event", logevent.PodFailed, "attachment", key.String(), "error", err)
	}
	p.failures[key] = err
}

// Retry connects the pods that could not be connected, and removes those whose
// interface is gone.
func (p *Pods) Retry() {
	p.mu.Lock()
	failed := slices.Collect(maps.Keys(p.failures))
	p.mu.Unlock()
	failed = append(failed, p.recovered()...)
	for _, key := range failed {
		release := p.hold(key)
		var err error
		if l, there := p.book.Get(key); there {
			if err = p.connect(l); errors.Is(err, netdev.ErrNoInterface) {
				err = p.takeAway(l)
			}
		}
		p.note(key, err)
		release()
	}
}

// UpdateMTU sets the MTU of fresh pods that got another one than the present.
func (p *Pods) UpdateMTU() {
	p.mu.Lock()
	mtu := p.settings.MTU
	maps.DeleteFunc(p.fresh, func(_ Attachment, f freshPod) bool { return time.Since(f.since) > freshTime })
	fresh := maps.Clone(p.fresh)
	p.mu.Unlock()
	for key, f := range fresh {
		l, there := p.book.Get(key)
		if !there || f.mtu == mtu || mtu == 0 {
			continue
		}
		if err := p.host.SetPodMTU(l.Holder.NetNS, key.Interface, mtu); err != nil {
			p.log.Warn("cannot set the MTU of a pod; will try again", "event", logevent.PodMTUFailed, "attachment", key.String(), "error", err)
		}
	}
}

// Readiness says whether pods can be added now. A node whose addresses are all held stays ready: Add
// fails until a pod ends, but Kubernetes evicts the pods of a node that is not ready.
func (p *Pods) Readiness() Readiness {
	s := p.now()
	return Readiness{Ready: s.Problem == "", Reason: s.Problem, Limited: s.Limited}
}

// List are the pods, by their addresses.
func (p *Pods) List() []Status {
	leases := p.book.Leases()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Status, len(leases))
	for i, l := range leases {
		out[i] = Status{Attachment: l.Key, Pod: l.Holder, Addresses: l.Addresses, TenantID: l.Tenant}
		if l.Holder.Recovered() {
			out[i].Problem = recoveredProblem
		}
		if err := p.failures[l.Key]; err != nil {
			out[i].Problem = err.Error()
		}
	}
	return out
}
