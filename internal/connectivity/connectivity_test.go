package connectivity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/probe"
)

// quick has no test wait for what does not come.
func quick(t *testing.T) {
	t.Helper()
	was, moment := policyTime, serviceTime
	policyTime, serviceTime = 300*time.Millisecond, 0
	t.Cleanup(func() { policyTime, serviceTime = was, moment })
}

func options() Options {
	return Options{Ports: Ports{Pod: 8080, Host: 27182, Service: 80}, Start: time.Second, Progress: io.Discard}
}

func failures(r *Report) (out []string) {
	for _, row := range r.Checks {
		if row.Result == Fail {
			out = append(out, row.Check+" "+row.From+" "+row.To+": "+row.Detail)
		}
	}
	return out
}

func TestSound(t *testing.T) {
	quick(t)
	f := newFake(3)
	o := options()
	o.Outside = []netip.Addr{addr("192.0.2.1")}
	r, err := Run(t.Context(), f, o)
	if err != nil || !r.Pass || len(r.Hints) > 0 || f.cleaned != 1 || len(f.policies) != 0 {
		t.Fatalf("%v, hints %v, failed %q, cleaned %d times, policies %v", err, r.Hints, failures(r), f.cleaned, f.policies)
	}
	counts := map[string]int{}
	for _, row := range r.Checks {
		counts[row.Check]++
		if row.Result != Pass || row.Lost != 0 {
			t.Errorf("%+v", row)
		}
	}
	for check, want := range map[string]int{
		"agent is ready": 3, "pods start": 3, "node to node, UDP": 6,
		"pod to pod of the same node, ping": 6, "pod to pod of another node, TCP": 12, "pod to its node, UDP": 3,
		"node to another's pod, UDP": 6, // nodes have IPv4 only
		"pod to ClusterIP, TCP":      6, "node to ClusterIP, UDP": 3, "pod to NodePort, TCP": 9, "node to NodePort, TCP": 6,
		"8 MiB of TCP": 6, "longer than the path takes": 6,
		"policy: becomes active": 2, "policy: packets take it": 2, "policy: falls back": 2, "policy: switched there and back under load": 2,
		"pod to outside, ping": 3,
	} {
		if counts[check] != want {
			t.Errorf("%s: %d rows, want %d", check, counts[check], want)
		}
	}
}

