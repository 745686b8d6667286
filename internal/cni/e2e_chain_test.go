package cni

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// portmap, as a plugin after ours, finds in our result what it needs.
func TestPortmap(t *testing.T) {
	bin := pluginOfOthers(t, "portmap")
	m := newMember(t, "1.0.0", []map[string]any{{"type": "portmap", "backend": "nftables", "snat": true, "capabilities": map[string]bool{"portMappings": true}}}, filepath.Dir(bin))
	pod, client := netns.New(t), netns.New(t)
	netns.Veth(t, m.NS, "lan0", client, "c0")
	m.Addr(t, "lan0", "198.51.100.1/24")
	client.Addr(t, "c0", "198.51.100.2/24")
	rc := attachment(pod)
	rc.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
	r := m.mustAdd(t, rc)
	listen(t, pod, ":80")
	for name, from := range map[string]*netns.NS{"from afar": client, "from the node": m.NS} {
		if got := call(t, from, "198.51.100.1:8080"); got != "pod" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if err := m.check(t, rc); err != nil {
		t.Errorf("CHECK: %v (%v)", err, r)
	}
	if err := m.del(t, rc); err != nil {
		t.Errorf("DEL: %v", err)
	}
	m.clean(t)
}

// listen says "pod" to everybody who calls.
func listen(t *testing.T, pod *netns.NS, address string) {
	t.Helper()
	var l net.Listener
	var err error
	pod.Do(t, func() { l, err = net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("pod"))
			c.Close()
		}
	}()
}

func call(t *testing.T, from *netns.NS, address string) string {
	t.Helper()
	var c net.Conn
	var err error
	from.Do(t, func() { c, err = net.DialTimeout("tcp", address, 5*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// bandwidth limits a pod that says so, and slows no other.
func TestBandwidth(t *testing.T) {
	const megabits, amount = 20, 2 << 20
	bin := pluginOfOthers(t, "bandwidth")
	m := newMember(t, "1.0.0", []map[string]any{{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}}}, filepath.Dir(bin))
	slow, free, other := netns.New(t), netns.New(t), netns.New(t)
	rc := attachment(slow)
	rc.CapabilityArgs = map[string]any{"bandwidth": map[string]int{
		"ingressRate": megabits * 1e6, "ingressBurst": 1e6, "egressRate": megabits * 1e6, "egressBurst": 1e6,
	}}
	to := map[*netns.NS]string{slow: addresses(m.mustAdd(t, rc))[0]}
	for _, ns := range []*netns.NS{free, other} {
		to[ns] = addresses(m.mustAdd(t, attachment(ns)))[0]
	}
	const least = time.Duration(amount*8-3e6) * time.Second / (megabits * 1e6)
	for _, c := range []struct {
		name     string
		from, to *netns.NS
		limited  bool
	}{{"to the slow one", free, slow, true}, {"from it", slow, free, true}, {"without it", free, other, false}} {
		if took := transfer(t, c.from, c.to, to[c.to]+":9", amount); took >= least != c.limited {
			t.Errorf("%s: %d octets took %s, which is limited to %d Mbit/s: %t", c.name, amount, took, megabits, c.limited)
		}
	}
	if err := m.check(t, rc); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	for _, rc := range []*libcni.RuntimeConf{rc, attachment(free), attachment(other)} {
		if err := m.del(t, rc); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	m.clean(t)
}

// A pod that goes by the kernel reaches pods of other nodes, and they it.
func TestBandwidthAcrossNodes(t *testing.T) {
	bin := filepath.Dir(pluginOfOthers(t, "bandwidth"))
	after := []map[string]any{{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}}}
	near, far := newMemberAt(t, 1, newNode(t, "1.0.0", after, bin)), newMemberAt(t, 2, newNode(t, "1.0.0", after, bin))
	netns.Veth(t, near.NS, "up0", far.NS, "up0")
	for _, m := range []*member{near, far} {
		m.connect(t)
		m.start(t)
	}
	slow, other := netns.New(t), netns.New(t)
	rc := attachment(slow)
	rc.CapabilityArgs = map[string]any{"bandwidth": map[string]int{"ingressRate": 20e6, "ingressBurst": 1e6, "egressRate": 20e6, "egressBurst": 1e6}}
	to := map[*netns.NS][]string{slow: addresses(near.mustAdd(t, rc)), other: addresses(far.mustAdd(t, attachment(other)))}
	for i := range to[slow] {
		near.reaches(t, slow, to[other][i])
		far.reaches(t, other, to[slow][i])
	}
	const amount = 2 << 20
	const least = time.Duration(amount*8-3e6) * time.Second / 20e6
	for name, ns := range map[string][2]*netns.NS{"from it": {slow, other}, "to it": {other, slow}} {
		for _, a := range to[ns[1]] {
			if took := transfer(t, ns[0], ns[1], net.JoinHostPort(a, "9"), amount); took < least {
				t.Errorf("%s, %s: %s", name, a, took)
			}
		}
	}
}

// transfer is how long it takes until octets have arrived.
func transfer(t *testing.T, from, to *netns.NS, address string, octets int) time.Duration {
	t.Helper()
	var l net.Listener
	var c net.Conn
	var err error
	to.Do(t, func() { l, err = net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from.Do(t, func() { c, err = net.DialTimeout("tcp", address, 5*time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	go func() {
		c.Write(make([]byte, octets))
		c.Close()
	}()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	in.SetDeadline(time.Now().Add(30 * time.Second))
	if n, err := io.Copy(io.Discard, in); err != nil || n != int64(octets) {
		t.Fatalf("%d of %d octets: %v", n, octets, err)
	}
	return time.Since(begun)
}

// pluginOfOthers builds a plugin of others, from the version that the laboratory's
// clusters have.
func pluginOfOthers(t *testing.T, name string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", bin, "github.com/containernetworking/plugins/plugins/meta/"+name)
	cmd.Dir = "../../tools/cluster/cni"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return bin
}
