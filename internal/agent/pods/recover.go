package pods

import (
	"fmt"
	"net"

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

// recovered are the attachments of which the state file was lost.
func (p *Pods) recovered() (out []Attachment) {
	for _, l := range p.book.Leases() {
		if l.Holder.Recovered() {
			out = append(out, l.Key)
		}
	}
	return out
}
