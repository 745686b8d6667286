package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

const sessions = 8

// configuration is an end of `sessions` tunnels, and a translator.
func configuration() string {
	var b strings.Builder
	b.WriteString(`
interfaces: [{name: in0, roles: [n3, n6], peers: any}, {name: out0, roles: [n6]}]
gtpu: {addresses: [192.0.2.1], pools: [10.45.0.0/24]}
metrics: {listen: "off"}
log: {level: warn}
`)
	b.WriteString("tunnels:\n")
	for i := range sessions {
		fmt.Fprintf(&b, "- {name: ue%d, local_teid: %d, decapsulate: true, remote: 198.51.100.9, remote_teid: %d, qfi: 9, pdu_session_container: downlink}\n",
			i, 0x1001+i, 0x2001+i)
	}
	b.WriteString("steering:\n")
	b.WriteString(`- {prefix: 10.2.0.0/24, h_m_gtp4_d: {sid_prefix: "fc00:b:4e::/48", source_prefix: "fc00:a:ff::/64", pdu_type: ipv4v6}}` + "\n")
	for i := range sessions {
		fmt.Fprintf(&b, "- {prefix: 10.45.0.%d, tunnel: ue%d}\n", i+1, i)
	}
	return b.String()
}

// culvert starts the real daemon between tx and rx.
func culvert(t *testing.T) Options {
	t.Helper()
	around, node := netns.New(t), netns.New(t)
	quietly(t, around)
	_, in := netns.Veth(t, around, "tx", node, "in0")
	rx, _ := netns.Veth(t, around, "rx", node, "out0")
	around.IP(t, "link set rx mtu 1600")
	node.IP(t, "link set out0 mtu 1600") // for 1518 octets and a tunnel
	node.Sysctl(t, "net.ipv4.ip_forward", "1")
	node.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	node.Addr(t, "in0", "192.0.2.1/24")
	node.Addr(t, "out0", "198.51.100.1/24")
	node.Addr(t, "out0", "2001:db8:2::1/64")
	node.IP(t, "neigh add 198.51.100.2 lladdr "+rx.HardwareAddr.String()+" dev out0 nud permanent")
	node.IP(t, "neigh add 2001:db8:2::2 lladdr "+rx.HardwareAddr.String()+" dev out0 nud permanent")
	node.IP(t, "neigh add 198.51.100.9 lladdr "+rx.HardwareAddr.String()+" dev out0 nud permanent")
	node.IP(t, "route add default via 198.51.100.2")
	node.IP(t, "route add default via 2001:db8:2::2")

	dir := t.TempDir()
	binary, file := filepath.Join(dir, "culvert"), filepath.Join(dir, "culvert.yaml")
	if out, err := exec.Command("go", "build", "-o", binary, "../../../cmd/culvert").CombinedOutput(); err != nil {
		t.Fatalf("build culvert: %v: %s", err, out)
	}
	socket := filepath.Join(dir, "s")
	if err := os.WriteFile(file, []byte(configuration()+"api: {socket: "+socket+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pins := filepath.Join("/sys/fs/bpf", node.Name)
	daemon := node.Command(binary, "run", "--config", file, "--pin-path", pins, "--state", filepath.Join(dir, "state.db"))
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drops, _ := exec.Command(binary, "drops", "--socket", socket).CombinedOutput() // for the log
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
		if out, err := exec.Command(binary, "unpin", "--pin-path", pins).CombinedOutput(); err != nil {
			t.Errorf("unpin: %v: %s", err, out)
		}
		if t.Failed() {
			t.Logf("culvert said: %s; dropped: %s", log.String(), drops)
		}
	})
	toNode.Destination, fromNode.Destination = MAC(in.HardwareAddr), MAC(rx.HardwareAddr)
	await(t, func() bool {
		out, err := exec.Command(binary, "status", "--socket", socket).CombinedOutput()
		return err == nil && strings.Count(string(out), "native") >= 2
	})
	return Options{TX: Port{around.Path, "tx"}, RX: Port{around.Path, "rx"}, Method: Live, CheckEvery: 1, CPU: 1,
		Watch: map[string]int{"culvert": daemon.Process.Pid}}
}

// The Ethernet addresses on both sides of the node that a test made.
var toNode, fromNode Ethernet

func await(t *testing.T, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ready(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("culvert did not become ready")
		}
	}
}

