package dataplane

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

var podPorts = []model.Port{{Name: "pod1", Ifindex: 21}, {Name: "pod2", Ifindex: 22}}

func podAt(ifindex int, all ...string) pod.Pod {
	return pod.Pod{Ifindex: ifindex, MAC: hostA, Addresses: addrs(all...)}
}

// TestPutPod: a pod that is put twice is there once, its addresses are its own,
// and nothing is left of one that is deleted.
func TestPutPod(t *testing.T) {
	needRoot(t)
	inNamespace(t, podPorts, func() {
		d := open(t)
		before := dump(t, d)
		want := podAt(21, "10.244.1.2", "fd00:1::2")
		must(t, d.Pods.Put(want))
		once := dump(t, d)
		must(t, d.Pods.Put(want))
		if diff := difference(once, dump(t, d)); diff != "" {
			t.Errorf("the second time is not as the first:\n%s", diff)
		}
		if err := d.Pods.Put(podAt(22, "fd00:1::3", "10.244.1.2")); !errors.Is(err, ErrTaken) {
			t.Errorf("another pod's address: %v", err)
		}
		must(t, d.Pods.Put(podAt(22, "10.244.1.3")))
		must(t, d.Pods.Put(podAt(21, "10.244.1.4")))
		must(t, d.Pods.Put(podAt(22, "10.244.1.2", "fd00:1::3"))) // it is free now
		pods := []pod.Pod{podAt(21, "10.244.1.4"), podAt(22, "10.244.1.2", "fd00:1::3")}
		if diff := cmp.Diff(pods, d.Pods.List(), sameAddr); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		for range 2 {
			must(t, errors.Join(d.Pods.Delete(21), d.Pods.Delete(22)))
		}
		if diff := difference(before, dump(t, d)); diff != "" {
			t.Errorf("left behind:\n%s", diff)
		}
		if d.TCX.Len() != 0 || d.Pods.Usage().Used != 0 {
			t.Errorf("%d interfaces have a program, %d entries are in use", d.TCX.Len(), d.Pods.Usage().Used)
		}
	})
}

func TestPutPodRefuses(t *testing.T) {
	needRoot(t)
	inNamespace(t, podPorts, func() {
		d := open(t)
		must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
		must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.244.1.9/32"), Policy: "one"}))
		must(t, d.Steering.PutLocal(single(addr("10.244.1.1"))))
		before := dump(t, d)
		for name, p := range map[string]pod.Pod{
			"no such interface":    podAt(77, "10.244.1.2"),
			"an interface of 0":    podAt(0, "10.244.1.2"),
			"no MAC":               {Ifindex: 21, Addresses: addrs("10.244.1.2")},
			"a steered address":    podAt(21, "10.244.1.9"),
			"the node's address":   podAt(21, "10.244.1.1"),
			"a multicast address":  podAt(21, "ff02::1"),
			"no address's value":   {Ifindex: 21, MAC: hostA, Addresses: []netip.Addr{{}}},
			"a link-local address": podAt(21, "fe80::2"),
			"two of one family":    podAt(21, "10.244.1.2", "10.244.1.3"),
		} {
			if err := d.Pods.Put(p); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if diff := difference(before, dump(t, d)); diff != "" || len(d.Pods.List()) != 0 || d.TCX.Len() != 0 {
			t.Errorf("left behind: %v, %v\n%s", d.Pods.List(), d.TCX.Len(), diff)
		}
		must(t, d.Pods.Put(podAt(21, "10.244.1.2")))
		err := d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.244.1.2/32"), Policy: "one"})
		if !errors.Is(err, ErrTaken) {
			t.Errorf("a pod's address is steered: %v", err)
		}
	})
}

// TestPodsAreSwept: what nobody puts again goes, the entry and the uplink too;
// so do pins of interfaces that are gone.
func TestPodsAreSwept(t *testing.T) {
	path := pinPath(t)
	ports := append(podPorts, model.Port{Name: "up", Ifindex: 23})
	inNamespace(t, ports, func() {
		open := func() *DataPlane {
			d, err := Open(Options{PinPath: path, Limits: smallLimits})
			must(t, err)
			return d
		}
		d := open()
		before := dump(t, d)
		must(t, d.Pods.Put(podAt(21, "10.244.1.2")))
		must(t, d.Pods.Put(podAt(22, "10.244.1.3")))
		must(t, d.TCX.AttachUplink(23))
		must(t, d.TCX.AttachEntry(123))
		must(t, d.Close())
		if links := list(t, path, "links"); len(links) != 4 {
			t.Errorf("links pinned: %v", links)
		}
		must(t, exec.Command("ip", "link", "del", "pod2").Run())
		d = open()
		if links := list(t, path, "links"); len(links) != 3 {
			t.Errorf("links pinned once an interface has gone: %v", links)
		}
		if pods := d.Pods.List(); len(pods) != 2 {
			t.Errorf("pods of the daemon before: %v", pods)
		}
		must(t, d.Sweep())
		if links := list(t, path, "links"); len(links) != 0 || len(d.Pods.List()) != 0 {
			t.Errorf("swept, but there are %v and %v", links, d.Pods.List())
		}
		if diff := difference(before, dump(t, d)); diff != "" {
			t.Errorf("left behind:\n%s", diff)
		}
		must(t, d.Close())
		must(t, Remove(path))
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("pins are left: %v", err)
		}
	})
}