// Each way to break a cluster is seen, and the detail or a hint names it.
func TestBroken(t *testing.T) {
	quick(t)
	lose := func(which func(Pod, Probe) bool) func(Pod, Probe, *Answer) {
		return func(from Pod, p Probe, a *Answer) {
			if which(from, p) {
				a.Received = 0
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*fake)
		want   []string // in a failed row, or a hint
	}{
		"packets to a node are lost": {func(f *fake) {
			f.broken = lose(func(from Pod, p Probe) bool {
				return from.Node != "node-3" && strings.HasPrefix(p.To.String(), "10.244.3.")
			})
		}, []string{"pod to pod of another node, ping node-1 node-3: 20 of 20 lost", "all that failed is to node-3", "all that failed is IPv4", "the data path of node-1 dropped "}},
		"one backend of a Service": {func(f *fake) {
			f.broken = func(from Pod, p Probe, a *Answer) {
				if p.Servers > 0 && from.Node == "node-2" {
					a.Servers = a.Servers[:2]
				}
			}
		}, []string{"pod to ClusterIP, TCP node-2 Service: no connection came to the pod on node-3"}},
		"no kube-proxy": {func(f *fake) {
			f.broken = func(_ Pod, p Probe, a *Answer) {
				if p.Port == 30080 && p.Kind == TCP {
					a.Received, a.Error = 0, "TCP to 10.0.0.1: dial tcp 10.0.0.1:30080: connect: connection refused"
				}
			}
		}, []string{"connection refused: nobody serves there, or something rejects it; does kube-proxy, or what stands for it, run on node-1?"}},
		"an underlay that takes less": {func(f *fake) {
			f.broken = func(_ Pod, p Probe, a *Answer) {
				if p.Full && p.Beyond == 0 {
					a.Received, a.Largest = 0, 1360
				}
			}
		}, []string{"of 1460 octets none arrives, of 1360 they do: the path takes less than nodes believe"}},
		"a black hole": {func(f *fake) {
			f.broken = func(_ Pod, p Probe, a *Answer) {
				if p.Beyond > 0 {
					a.Sent, a.TooLong = 3, 0
				}
			}
		}, []string{"longer than the path takes node-1 node-2: lost, and nobody says Packet Too Big"}},
		"an ICMP error": {func(f *fake) {
			f.broken = func(from Pod, p Probe, a *Answer) {
				if p.Kind == Ping {
					a.Received, a.Errors = 3, []probe.ICMPError{{From: addr("10.0.0.7"), Type: 3, Code: 1}}
				}
			}
		}, []string{"17 of 20 lost; unreachable from 10.0.0.7", "all that failed is ping"}},
		"a locator that nobody routes": {func(f *fake) {
			f.broken = lose(func(from Pod, p Probe) bool {
				return from.Node != "node-3" && (strings.HasPrefix(p.To.String(), "10.244.3.") || strings.HasPrefix(p.To.String(), "fd00:3::"))
			})
		}, []string{"node-3 is reached, its pods are not: does the network between nodes route its locator fc00:0:3::/48 to it?"}},
		"an agent that is not ready": {func(f *fake) { f.nodes[1].Problem = "culvert-x: exit code 1" },
			[]string{"agent is ready node-2 node-2: culvert-x: exit code 1"}},
		"an image that is not there": {func(f *fake) { f.startless["node-2"] = "image x: ImagePullBackOff" },
			[]string{"pods start node-2 node-2: client-node-2: image x: ImagePullBackOff"}},
		"a policy that is refused": {func(f *fake) { f.deaf = true },
			[]string{"policy: becomes active node-1 node-2: node-1 says Refused: spec.segmentLists: too many"}},
		"a policy that no packet takes": {func(f *fake) { f.blind = true }, []string{"policy: packets take it node-1 node-2: of ", "node-3 counts 0 at its SID fc00:0:3:1::"}},
		"a policy that stays":           {func(f *fake) { f.sticks = true }, []string{"policy: falls back node-1 node-2: node-1 still uses srv6policy:culvert-connectivity-ipv4"}},
		"packets lost in the switch": {func(f *fake) {
			f.broken = func(_ Pod, p Probe, a *Answer) {
				if p.Endless {
					a.Received--
				}
			}
		}, []string{"policy: switched there and back under load node-1 node-2: 1 of 50 lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(3)
			tt.change(f)
			r, err := Run(t.Context(), f, options())
			if err != nil || r.Pass || f.cleaned != 1 || len(f.policies) != 0 {
				t.Fatalf("%v, pass %v, cleaned %d times, policies %v", err, r.Pass, f.cleaned, f.policies)
			}
			found := append(failures(r), r.Hints...)
			for _, want := range tt.want {
				if !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, want) }) {
					t.Errorf("nothing says %q:\n%s", want, strings.Join(found, "\n"))
				}
			}
		})
	}
}

func TestSmallClusters(t *testing.T) {
	quick(t)
	for nodes, want := range map[int]Result{1: LeftOut, 2: Pass} {
		r, err := Run(t.Context(), newFake(nodes), options())
		i := slices.IndexFunc(r.Checks, func(row Row) bool { return strings.HasPrefix(row.Check, "policy") })
		if err != nil || !r.Pass || r.Checks[i].Result != want {
			t.Errorf("%d nodes: %v, %q, %+v", nodes, err, failures(r), r.Checks[i])
		}
	}
	f := newFake(3)
	f.nodes[0].Overlay = nil // as by BGP
	r, err := Run(t.Context(), f, options())
	if err != nil || !r.Pass || r.Checks[len(r.Checks)-1].Result != LeftOut {
		t.Errorf("without SIDs: %v, %+v", err, r.Checks[len(r.Checks)-1])
	}
}

func TestRefused(t *testing.T) {
	quick(t)
	f := newFake(2)
	f.there = true
	if _, err := Run(t.Context(), f, options()); !errors.Is(err, ErrThere) || f.cleaned != 0 {
		t.Errorf("somebody's pods: %v, cleaned %d times", err, f.cleaned)
	}
	o := options()
	o.Nodes = []string{"node-9"}
	if _, err := Run(t.Context(), newFake(2), o); err == nil || !strings.Contains(err.Error(), "no node node-9") {
		t.Errorf("a node that is not there: %v", err)
	}
	f = newFake(1)
	f.nodes[0].Problem = "there is no pod"
	if _, err := Run(t.Context(), f, options()); err == nil || !strings.Contains(err.Error(), "node-1: there is no pod") || f.made != nil {
		t.Errorf("no agent: %v", err)
	}
	f = newFake(1)
	f.startless["node-1"] = "image x cannot be pulled"
	if r, err := Run(t.Context(), f, options()); err == nil || !strings.Contains(err.Error(), "image x cannot be pulled") || r.Pass || f.cleaned != 1 {
		t.Errorf("no pods: %v, cleaned %d times", err, f.cleaned)
	}
}