// What the daemon makes of GTP-U, of users' packets, and of what it translates
// is what it must be, packet by packet; and what it is not is said.
func TestThroughCulvert(t *testing.T) {
	options := culvert(t)
	uplink := gtpu4()
	uplink.Ethernet, uplink.Outer.Destination, uplink.Outer.TEID = toNode, addr("192.0.2.1"), 0x1001
	uplink.Outer.Source, uplink.Sources = addr("192.0.2.20"), 30
	uplink.Inner.Source, uplink.TEIDs, uplink.UEs = addr("10.45.0.1"), sessions, sessions

	downlink := Template{Ethernet: toNode, Inner: Inner{Source: addr("203.0.113.1"), Destination: addr("10.45.0.1"), UE: Destination}, UEs: sessions, Flows: 50, IMIX: true}
	tunnel := Outer{Kind: GTPU, Source: addr("192.0.2.1"), Destination: addr("198.51.100.9"), TEID: 0x2001, Container: Downlink, QFI: 9}

	translated := uplink
	translated.Outer.Destination = addr("10.2.0.1")
	srv6 := Outer{Kind: SRv6, Source: addr("fc00:a:ff:0:c000:214::"), SourceNumberAt: 8, Segments: addresses("fc00:b:4e:a02:1:2400:10:100"), NumberAt: 11, Reduced: true}

	wrong := tunnel
	wrong.QFI = 8
	for name, c := range map[string]struct {
		send, expect Template
		corrupt      string // all packets are
	}{
		"decapsulation":      {uplink, Template{Ethernet: fromNode, Inner: uplink.Inner, UEs: sessions}, ""},
		"encapsulation":      {downlink, Template{Ethernet: fromNode, Outer: tunnel, TEIDs: sessions}, ""},
		"translation":        {translated, Template{Ethernet: fromNode, Outer: srv6, TEIDs: sessions, Sources: 30}, ""},
		"another QFI":        {downlink, Template{Outer: wrong, TEIDs: sessions}, WrongHeader},
		"always the first":   {downlink, Template{Outer: tunnel}, WrongHeader}, // TEID
		"without the tunnel": {downlink, Template{Inner: downlink.Inner, UEs: sessions}, WrongLength},
	} {
		t.Run(name, func(t *testing.T) {
			o := options
			o.Expect = &c.expect
			out := whole(t, open(t, o), Trial{Template: c.send, Rate: 5000, Duration: 200 * time.Millisecond})
			if out.Received != 1000 || out.Lost+out.Duplicated+out.Reordered+out.Unexpected != 0 {
				t.Errorf("%+v", out)
			}
			if c.corrupt == "" && (out.Corrupt != 0 || out.Checked != 1000) {
				t.Errorf("%d corrupt, %d checked: %v", out.Corrupt, out.Checked, out.Faults)
			}
			if c.corrupt == WrongHeader && name == "always the first" {
				if got := out.Corruption[WrongHeader]; got != 1000-1000/sessions {
					t.Errorf("%d packets have another TEID, want %d", got, 1000-1000/sessions)
				}
			} else if c.corrupt != "" && out.Corruption[c.corrupt] != 1000 {
				t.Errorf("want all to be wrong by their %s: %v", c.corrupt, out.Corruption)
			}
			watchedProcess(t, out.CPU)
		})
	}
}

// whole is the first trial of which nothing is lost: on a machine where the
// kernel's threads wait for the CPU, queues overflow.
func whole(t *testing.T, p *Pair, trial Trial) (o Outcome) {
	t.Helper()
	for range 5 {
		var err error
		if o, err = p.Run(context.Background(), trial); err != nil && !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		if o.Received == o.Sent {
			break
		}
		t.Logf("of %d packets %d were lost and %d missed", o.Sent, o.Lost, o.Missed)
	}
	return o
}

// watchedProcess wants the daemon's share, the cores', and the kernel's threads.
func watchedProcess(t *testing.T, c CPUUsage) {
	t.Helper()
	softirqd := false
	for _, p := range c.Processes {
		if p.Name == "culvert" && (p.Resident < 1<<20 || p.Maps < 1<<20) {
			t.Errorf("the daemon: %+v", p)
		}
		softirqd = softirqd || strings.HasPrefix(p.Name, "ksoftirqd/")
	}
	if len(c.Processes) == 0 || !softirqd || len(c.Cores) == 0 {
		t.Errorf("%+v", c)
	}
	for _, core := range c.Cores {
		if sum := core.User + core.System + core.Softirq + core.Steal + core.Idle; sum < 0.9 || sum > 1.1 {
			t.Errorf("shares of core %d: %+v", core.CPU, core)
		}
	}
}
