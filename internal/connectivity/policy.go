package connectivity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/overlay"
)

// detour is a path from one node to another through a third. The test adds and
// withdraws it while packets flow.
type detour struct {
	*test
	from, to, via Node
	client        Pod
	server        Pod
	families      []Family
	rows          []Row
}

// Preference of the test's paths: above the one that most users choose.
const Preference = 1000

// policyLook is the interval at which the test asks a node for its active path,
// policyRuns the number of packets that show that the node uses it.
const (
	policyLook = 200 * time.Millisecond
	policyRuns = 50
)

var policyTime = 15 * time.Second // shorter in tests

// policies tests one detour: from the first node to the second through the third;
// in a cluster of two nodes, through an extra segment of the second.
func (t *test) policies(ctx context.Context) ([]Row, error) {
	d, why := t.newDetour()
	if why != "" {
		return []Row{{Check: "policy", Result: LeftOut, Detail: why}}, nil
	}
	err := d.run(ctx)
	if err != nil && ctx.Err() == nil {
		d.row("policy", "").fail("%v", err)
		err = nil
	}
	return d.rows, err
}

// newDetour returns a detour, or the reason why the cluster allows none.
func (t *test) newDetour() (*detour, string) {
	if len(t.field.places) < 2 {
		return nil, "there is no second node"
	}
	a, b := t.field.places[0], t.field.places[1]
	c := t.field.places[min(2, len(t.field.places)-1)]
	d := &detour{test: t, from: t.node(a.name), to: t.node(b.name), via: t.node(c.name), client: a.pods[Client], server: b.pods[Server]}
	if d.from.Overlay == nil || d.to.Overlay == nil || d.via.Overlay == nil {
		return nil, "the nodes do not publish their SIDs in the Kubernetes API"
	}
	if !d.via.Overlay.End().IsValid() {
		return nil, fmt.Sprintf("%s publishes no SID for paths through it", d.via.Name)
	}
	for _, f := range Families() {
		_, asks := f.of(d.client.Addresses)
		_, answers := f.of(d.server.Addresses)
		if asks && answers && d.last(f).IsValid() {
			d.families = append(d.families, f)
		}
	}
	if len(d.families) == 0 {
		return nil, fmt.Sprintf("%s and %s have no family in common", d.from.Name, d.to.Name)
	}
	return d, ""
}

func (t *test) node(name string) Node {
	return t.nodes[slices.IndexFunc(t.nodes, func(n Node) bool { return n.Name == name })]
}

// last is the SID that packets of a family end at.
func (d *detour) last(f Family) netip.Addr {
	list := d.to.Overlay.IPv6
	if f == IPv4 {
		list = d.to.Overlay.IPv4
	}
	if len(list) == 0 {
		return netip.Addr{}
	}
	return list[len(list)-1]
}

// policy returns the detour of a family. If only the destination itself routes its
// DT SID, the node's own SID comes before it.
func (d *detour) policy(f Family) Policy {
	list := []netip.Addr{d.via.Overlay.End()}
	if end := d.to.Overlay.End(); end == d.to.Overlay.Address && d.via.Name != d.to.Name {
		list = append(list, end)
	}
	return Policy{
		Name: fmt.Sprintf("culvert-connectivity-%s", strings.ToLower(string(f))), Node: d.from.Name, Egress: d.to.Name, Family: f,
		Segments: append(list, d.last(f)),
	}
}

func (d *detour) row(check string, f Family) *Row {
	d.rows = append(d.rows, Row{Check: check, From: d.from.Name, To: d.to.Name, Family: f, Result: Pass})
	return &d.rows[len(d.rows)-1]
}

// run adds and withdraws the detour while packets flow.
func (d *detour) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	enough, say := io.Pipe()
	var probes []Probe
	for _, f := range d.families {
		to, _ := f.of(d.server.Addresses)
		probes = append(probes, Probe{Kind: UDP, To: to, Port: d.Ports.Pod, Count: policyRuns, Size: smallSize, Endless: true})
	}
	var answers []Answer
	flowed := make(chan error, 1)
	go func() {
		var err error
		answers, err = d.ask(ctx, d.client, probes, enough)
		flowed <- errors.Join(err, say.Close()) // nobody reads any more
	}()
	err := d.switched(ctx)
	for _, f := range d.families { // what is left of them
		err = errors.Join(err, d.cluster.DeletePolicy(context.WithoutCancel(ctx), d.policy(f).Name))
	}
	if err != nil {
		return err
	}
	if _, err := say.Write([]byte{'\n'}); err != nil {
		return errors.Join(fmt.Errorf("packets did not go on: %w", err), <-flowed)
	}
	if err := <-flowed; err != nil {
		return err
	}
	for i, f := range d.families {
		arrived(d.row("policy: switched there and back under load", f), answers[i])
	}
	return nil
}

// switched adds the detour, checks it and withdraws it.
func (d *detour) switched(ctx context.Context) error {
	if err := d.flows(ctx); err != nil {
		return err
	}
	for _, f := range d.families {
		if err := d.cluster.PutPolicy(ctx, d.policy(f)); err != nil {
			return err
		}
	}
	if active, err := d.active(ctx); !active || err != nil {
		return err
	}
	if err := d.taken(ctx); err != nil {
		return err
	}
	var list []task
	for _, l := range d.field.sized("policy: ") {
		for _, f := range d.families {
			list = append(list, between(l.check, f, d.client, d.server, l.probes[0], l.judge)...)
		}
	}
	rows, err := d.tasks(list)(ctx)
	d.rows = append(d.rows, rows...)
	if err != nil {
		return err
	}
	return d.back(ctx)
}