// TestInterrupted: an interrupted test removes what it made, too.
func TestInterrupted(t *testing.T) {
	quick(t)
	f := newFake(3)
	ctx, stop := context.WithCancel(t.Context())
	f.broken = func(_ Pod, p Probe, _ *Answer) {
		if p.Bytes == manyBytes {
			stop()
		}
	}
	r, err := Run(ctx, f, options())
	if !errors.Is(err, context.Canceled) || r.Pass || f.cleaned != 1 || len(failures(r)) > 0 {
		t.Errorf("%v, pass %v, cleaned %d times, failed %q", err, r.Pass, f.cleaned, failures(r))
	}
}

func TestKept(t *testing.T) {
	quick(t)
	f, o := newFake(2), options()
	o.Keep = true
	if _, err := Run(t.Context(), f, o); err != nil || f.cleaned != 0 {
		t.Errorf("%v, cleaned %d times", err, f.cleaned)
	}
}

func TestFolded(t *testing.T) {
	row := func(check, from, to string, family Family, result Result, detail string) Row {
		return Row{Check: check, From: from, To: to, Family: family, Sent: 2, Received: 2, Result: result, Detail: detail}
	}
	r := Report{Checks: []Row{
		row("a", "1", "2", IPv4, Pass, "x"), row("a", "2", "1", IPv4, Pass, "x"), row("a", "1", "2", IPv6, Pass, "x"), row("a", "2", "1", IPv6, Fail, "y"),
		row("b", "1", "Service", IPv4, Pass, ""), row("b", "2", "Service", IPv4, Pass, "z"),
	}}
	want := []Row{
		{Check: "a", From: "2 nodes", To: "2 nodes", Family: IPv4, Sent: 4, Received: 4, Result: Pass, Detail: "x"},
		row("a", "1", "2", IPv6, Pass, "x"), row("a", "2", "1", IPv6, Fail, "y"),
		{Check: "b", From: "2 nodes", To: "Service", Family: IPv4, Sent: 4, Received: 4, Result: Pass},
	}
	if got := r.Folded(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestAnswers sends to a server of this process.
func TestAnswers(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ports, ended := make(chan uint16, 1), make(chan error, 1)
	go func() { ended <- probe.Server{Name: "me", Ready: func(p uint16) { ports <- p }}.Run(ctx) }()
	port := <-ports
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	list := []Probe{
		{Kind: UDP, To: addr("127.0.0.1"), Port: port, Count: 5, Size: 100},
		{Kind: TCP, To: addr("::1"), Port: port, Count: 40, Servers: 1, Bytes: 1 << 10},
		{Kind: TCP, To: addr("127.0.0.1"), Port: port, Count: 3, Bytes: 1 << 10},
		{Kind: UDP, To: addr("::1"), Port: port, Count: 2, Endless: true},
	}
	in, tell := io.Pipe()
	go func() {
		if json.NewEncoder(tell).Encode(list) == nil {
			time.Sleep(100 * time.Millisecond)
			_, _ = tell.Write([]byte{'\n'})
		}
	}()
	var out bytes.Buffer
	if err := Answers(ctx, in, &out); err != nil {
		t.Fatal(err)
	}
	var a []Answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil || len(a) != len(list) {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	if a[0].Sent != 5 || a[0].Received != 5 || a[0].MTU == 0 {
		t.Errorf("UDP: %+v", a[0])
	}
	if a[1].Sent != 2 || a[1].Received != 2 || !slices.Equal(a[1].Servers, []string{"me"}) {
		t.Errorf("until one server has answered: %+v", a[1])
	}
	if a[2].Sent != 6 || a[2].Received != 6 {
		t.Errorf("three connections: %+v", a[2])
	}
	if a[3].Sent <= 2 || a[3].Received != a[3].Sent {
		t.Errorf("until it was enough: %+v", a[3])
	}
}
