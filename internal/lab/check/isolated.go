package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const (
	senderLabel = "sender"
	// refusals is how many packets of a pod policies drop before it is believed to have tried.
	refusals = 50
	// sendersTime limits how long pods take to come up, and a change to be applied, on a busy
	// machine.
	sendersTime = 3 * time.Minute
)

// isolated starts pods that send from their first instant, under a NetworkPolicy that lets them
// send nothing: nothing arrives. Once the policy is gone packets of all of them do. The policy
// is there before all of the pods, or is made between them: then those made after it count,
// and of the others those that had not started.
func isolated(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	for _, before := range []int{0, c.Count / 2} {
		if err := isolateSenders(ctx, r, c, before, o); err != nil {
			return fmt.Errorf("%d pods before the policy: %w", before, err)
		}
	}
	return nil
}

// isolateSenders makes some pods, the policy, and the other pods.
func isolateSenders(ctx context.Context, r *disturb.Runner, c *topology.Check, before int, o *report.Outcome) (err error) {
	addresses := r.State.Pods[c.At]
	seen, stop, err := listenForPings(r, c.At, addresses)
	if err != nil {
		return err
	}
	defer stop()
	refused, err := refusalsOf(ctx, r)
	if err != nil {
		return err
	}
	var pods []map[string]any
	nodes := r.Kubelets()
	for i := range c.Count {
		pods = append(pods, cluster.SenderObject(fmt.Sprintf("sender-%d", i), nodes[i%len(nodes)].Name, map[string]string{senderLabel: "true"}, addresses))
	}
	defer func() {
		_, gone := cluster.Kubectl(ctx, r.Instance, nil, "delete", "pods,networkpolicies", "--selector", senderLabel)
		err = errors.Join(err, gone)
	}()
	// kubectl makes them in their order.
	if err := cluster.Create(ctx, r.Instance, slices.Insert(pods, before, closedToSend())); err != nil {
		return err
	}
	var late []sender
	err = instance.Await(ctx, sendersTime, func() error {
		late, err = sendersAfter(ctx, r, before, c.Count)
		if err != nil {
			return err
		}
		now, err := refusalsOf(ctx, r)
		if err == nil && now-refused < refusals*uint64(len(late)) {
			err = fmt.Errorf("policies have dropped %d packets of %d pods", now-refused, len(late))
		}
		return err
	})
	if err != nil {
		return err
	}
	arrived, silent := seen.snapshot(), 0
	for _, s := range late {
		if n := s.count(arrived); n != 0 {
			o.Fail("%d packets of %s arrived, which began after the policy", n, s.name)
			continue
		}
		silent++
	}
	o.Sent, o.Received = o.Sent+len(late), o.Received+silent
	o.Say("with %d of %d pods made before the policy, nothing arrived of %d of %d that began after it", before, c.Count, silent, len(late))
	if _, err := cluster.Kubectl(ctx, r.Instance, nil, "delete", "networkpolicies", "--selector", senderLabel); err != nil {
		return err
	}
	return instance.Await(ctx, sendersTime, func() error {
		arrived := seen.snapshot()
		for _, s := range late {
			for _, a := range s.addresses {
				if arrived[a] == 0 {
					return fmt.Errorf("without the policy nothing arrives of %s from %s: it says nothing that nothing did before", s.name, a)
				}
			}
		}
		return nil
	})
}

// closedToSend is a NetworkPolicy.
func closedToSend() map[string]any {
	labels := map[string]string{senderLabel: "true"}
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]any{"name": "senders", "labels": labels},
		"spec": map[string]any{"podSelector": map[string]any{"matchLabels": labels}, "policyTypes": []string{"Egress"}},
	}
}

// sender is a pod that runs.
type sender struct {
	name      string
	addresses []netip.Addr
}

func (s sender) count(arrived map[netip.Addr]int) (n int) {
	for _, a := range s.addresses {
		n += arrived[a]
	}
	return n
}

// sendersAfter are the senders that began after the policy was made: those that were made after
// it, and of the others those whose container started in a later second, since Kubernetes tells no
// more of either. All pods have to run.
func sendersAfter(ctx context.Context, r *disturb.Runner, before, count int) (late []sender, err error) {
	out, err := cluster.Kubectl(ctx, r.Instance, nil, "get", "pods", "--selector", senderLabel, "-o", "json")
	var list corev1.PodList
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		return nil, err
	}
	made, err := cluster.Kubectl(ctx, r.Instance, nil, "get", "networkpolicy", "senders", "-o", "jsonpath={.metadata.creationTimestamp}")
	if err != nil {
		return nil, err
	}
	policy, err := time.Parse(time.RFC3339, string(made))
	if err != nil {
		return nil, err
	}
	return lateSenders(list.Items, policy, before, count)
}

func lateSenders(pods []corev1.Pod, policy time.Time, before, count int) (late []sender, err error) {
	if len(pods) != count {
		return nil, fmt.Errorf("the API server has %d of %d pods", len(pods), count)
	}
	for _, p := range pods {
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil || len(p.Status.PodIPs) == 0 {
			return nil, fmt.Errorf("pod %s does not run", p.Name)
		}
		number := 0
		if _, err := fmt.Sscanf(p.Name, "sender-%d", &number); err != nil {
			return nil, err
		}
		if number < before && !p.Status.ContainerStatuses[0].State.Running.StartedAt.After(policy.Add(time.Second)) {
			continue
		}
		s := sender{name: p.Name}
		for _, ip := range p.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err != nil {
				return nil, err
			}
			s.addresses = append(s.addresses, a)
		}
		late = append(late, s)
	}
	return late, nil
}

// refusalsOf is how many packets policies let no pod send, on all nodes.
func refusalsOf(ctx context.Context, r *disturb.Runner) (sum uint64, err error) {
	seen, err := observe.Observe(ctx, r.Instance, nil)
	for _, n := range seen {
		sum += n.Packets[observe.Outcome]["policy_egress"]
	}
	return sum, err
}

// arrivals counts packets by who sends them.
type arrivals struct {
	mu sync.Mutex
	by map[netip.Addr]int
}

func (a *arrivals) snapshot() map[netip.Addr]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.by)
}

// listenForPings counts ICMP at addresses of a pod, until it is stopped.
func listenForPings(r *disturb.Runner, pod string, at []netip.Addr) (seen *arrivals, stop func(), err error) {
	seen = &arrivals{by: map[netip.Addr]int{}}
	var sockets []net.PacketConn
	stop = func() {
		for _, s := range sockets {
			_ = s.Close()
		}
	}
	for _, a := range at {
		network := "ip4:icmp"
		if a.Is6() {
			network = "ip6:ipv6-icmp"
		}
		err := r.Namespace(r.Node(pod)).Do(func() error {
			socket, err := net.ListenPacket(network, a.String())
			if err == nil {
				sockets = append(sockets, socket)
			}
			return err
		})
		if err != nil {
			stop()
			return nil, nil, err
		}
	}
	for _, s := range sockets {
		go seen.read(s)
	}
	return seen, stop, nil
}

// read counts until the socket is closed.
func (a *arrivals) read(s net.PacketConn) {
	octets := make([]byte, 100)
	for {
		_, from, err := s.ReadFrom(octets)
		if err != nil {
			return
		}
		if ip, ok := from.(*net.IPAddr); ok {
			addr, _ := netip.AddrFromSlice(ip.IP)
			a.mu.Lock()
			a.by[addr.Unmap()]++
			a.mu.Unlock()
		}
	}
}
