package cni

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// faulty fails at the nth of its steps: before it does anything, or after.
type faulty struct {
	kernel
	at, n int
	after bool
}

var errFaulty = errors.New("faulty")

func (f *faulty) step(do func() error) error {
	f.n++
	if f.n != f.at {
		return do()
	}
	if f.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errFaulty
}

func (f *faulty) create(v veth) (ifindex int, err error) {
	err = f.step(func() error { ifindex, err = f.kernel.create(v); return err })
	return ifindex, err
}

func (f *faulty) prepare(v veth) error {
	return f.step(func() error { return f.kernel.prepare(v) })
}

func (f *faulty) configure(v veth, a []address, mtu int) error {
	return f.step(func() error { return f.kernel.configure(v, a, mtu) })
}

// An ADD that fails anywhere leaves nothing: no link, no address, nothing in the
// pod.
func TestAddFails(t *testing.T) {
	for at := 1; at <= 3; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(at, after), func(t *testing.T) {
				n := newNode(t, "1.0.0", nil)
				a, _ := fakeAgent(t, n.socket)
				pod := netns.New(t)
				err := n.direct(t, pod, func() (kernel, error) {
					k, err := newLinux()
					return &faulty{kernel: k, at: at, after: after}, err
				})
				if !errors.Is(err, errFaulty) {
					t.Errorf("error %v", err)
				}
				nothingLeft(t, n, a, pod)
				n.mustAdd(t, attachment(pod))
			})
		}
	}
}

// direct is ADD in this process.
func (n *node) direct(t *testing.T, pod *netns.NS, open func() (kernel, error)) error {
	t.Helper()
	stdin := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "culvert", "type": "culvert-cni", "socket": %q}`, n.socket)
	return n.on(t, func(context.Context) error {
		return funcs(open).Add(&skel.CmdArgs{ContainerID: pod.Name, Netns: pod.Path, IfName: "eth0", StdinData: []byte(stdin)})
	})
}

func nothingLeft(t *testing.T, n *node, a *apitest.Agent, pod *netns.NS) {
	t.Helper()
	a.Err = nil
	if list, err := a.Pods(); err != nil || len(list) > 0 {
		t.Errorf("the agent has %+v, %v", list, err)
	}
	if n.links(t) > 0 || strings.Contains(pod.IP(t, "link"), "eth0") {
		t.Errorf("links left: %s%s", n.IP(t, "link"), pod.IP(t, "link"))
	}
}

// The same where the agent is what fails, or the pod.
func TestAddIsRefused(t *testing.T) {
	n := newNode(t, "1.0.0", nil)
	a, _ := fakeAgent(t, n.socket)
	pod := netns.New(t)
	a.Err = fmt.Errorf("%w in 10.244.1.0/24", pods.ErrExhausted)
	if _, err := n.add(t, attachment(pod)); code(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "10.244.1.0/24") {
		t.Errorf("no address: %v", err)
	}
	nothingLeft(t, n, a, pod)
	rc := attachment(pod)
	rc.NetNS = "/run/netns/none"
	if _, err := n.add(t, rc); err == nil || !strings.Contains(err.Error(), "/run/netns/none") {
		t.Errorf("no namespace: %v", err)
	}
	nothingLeft(t, n, a, pod)
	taken := netns.New(t)
	taken.IP(t, "link add eth0 type veth peer name other")
	if _, err := n.add(t, attachment(taken)); err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("an interface of that name is there: %v", err)
	}
	if list, _ := a.Pods(); len(list) > 0 || n.links(t) > 0 || !strings.Contains(taken.IP(t, "link"), "eth0") {
		t.Errorf("left: %+v, %d links, in the pod %s", list, n.links(t), taken.IP(t, "link"))
	}
}

func TestConfiguration(t *testing.T) {
	for _, c := range []struct {
		conf string
		code uint
		want string
	}{
		{`{"cniVersion": "1.0.0", "name": "x", "socket": 5}`, types.ErrDecodingFailure, "socket"},
		{`{"cniVersion": "1.0.0", "name": "x", "prevResult": {"cniVersion": "1.0.0", "interfaces": []}}`, types.ErrInvalidNetworkConfig, "first of the plugins"},
	} {
		f := funcs(func() (kernel, error) { return &linux{}, nil })
		err := f.Add(&skel.CmdArgs{ContainerID: "c", Netns: "/proc/self/ns/net", IfName: "eth0", StdinData: []byte(c.conf)})
		if code(err) != c.code || !strings.Contains(fmt.Sprint(err)+details(err), c.want) {
			t.Errorf("%s: %v", c.conf, err)
		}
	}
	f := funcs(func() (kernel, error) { return &linux{}, nil })
	err := f.Check(&skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(`{"cniVersion": "1.0.0", "name": "x"}`)})
	if code(err) != types.ErrInvalidNetworkConfig || !strings.Contains(err.Error(), "prevResult") {
		t.Errorf("CHECK without prevResult: %v", err)
	}
}

func details(err error) string {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Details
	}
	return ""
}

// Names are found again, and differ.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for i := range 10_000 {
		name := hostInterface(fmt.Sprint("container", i), "eth0")
		if len(name) > 15 || !strings.HasPrefix(name, "culv") || seen[name] {
			t.Fatalf("%s", name)
		}
		seen[name] = true
	}
	w, err := newWanted(&configuration{}, &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Args: "K8S_POD_NAME=web;FOO=bar"})
	if err != nil || w.pod.GetName() != "web" || w.mac[0]&3 != 2 {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := newWanted(&configuration{}, &skel.CmdArgs{Args: "nonsense"}); code(err) != types.ErrInvalidEnvironmentVariables {
		t.Errorf("CNI_ARGS: %v", err)
	}
}
