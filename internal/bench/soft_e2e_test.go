package bench

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/dataplane/softrun"
	"github.com/culvert-net/culvert/internal/smf"
)

// softSessions is how many sessions the UPF has. At softRate all packets of a trial have
// room in a queue: none is lost, whatever else the machine does.
const (
	softSessions = 64
	softRate     = 3000
)

// softNode is a UPF with sessions as Open5GS makes them, and culvert-soft.
type softNode struct {
	*device.Node
	control *cost.Control
	binary  string
	ue      netip.Addr // of the first session
	place   uint32     // of the first session
}

// newSoftNode has interfaces with so many queues.
func newSoftNode(t *testing.T, queues int) *softNode {
	t.Helper()
	n := &softNode{Node: &device.Node{}, binary: filepath.Join(t.TempDir(), "culvert-soft")}
	if out, err := exec.Command("../../bpf/soft/build.sh", n.binary).CombinedOutput(); err != nil {
		t.Fatalf("build culvert-soft: %v\n%s", err, out)
	}
	var err error
	if n.Net, err = node.NewNetwork(node.RunName()+"-soft", queues); err != nil {
		t.Fatal(err)
	}
	n.Later(n.Net.Close)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.receive(); err != nil {
		t.Fatal(err)
	}
	c := catalog.Configuration(nil, 1)
	cost.MakeUPF(c, catalog.Prefix(catalog.UENet, 16))
	c.Limits.Sessions, c.Limits.Filters = 1<<16, 1<<12
	if err := n.Start(t.Context(), experiment.Setting{Culvert: culvert, BPFFS: "/sys/fs/bpf"}, c, 0); err != nil {
		t.Fatal(err)
	}
	functions := catalog.UPFFunctions(catalog.ShortSize)
	open5gs := functions[slices.Index(catalog.Names(functions), "open5gs_uplink")].Sessions
	n.place = open5gs.First(softSessions)
	n.ue = catalog.UEAt(catalog.UENumber(catalog.FirstUE) + n.place)
	spec := open5gs.SMFSpec(softSessions)
	spec.Local = &smf.Local{Address: catalog.UPF, AccessTEID: catalog.FirstTEID + n.place} // the generator counts them up
	n.control, err = cost.StartControl(t.Context(), n.Net.Node, cost.Group{Spec: spec, Dialect: smf.Open5GS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.control.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// receive has the sink receive by NAPI for good: XDP cannot send to it otherwise, while no
// receiver is there.
func (n *softNode) receive() error {
	return n.Net.Around.Do(func() error {
		if out, err := exec.Command("ethtool", "-K", "s0", "gro", "on").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool: %w: %s", err, out)
		}
		return nil
	})
}

func (n *softNode) pins() string { return filepath.Join("/sys/fs/bpf", n.Net.Node.Name) }

// start runs it on some interfaces; by default those that sessions need.
func (n *softNode) start(t *testing.T, workers int, interfaces ...string) *softrun.Soft {
	t.Helper()
	if len(interfaces) == 0 {
		interfaces = []string{node.PortN3, node.PortN6, node.PortOut}
	}
	var s *softrun.Soft
	err := n.Net.Node.Do(func() (err error) {
		s, err = softrun.Start(softrun.Options{Binary: n.binary, Pins: n.pins(), Interfaces: interfaces, Workers: workers})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (n *softNode) stop(s *softrun.Soft) (r softrun.Result, err error) {
	err = n.Net.Node.Do(func() (err error) {
		r, err = s.Stop()
		return err
	})
	return r, err
}

// links is what the node's interfaces run.
func (n *softNode) links(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	for _, port := range []string{node.PortN3, node.PortN6, node.PortOut} {
		text, err := exec.Command("ip", "-netns", n.Net.Node.Name, "-details", "-json", "link", "show", "dev", port).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		_, xdp, _ := bytes.Cut(text, []byte(`"xdp":`))
		xdp, _, _ = bytes.Cut(xdp, []byte("}"))
		out.Write(append(xdp, '\n'))
	}
	return out.String()
}

// packets are those of all sessions in a direction, as they come and as they leave.
func (n *softNode) packets(uplink bool) (sent, want traffic.Template) {
	user := traffic.Template{UEs: softSessions, Inner: traffic.Inner{Source: n.ue, Destination: catalog.Dst4, UE: traffic.Source}}
	if !uplink {
		user.Inner = traffic.Inner{Source: catalog.Dst4, Destination: n.ue, UE: traffic.Destination}
	}
	tunnelled := user
	tunnelled.TEIDs = softSessions
	if uplink {
		tunnelled.Outer = traffic.Outer{
			Kind: traffic.GTPU, Source: catalog.GNB, Destination: catalog.UPF,
			TEID: catalog.FirstTEID + n.place, Container: traffic.Uplink, QFI: 9,
		}
		sent, want = tunnelled, user
	} else {
		tunnelled.Outer = traffic.Outer{
			Kind: traffic.GTPU, Source: catalog.UPF, Destination: catalog.FarGTPU,
			TEID: catalog.FirstAccessTEID + n.place, Container: traffic.Downlink, QFI: 9,
		}
		sent, want = user, tunnelled
	}
	sent.Ethernet.Destination = traffic.MAC(node.MAC(1))
	return sent, want
}

// run sends packets from a CPU: on a veth it says by which queue they come.
func (n *softNode) run(t *testing.T, from string, cpu int, sent, want traffic.Template) (traffic.Outcome, error) {
	t.Helper()
	around := n.Net.Around.Path()
	p, err := traffic.Open(t.Context(), traffic.Options{
		TX: traffic.Port{Namespace: around, Interface: from}, RX: traffic.Port{Namespace: around, Interface: "s0"},
		CPU: cpu, Method: traffic.Live, CheckEvery: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	return p.Run(t.Context(), traffic.Trial{Template: sent, Expect: &want, Rate: softRate, Duration: 500 * time.Millisecond})
}

// through sends packets in a direction. All of them come out, as they must.
func (n *softNode) through(t *testing.T, uplink bool) traffic.Outcome {
	t.Helper()
	return n.throughFrom(t, uplink, 0)
}

func (n *softNode) throughFrom(t *testing.T, uplink bool, cpu int) traffic.Outcome {
	t.Helper()
	sent, want := n.packets(uplink)
	o, err := n.run(t, map[bool]string{true: "g2", false: "g3"}[uplink], cpu, sent, want)
	if err != nil {
		t.Fatal(err)
	}
	if o.Sent == 0 || o.Lost+o.Corrupt+o.Duplicated+o.Reordered+o.Unreadable != 0 || o.Received != o.Sent {
		t.Errorf("uplink %v: %+v", uplink, o)
	}
	return o
}

// counted is how many packets ended so.
func (n *softNode) counted(t *testing.T, reason string) uint64 {
	t.Helper()
	outcomes, err := n.Daemon.Outcomes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return outcomes[reason]
}

// TestSoft runs culvert-soft on a UPF again and again.
func TestSoft(t *testing.T) {
	needTwoCPUs(t)
	n := newSoftNode(t, 1)
	for _, c := range []struct {
		name string
		test func(*testing.T, *softNode)
	}{
		{"forwards", softForwards},
		{"guards", softGuards},
		{"passes", softPasses},
		{"refuses", softRefuses},
		{"daemon restarts", softDaemonRestarts},
		{"dies", softDies},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, n) })
	}
}

// gtpuOctets is what a downlink packet gets: IPv4, UDP, GTP-U with a container.
const gtpuOctets = 20 + 8 + 8 + 8

// used asks over N4 for the volume of all sessions.
func (n *softNode) used(t *testing.T) (octets uint64) {
	t.Helper()
	r, err := n.control.Groups[0].Query(t.Context(), smf.Pace{Window: 1})
	if err != nil || len(r.Usage) != softSessions {
		t.Fatalf("usage of %d sessions: %v", len(r.Usage), err)
	}
	for _, u := range r.Usage {
		for _, report := range u.Reports {
			octets += *report.Total
		}
	}
	return octets
}

// Sessions as Open5GS makes them, both directions: every packet comes out as it must, and
// is counted once by the daemon and by culvert-soft, and downlink, where such sessions have
// their URR, by the session. N4 goes on meanwhile, and the interfaces are then as before.
func softForwards(t *testing.T, n *softNode) {
	links, before := n.links(t), n.counted(t, "forwarded")
	s := n.start(t, 0)
	if len(s.Queues()) != 3 || n.links(t) == links {
		t.Errorf("queues %v of interfaces\n%s", s.Queues(), n.links(t))
	}
	up, down := n.through(t, true), n.through(t, false)
	sent := up.Sent + down.Sent
	if got, want := n.used(t), down.Octets-(14+gtpuOctets)*down.Sent; got != want {
		t.Errorf("sessions used %d octets, want %d", got, want)
	}
	r, err := n.stop(s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Received != sent || r.Sent != sent || r.NotReceived != 0 {
		t.Errorf("of %d packets culvert-soft says %+v", sent, r)
	}
	if counted := n.counted(t, "forwarded") - before; counted != sent {
		t.Errorf("%d packets were counted as %d", sent, counted)
	}
	if after := n.links(t); after != links {
		t.Errorf("interfaces ran\n%sand run\n%s", links, after)
	}
	n.through(t, true)
	if n.counted(t, "forwarded")-before <= sent {
		t.Error("the kernel does not count again")
	}
}

// Where culvert-soft dies, forwarding goes on in the kernel; where who started it dies, it ends.
func softDies(t *testing.T, n *softNode) {
	links := n.links(t)
	s := n.start(t, 0)
	n.through(t, true)
	if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	n.through(t, true)
	n.through(t, false)
	if r, err := n.stop(s); err == nil {
		t.Errorf("nobody says that it died: %+v", r)
	}
	if after := n.links(t); after != links {
		t.Errorf("interfaces ran\n%sand run\n%s", links, after)
	}
	s = n.start(t, 0)
	n.through(t, false)
	if err := s.Close(); err != nil { // as if who started it had died
		t.Error(err)
	}
	if after := n.links(t); after != links {
		t.Errorf("interfaces ran\n%sand run\n%s", links, after)
	}
}

// What it cannot take over is an error, and nothing is changed.
func softRefuses(t *testing.T, n *softNode) {
	links := n.links(t)
	for says, o := range map[string]softrun.Options{
		"2 workers: interface n3 has 1 queues":       {Interfaces: []string{node.PortN3}, Workers: 2},
		"interface none: No such device":             {Interfaces: []string{node.PortN3, "none"}},
		"the daemon is not attached to interface lo": {Interfaces: []string{node.PortN3, "lo"}},
		"open pinned map":                            {Interfaces: []string{node.PortN3}, Pins: "/sys/fs/bpf/none"},
		"culvert starts this program":                {},
		"interface n3 is named twice":                {Interfaces: []string{node.PortN3, node.PortN3}},
	} {
		o.Binary, o.Pins = n.binary, cmp.Or(o.Pins, n.pins())
		err := n.Net.Node.Do(func() error {
			_, err := softrun.Start(o)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q, got %v", says, err)
		}
		if after := n.links(t); after != links {
			t.Errorf("%s: interfaces ran\n%sand run\n%s", says, links, after)
		}
	}
	n.through(t, true)
}

// Each queue has a worker, or a worker has all queues.
func TestSoftWorkers(t *testing.T) {
	needTwoCPUs(t)
	cpus, err := proc.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	n := newSoftNode(t, 2)
	for workers, want := range map[int]int{0: 2, 1: 1} {
		s := n.start(t, workers)
		served := map[int]int{}
		for _, q := range s.Queues() {
			served[q.Worker]++
		}
		if len(s.Queues()) != 6 || len(served) != want {
			t.Errorf("%d workers: %v", workers, s.Queues())
		}
		var sent uint64
		for _, cpu := range cpus[:2] {
			sent += n.throughFrom(t, true, cpu).Sent + n.throughFrom(t, false, cpu).Sent
		}
		if r, err := n.stop(s); err != nil || r.Received != sent || r.Sent != sent {
			t.Errorf("%d workers: %+v of %d packets, %v", workers, r, sent, err)
		}
	}
}

// What is for the host comes to it.
func softPasses(t *testing.T, n *softNode) {
	if err := n.Net.Around.Script("addr add 192.0.2.9/24 dev g0"); err != nil {
		t.Fatal(err)
	}
	s := n.start(t, 0, node.PortIn)
	ping := exec.Command("ip", "netns", "exec", n.Net.Around.Name, "ping", "-c", "5", "-i", "0.05", "-W", "2", "192.0.2.1")
	if out, err := ping.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	r, err := n.stop(s)
	if err != nil || r.Passed < 5 || r.NotPassed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Who may not send has no effect: GTP-U from no peer, and for UEs from where no UE's
// packets come.
func softGuards(t *testing.T, n *softNode) {
	n.used(t) // until now
	s := n.start(t, 0)
	stranger, uplink := n.packets(true)
	stranger.Outer.Source = catalog.Addr("192.0.2.99")
	toUE, downlink := n.packets(false)
	for _, g := range []struct {
		from, reason string
		sent, want   traffic.Template
	}{
		{"g2", "peer", stranger, uplink},
		{"g2", "role", toUE, downlink},
	} {
		before := n.counted(t, g.reason)
		o, err := n.run(t, g.from, 0, g.sent, g.want)
		if err != nil && !errors.Is(err, traffic.ErrNothing) || o.Received != 0 {
			t.Errorf("%s: %+v, %v", g.reason, o, err)
		}
		time.Sleep(200 * time.Millisecond) // until the worker has added what it counted
		if dropped := n.counted(t, g.reason) - before; dropped != o.Sent || dropped == 0 {
			t.Errorf("%s: %d packets of %d", g.reason, dropped, o.Sent)
		}
	}
	if used := n.used(t); used != 0 {
		t.Errorf("sessions used %d octets", used)
	}
	r, err := n.stop(s)
	if err != nil || r.Sent+r.Passed != 0 || r.Dropped != r.Received {
		t.Errorf("%+v, %v", r, err)
	}
}

// A daemon that starts again takes its interfaces back.
func softDaemonRestarts(t *testing.T, n *softNode) {
	links := n.links(t)
	s := n.start(t, 0)
	if err := n.Daemon.Again(t.Context(), culvert, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if after := n.links(t); after != links {
		t.Errorf("interfaces ran\n%sand run\n%s", links, after)
	}
	n.through(t, true)
	if r, err := n.stop(s); err != nil || r.Received != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if after := n.links(t); after != links {
		t.Errorf("interfaces ran\n%sand run\n%s", links, after)
	}
	n.through(t, false)
}
