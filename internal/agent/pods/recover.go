package pods

import (
	"fmt"
	"net"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/ipam"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
)

// recoveredProblem is of a pod that is known by what the data path has alone.
const recoveredProblem = "the state file was lost, and which container it is with it: the addresses stay the pod's until its interface is gone; delete the pod to make a new one"

// Recovered says that the state file was lost: what is known of the pod is what the data path has, and not
// which one it is. The plugin says the network of each pod that it adds.
func (v Pod) Recovered() bool { return v.Network == "" }

// recover has a pod keep the addresses that the data path knows it by, where the state file was lost and its
// interface is there. Otherwise new pods would get the addresses of running ones, which nobody would
// check any more. The runtime's DEL names a container that is not known: Retry frees the addresses once
// the interface is gone.
func (p *Pods) recover(e pod.Pod, links *netdev.Snapshot) bool {
	link, there := links.LinkByIndex(e.Ifindex)
	if !there || !netdev.IsPod(link.Name) || len(e.Addresses) == 0 {
		return false
	}
	l := ipam.Lease[Pod]{
		Key: Attachment{ContainerID: fmt.Sprintf("recovered-%d", e.Ifindex), Interface: link.Name}, Tenant: e.Tenant, Addresses: e.Addresses,
		Holder: Pod{HostInterface: link.Name, HostIfindex: e.Ifindex, MAC: net.HardwareAddr(e.MAC).String(), Shaped: e.ToKernel},
	}
	if err := p.book.Adopt(l); err != nil {
		p.log.Error("cannot keep the addresses of a pod that the state file does not have", "event", logevent.PodFailed, "attachment", l.Key.String(), "error", err)
		return false
	}
	p.log.Warn("the state file was lost: a pod keeps the addresses that the data path has of it", "event", logevent.PodRecovered, "interface", link.Name, "addresses", e.Addresses)
	p.note(l.Key, p.connect(l))
	return true
}

// Identify says which pod of Kubernetes a recovered one is. So its packets have their classes, and people see
// its name.
func (p *Pods) Identify(key Attachment, namespace, name, uid string) {
	defer p.hold(key)()
	l, there := p.book.Get(key)
	v := &l.Holder
	if p.table == nil || !there || !v.Recovered() || v.Namespace == namespace && v.Name == name && v.UID == uid {
		return
	}
	v.Namespace, v.Name, v.UID, v.Labels = namespace, name, uid, nil
	p.relabel(v)
	l, _, err := p.book.Add(key, l.Tenant, *v)
	if err == nil {
		err = p.connect(l)
	}
	p.note(key, err)
}

// regain has a recovered pod be the attachment that the runtime asks about, as v says: the plugin names the
// host's end and makes the MAC after the attachment. It does nothing where v is none of those. key is held.
func (p *Pods) regain(key Attachment, v Pod) error {
	leases := p.book.Leases()
	i := slices.IndexFunc(leases, func(l ipam.Lease[Pod]) bool {
		return l.Holder.Recovered() && l.Key != key && l.Holder.HostInterface == v.HostInterface && l.Holder.MAC == v.MAC
	})
	if _, known := p.book.Get(key); known || i < 0 {
		return nil
	}
	defer p.hold(leases[i].Key)()
	l, there := p.book.Get(leases[i].Key)
	v.HostIfindex, v.Shaped = l.Holder.HostIfindex, l.Holder.Shaped
	tenant, err := p.now().tenantOf(v)
	if !there || v.check(key) != nil || err != nil || tenant.ID != l.Tenant {
		return nil
	}
	p.relabel(&v)
	former := l.Key
	l.Key, l.Holder = key, v
	if err := p.book.Rename(former, l); err != nil {
		return err
	}
	p.log.Info("the runtime has checked a pod of which the state file was lost: its container is known again", "event", logevent.PodRegained, "pod", v.Namespace+"/"+v.Name, "interface", v.HostInterface, "addresses", l.Addresses)
	p.note(former, nil)
	p.note(key, p.connect(l))
	return nil
}

// recovered are the attachments of which the state file was lost.
func (p *Pods) recovered() (out []Attachment) {
	for _, l := range p.book.Leases() {
		if l.Holder.Recovered() {
			out = append(out, l.Key)
		}
	}
	return out
}