// view holds the fields of `culvert policy` and `culvert sid` that the test reads.
type view struct {
	SID      netip.Prefix `json:"sid"`
	Color    uint32       `json:"color"`
	Endpoint netip.Addr   `json:"endpoint"`
	Counter  struct {
		Packets uint64 `json:"packets"`
	} `json:"counter"`
	Paths []struct {
		Path   string `json:"path"`
		Active bool   `json:"active"`
		Why    string `json:"why"`
	} `json:"paths"`
}

// seen returns the policy of a family as its node reports it.
func (d *detour) seen(ctx context.Context, f Family) (view, error) {
	var list []view
	if err := d.see(ctx, d.from, &list, "policy"); err != nil {
		return view{}, err
	}
	color := uint32(overlay.ColorIPv6)
	if f == IPv4 {
		color = overlay.ColorIPv4
	}
	i := slices.IndexFunc(list, func(v view) bool { return v.Color == color && v.Endpoint == d.to.Overlay.Address })
	if i < 0 {
		return view{}, fmt.Errorf("%s has no policy to %s for %s", d.from.Name, d.to.Name, f)
	}
	return list[i], nil
}

// flows waits until packets of all families flow.
func (d *detour) flows(ctx context.Context) error {
	for _, f := range d.families {
		before, err := d.seen(ctx, f)
		if err != nil {
			return err
		}
		flow, err := until(ctx, policyTime, policyLook, func() (bool, error) {
			now, err := d.seen(ctx, f)
			return now.Counter.Packets > before.Counter.Packets, err
		})
		if err != nil {
			return err
		}
		if !flow {
			return fmt.Errorf("no packet of %s meets the policy of %s to %s", f, d.from.Name, d.to.Name)
		}
	}
	return nil
}

// active waits until the node says that it uses the detour.
func (d *detour) active(ctx context.Context) (bool, error) {
	all := true
	for _, f := range d.families {
		row, state, why := d.row("policy: becomes active", f), "", ""
		began := time.Now()
		active, err := until(ctx, policyTime, policyLook, func() (ok bool, err error) {
			state, why, err = d.cluster.PolicyState(ctx, d.policy(f))
			return state == "Active", err
		})
		switch {
		case err != nil:
			return false, err
		case !active && state == "":
			row.fail("the agent of %s says nothing of it within %v", d.from.Name, policyTime)
		case !active:
			row.fail("%s says %s: %s", d.from.Name, state, why)
		default:
			row.say("after %.1f s, segments %v", time.Since(began).Seconds(), d.policy(f).Segments)
		}
		all = all && active
	}
	return all, nil
}

// taken checks that packets go through the third node, whose counter must count all
// packets that the first node sends. taken reads the third node's counter before
// the first one's at the start, and after it at the end.
func (d *detour) taken(ctx context.Context) error {
	const check = "policy: packets take it"
	arrivedBefore, err := d.counted(ctx)
	if err != nil {
		return err
	}
	sentBefore, err := d.steered(ctx)
	if err != nil {
		return err
	}
	for _, f := range d.families {
		if err := d.send(ctx, check, f); err != nil {
			return err
		}
	}
	sent, err := d.steered(ctx)
	if err != nil {
		return err
	}
	arrived, err := d.counted(ctx)
	if err != nil {
		return err
	}
	sent, arrived = sent-sentBefore, arrived-arrivedBefore
	for i := range d.rows {
		if row := &d.rows[i]; row.Check != check {
			continue
		} else if arrived < sent {
			row.fail("of %d packets in the policies of %s, %s counts %d at its SID %v", sent, d.from.Name, d.via.Name, arrived, d.via.Overlay.End())
		} else {
			row.say("%s counts them at its SID %v", d.via.Name, d.via.Overlay.End())
		}
	}
	return nil
}

// steered are packets in the policies of the first node to the second.
func (d *detour) steered(ctx context.Context) (sum uint64, err error) {
	for _, f := range d.families {
		v, err := d.seen(ctx, f)
		if err != nil {
			return 0, err
		}
		sum += v.Counter.Packets
	}
	return sum, nil
}

// send adds a row about some packets from pod to pod.
func (d *detour) send(ctx context.Context, check string, f Family) error {
	rows, err := d.tasks(between(check, f, d.client, d.server, Probe{Kind: UDP, Port: d.Ports.Pod, Count: policyRuns, Size: packetSize}, arrived))(ctx)
	d.rows = append(d.rows, rows...)
	return err
}

// counted are packets at the third node's SID.
func (d *detour) counted(ctx context.Context) (uint64, error) {
	var list []view
	if err := d.see(ctx, d.via, &list, "sid"); err != nil {
		return 0, err
	}
	end := d.via.Overlay.End()
	for _, s := range list {
		if s.SID.Addr() == end {
			return s.Counter.Packets, nil
		}
	}
	return 0, fmt.Errorf("%s has no SID %v", d.via.Name, end)
}

// back withdraws the detour and checks that the node uses its earlier path again.
func (d *detour) back(ctx context.Context) error {
	for _, f := range d.families {
		if err := d.cluster.DeletePolicy(ctx, d.policy(f).Name); err != nil {
			return err
		}
	}
	for _, f := range d.families {
		var path, why string
		gone, err := until(ctx, policyTime, policyLook, func() (bool, error) {
			v, err := d.seen(ctx, f)
			path, why = "", "none of its paths is valid"
			for _, p := range v.Paths {
				if p.Active {
					path, why = p.Path, p.Why
				}
			}
			return !strings.Contains(path, d.policy(f).Name), err
		})
		if err != nil {
			return err
		}
		if err := d.send(ctx, "policy: falls back", f); err != nil {
			return err
		}
		if row := &d.rows[len(d.rows)-1]; !gone {
			row.fail("%s still uses %s: %s", d.from.Name, path, why)
		}
	}
	return nil
}
