package netdev

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// aPod is a pod on a veth, and the host's network.
func aPod(t *testing.T) (node, inside *netns.NS, h *Host, p Pod) {
	node, inside = netns.New(t), netns.New(t)
	host, end := netns.Veth(t, node, "pod1", inside, "eth0")
	node.Do(t, func() {
		var err error
		if h, err = NewHost(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(h.Close)
	inside.Addr(t, "eth0", "10.244.1.2/32")
	inside.Addr(t, "eth0", "fd00:10:244:1::2/128")
	inside.IP(t, "route add 10.0.0.1 dev eth0")
	node.Addr(t, "lo", "10.0.0.1/32")
	return node, inside, h, Pod{Name: "pod1", Ifindex: host.Index, MAC: end.HardwareAddr, Addresses: []netip.Addr{
		netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("fd00:10:244:1::2"),
	}}
}

func TestHostPod(t *testing.T) {
	node, _, h, p := aPod(t)
	wrong := func() string {
		t.Helper()
		list, err := h.CheckPod(p)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(list, "; ")
	}
	if got := strings.Count(wrong(), "the host has no"); got != 4 {
		t.Errorf("before: %s", wrong())
	}
	for range 2 { // it may be repeated
		if err := h.PutPod(p); err != nil {
			t.Fatal(err)
		}
	}
	if got := wrong(); got != "" {
		t.Errorf("after: %s", got)
	}
	node.Run(t, "ping", "-c1", "-W2", "10.244.1.2")
	if got := node.IP(t, "route show proto "+fmt.Sprint(RouteProtocol)); !strings.Contains(got, "10.244.1.2 dev pod1 scope link") {
		t.Errorf("routes %q", got)
	}
	node.IP(t, "neigh del 10.244.1.2 dev pod1")
	node.IP(t, "route del fd00:10:244:1::2 dev pod1")
	if got := wrong(); !strings.Contains(got, "no permanent neighbour 10.244.1.2 at "+p.MAC.String()+" on pod1; the host has no route to fd00:10:244:1::2 by pod1") {
		t.Errorf("with a neighbour and a route less: %s", got)
	}
	for range 2 {
		if err := h.ForgetPod(p); err != nil {
			t.Errorf("forget: %v", err)
		}
	}
	if got := strings.Count(wrong(), "the host has no"); got != 4 {
		t.Errorf("forgotten: %s", wrong())
	}
	for range 2 {
		if err := h.DeletePod(p); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if got := node.IP(t, "link"); strings.Contains(got, "pod1") {
		t.Errorf("still there: %s", got)
	}
	if err := h.ForgetPod(p); err != nil {
		t.Errorf("forget what is gone: %v", err)
	}
}

// An interface of another name is not a pod's, whatever its index.
func TestHostPodElsewhere(t *testing.T) {
	node, _, h, p := aPod(t)
	for _, other := range []Pod{
		{Name: "pod2", Ifindex: p.Ifindex, MAC: p.MAC, Addresses: p.Addresses},
		{Name: "pod1", Ifindex: p.Ifindex + 1000, MAC: p.MAC, Addresses: p.Addresses},
	} {
		if err := h.PutPod(other); !errors.Is(err, ErrNoInterface) {
			t.Errorf("put: %v", err)
		}
		if list, err := h.CheckPod(other); err != nil || len(list) != 1 || !strings.Contains(list[0], other.Name) {
			t.Errorf("check: %v, %v", list, err)
		}
		if err := h.DeletePod(other); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if got := node.IP(t, "link"); !strings.Contains(got, "pod1") {
		t.Errorf("deleted: %s", got)
	}
}
