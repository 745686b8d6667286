package pod

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/steering"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
)

// Pod is a pod of this node, as its packets see it.
type Pod struct {
	Ifindex int              // of the host's end of its veth
	MAC     net.HardwareAddr // of the pod's end
	// Addresses are its own, at most one of each family. It may send from no others.
	Addresses []netip.Addr
	// Tenant is the id of its tenant: the pod meets the tenant's pods and prefixes, and
	// nobody else. 0: it has none.
	Tenant uint8
	// Classifier has the column of its packets by DSCP, as port.Port has.
	Classifier class.Classifier
	// ToKernel: the data path checks what the pod sends, and the kernel forwards it. The
	// kernel also forwards what others send to it. For pods that the kernel's queues limit.
	ToKernel bool
}

// pod is one that is in the tables.
type pod struct {
	index     uint32
	value     abi.Pod
	fresh     abi.Pod // what value begins with
	tenant    uint8
	addresses []netip.Addr
	kept      bool // put since Open
}

// home is an address in a table of steering: that of a tenant, or the node's.
type home struct {
	tenant  uint8
	address netip.Addr
}

// Table is the table pod.
type Table struct {
	mu       *sync.Mutex
	m        *ebpf.Map
	indexes  *table.Indexes
	targets  *target.Table
	ports    *port.Table
	steering *steering.Table
	programs *attach.TCX
	counts   Counts
	pods     map[int]*pod // by ifindex
	owners   map[home]int
	serial   uint32 // the last that was given
	enforced bool   // see Enforce

	// Isolating is called before a pod becomes isolated that was not. The caller holds the lock.
	Isolating func() error
}

// Counts are maps with entries of each pod.
type Counts struct {
	Policies *ebpf.Map // what NetworkPolicies did
	Records  *ebpf.Map // of flows
}

// Open takes the map and finds what an earlier daemon put. mu is the data path's
// lock.
func Open(mu *sync.Mutex, m *ebpf.Map, counts Counts, grace *table.Grace, targets *target.Table, ports *port.Table, steering *steering.Table, programs *attach.TCX) (*Table, error) {
	t := &Table{
		mu: mu, m: m, indexes: table.NewIndexes(grace, abi.MapPod, "", 1, m.MaxEntries()),
		targets: targets, ports: ports, steering: steering, programs: programs, counts: counts,
		pods: map[int]*pod{}, owners: map[home]int{},
	}
	_, values, err := table.ReadAll[uint32, abi.Pod](m)
	if err != nil {
		return nil, err
	}
	// Flows of pods that are gone have their serials for a while.
	t.serial = uint32(time.Now().Unix())
	byIndex, taken := map[uint32]*pod{}, map[uint32]bool{}
	for i, value := range values {
		t.serial = max(t.serial, value.Serial)
		if index := uint32(i); value.Ifindex != 0 {
			p := &pod{index: index, value: value}
			byIndex[index], taken[index] = p, true
			t.pods[int(value.Ifindex)] = p
		}
	}
	t.indexes.Restore(taken)
	for at, to := range targets.All() {
		if p := byIndex[to.Index]; p != nil && to.Kind == uint32(abi.TargetKindTARGET_POD) {
			p.tenant = abi.TenantOf(at.Table)
			p.addresses = append(p.addresses, at.Prefix.Addr())
			t.owners[home{p.tenant, at.Prefix.Addr()}] = int(p.value.Ifindex)
		}
	}
	return t, nil
}

// Usage says how full the table is.
func (t *Table) Usage() table.Usage { return t.indexes.Usage() }

// Put has packets to a pod's addresses given to it, and its own handled; or
// changes which those are. An address that is somebody else's already is an
// error (target.ErrTaken). A pod that is put twice is as one that is put once.
func (t *Table) Put(p Pod) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.put(p); err != nil {
		return fmt.Errorf("pod at interface %s: %w", port.Name(p.Ifindex), err)
	}
	return nil
}

func (t *Table) put(p Pod) error {
	addresses, err := t.check(p)
	if err != nil {
		return err
	}
	there := t.pods[p.Ifindex]
	next := there
	if there == nil {
		next = &pod{}
		if next.index, err = t.indexes.Alloc(); err != nil {
			return err
		}
		if err := t.begin(next); err != nil {
			t.indexes.Retire(next.index)
			return err
		}
	}
	if err := t.write(next, entry(p, cmp.Or(next.value, next.fresh), t.enforced, addresses)); err != nil {
		if there == nil {
			t.indexes.Retire(next.index)
		}
		return err
	}
	t.pods[p.Ifindex] = next
	if err := t.connect(p, next, addresses); err != nil {
		if there == nil {
			err = errors.Join(err, t.delete(p.Ifindex))
		}
		return err
	}
	next.kept = true
	return nil
}

// begin makes a new pod's entry: nobody's flows, nobody's counts.
func (t *Table) begin(p *pod) error {
	t.serial++
	p.fresh = abi.Pod{Serial: t.serial}
	if t.enforced {
		p.fresh.Ingress, p.fresh.Egress = uint32(abi.NetpolLimitsCLOSED_LIST), uint32(abi.NetpolLimitsCLOSED_LIST)
	}
	for i := range uint32(abi.NetpolCountNETPOL_COUNTS) {
		if err := counter.Zero(t.counts.Policies, p.index*uint32(abi.NetpolCountNETPOL_COUNTS)+i); err != nil {
			return err
		}
	}
	return t.beginRecords(p)
}

// entry is what the data path reads.
func entry(p Pod, former abi.Pod, enforced bool, addresses []netip.Addr) abi.Pod {
	e := former
	e.Enforced = 0
	if enforced {
		e.Enforced = 1
	}
	e.Ifindex, e.Ip4, e.Ip6 = uint32(p.Ifindex), 0, abi.In6{}
	copy(e.Mac[:], p.MAC)
	for _, a := range addresses {
		if a.Is4() {
			e.Ip4 = abi.BE32(a)
		} else {
			e.Ip6.B = a.As16()
		}
	}
	return e
}

// addressesOf is the reverse, as far as addresses go.
func addressesOf(e abi.Pod) (out []netip.Addr) {
	if e.Ip4 != 0 {
		out = append(out, abi.FromBE32(e.Ip4))
	}
	if e.Ip6 != (abi.In6{}) {
		out = append(out, netip.AddrFrom16(e.Ip6.B))
	}
	return out
}

// check returns the addresses as the tables have them.
func (t *Table) check(p Pod) ([]netip.Addr, error) {
	if err := port.CheckIndex(p.Ifindex); err != nil {
		return nil, err
	}
	if len(p.MAC) != 6 {
		return nil, fmt.Errorf("address %q: want 6 bytes", p.MAC)
	}
	var out []netip.Addr
	for _, a := range p.Addresses {
		a = a.Unmap()
		if !a.IsGlobalUnicast() {
			return nil, fmt.Errorf("address %s: want a pod's own", a)
		}
		prefix := netip.PrefixFrom(a, a.BitLen())
		owner, isPod := t.owners[home{p.Tenant, a}]
		switch {
		case isPod && owner != p.Ifindex:
			return nil, fmt.Errorf("address %s %w: it is that of the pod at interface %s", a, target.ErrTaken, port.Name(owner))
		case p.Tenant == 0 && t.steering.Has(prefix), isElsewhere(t.targets.AtFrom(abi.TenantTable(p.Tenant), prefix)):
			return nil, fmt.Errorf("address %s %w: packets to it go elsewhere", a, target.ErrTaken)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	out = slices.Compact(out)
	if len(out) > 2 || len(out) == 2 && out[0].Is4() == out[1].Is4() {
		return nil, fmt.Errorf("addresses %s: want at most one of each family", out)
	}
	return out, nil
}

// isElsewhere says whether a target is neither a pod nor nothing.
func isElsewhere(to abi.Target) bool {
	return to.Kind != uint32(abi.TargetKindTARGET_NONE) && to.Kind != uint32(abi.TargetKindTARGET_POD)
}

func (t *Table) write(p *pod, value abi.Pod) error {
	if p.value == value {
		return nil
	}
	if isIsolated(value) && !isIsolated(p.value) {
		if err := t.Isolating(); err != nil {
			return err
		}
	}
	if err := t.m.Put(p.index, &value); err != nil {
		return fmt.Errorf("write table pod: %w", err)
	}
	p.value = value
	return nil
}

// connect has packets find the pod, and the program find its packets. Pods are
// outside of the SR domain.
func (t *Table) connect(of Pod, p *pod, addresses []netip.Addr) error {
	ifindex := of.Ifindex
	if p.tenant != of.Tenant {
		if err := t.dropAddresses(p); err != nil {
			return err
		}
		p.tenant = of.Tenant
	}
	if of.ToKernel {
		addresses = nil
	}
	target := abi.Target{Kind: uint32(abi.TargetKindTARGET_POD), Index: p.index}
	for _, a := range addresses {
		if err := t.targets.PutFrom(abi.TenantTable(p.tenant), netip.PrefixFrom(a, a.BitLen()), target); err != nil {
			return err
		}
		t.owners[home{p.tenant, a}] = ifindex
		if !slices.Contains(p.addresses, a) {
			p.addresses = append(p.addresses, a)
		}
	}
	for _, a := range slices.Clone(p.addresses) {
		if !slices.Contains(addresses, a) {
			if err := t.dropAddress(p, a); err != nil {
				return err
			}
		}
	}
	if err := t.ports.SetLocked(ifindex, port.Port{Roles: port.Edge, Classifier: of.Classifier, Tenant: of.Tenant, Pod: p.index, ToKernel: of.ToKernel}); err != nil {
		return err
	}
	return t.programs.AttachPod(ifindex)
}

func (t *Table) dropAddresses(p *pod) error {
	for _, a := range slices.Clone(p.addresses) {
		if err := t.dropAddress(p, a); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) dropAddress(p *pod, a netip.Addr) error {
	if err := t.targets.DeleteFrom(abi.TenantTable(p.tenant), netip.PrefixFrom(a, a.BitLen())); err != nil {
		return err
	}
	delete(t.owners, home{p.tenant, a})
	p.addresses = slices.DeleteFunc(p.addresses, func(b netip.Addr) bool { return b == a })
	return nil
}

// Delete ends that. A pod that is gone is not an error, nor is one whose
// interface is.
func (t *Table) Delete(ifindex int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.delete(ifindex); err != nil {
		return fmt.Errorf("pod at interface %s: %w", port.Name(ifindex), err)
	}
	return nil
}

func (t *Table) delete(ifindex int) error {
	p := t.pods[ifindex]
	if p == nil {
		return nil
	}
	if err := t.dropAddresses(p); err != nil {
		return err
	}
	if err := errors.Join(t.programs.DetachPod(ifindex), t.ports.DeleteLocked(ifindex), t.write(p, abi.Pod{})); err != nil {
		return err
	}
	delete(t.pods, ifindex)
	t.indexes.Retire(p.index)
	return nil
}

// List lists the pods that are put, those of an earlier daemon until Sweep among
// them, by ifindex.
func (t *Table) List() []Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Pod, 0, len(t.pods))
	for ifindex, p := range t.pods {
		out = append(out, Pod{Ifindex: ifindex, MAC: slices.Clone(p.value.Mac[:]), Addresses: addressesOf(p.value), Tenant: p.tenant, ToKernel: len(p.addresses) == 0})
	}
	slices.SortFunc(out, func(a, b Pod) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	return out
}

// Sweep removes those that were not put since Open. The caller holds the lock.
func (t *Table) Sweep() error {
	var errs []error
	for _, ifindex := range slices.Collect(maps.Keys(t.pods)) {
		if !t.pods[ifindex].kept {
			errs = append(errs, t.delete(ifindex))
		}
	}
	return errors.Join(errs...)
}
