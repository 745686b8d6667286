package disrupt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// event is an action under load that can be repeated: the first time adds
// something, the second time removes it, and so on.
type event struct {
	name    string
	session bool // it is done to a UPF's session
	spread  bool // it is done where packets are spread over CPUs
	do      func(*Bench, context.Context, *device.Node) error
}

var events = []event{
	{name: "restart", do: func(_ *Bench, ctx context.Context, n *device.Node) error {
		return n.Daemon.Again(ctx, n.Daemon.Binary, unix.SIGTERM)
	}},
	{name: "kill", do: func(_ *Bench, ctx context.Context, n *device.Node) error {
		return n.Daemon.Again(ctx, n.Daemon.Binary, unix.SIGKILL)
	}},
	{name: "upgrade", do: (*Bench).upgrade},
	{name: "configuration", do: (*Bench).configuration},
	{name: "policy", do: (*Bench).policy},
	{name: "adjacency", do: (*Bench).adjacency},
	{name: "session", session: true, do: func(b *Bench, ctx context.Context, _ *device.Node) error { // handover to another gNB
		to := firstGNB
		if b.turn("session") {
			to = secondGNB
		}
		r, err := b.control.Groups[0].Handover(ctx, smf.Pace{Window: 1}, to, false)
		return errors.Join(err, r.Err())
	}},
	{name: "rescale", spread: true, do: (*Bench).rescale},
	{name: signallingEvent}, // measureSignalling
}

// EventNames returns the names that --events takes.
func EventNames() (names []string) {
	for _, e := range events {
		names = append(names, e.name)
	}
	return names
}

func eventOf(name string) event {
	return events[slices.IndexFunc(events, func(e event) bool { return e.name == name })]
}

// turn counts how often something was done: odd times go there, even ones back.
func (b *Bench) turn(what string) (there bool) {
	b.state[what]++
	return b.state[what]%2 == 1
}

// upgrade replaces the daemon by one with another build of the data path.
func (b *Bench) upgrade(ctx context.Context, n *device.Node) error {
	if b.other == "" { // copy the binary with another build of the data path in it
		program, err := os.ReadFile(b.Culvert)
		if err != nil {
			return err
		}
		if disturb.Rebuild(program) == 0 {
			return fmt.Errorf("%s holds no data path that could be replaced", b.Culvert)
		}
		b.other = filepath.Join(b.dir, "culvert")
		if err := os.WriteFile(b.other, program, 0o700); err != nil {
			return err
		}
	}
	_, before, err := n.Daemon.Version(ctx)
	if err != nil {
		return err
	}
	to := b.Culvert
	if b.turn("upgrade of " + n.Net.Node.Name) {
		to = b.other
	}
	if err := n.Daemon.Again(ctx, to, unix.SIGTERM); err != nil {
		return err
	}
	_, after, err := n.Daemon.Version(ctx)
	if err == nil && before == after {
		err = fmt.Errorf("the data path is build %.8s before and after", before)
	}
	return err
}

// configuration adds SIDs and policies, or takes them away.
func (b *Bench) configuration(ctx context.Context, n *device.Node) error {
	more := b.turn("configuration")
	change := func(c *config.Config) {
		c.SIDs = nil
		c.Policies = slices.DeleteFunc(c.Policies, func(p srpolicy.Policy) bool { return strings.HasPrefix(p.Name, morePolicies) })
		if !more {
			return
		}
		for i := range uint32(b.Entries) {
			c.SIDs = append(c.SIDs, srv6.LocalSID{SID: catalog.Prefix(catalog.SIDAt(catalog.SIDsOfFunction+i), 64), Behavior: srv6.End})
			c.Policies = append(c.Policies, catalog.OnePath(catalog.Name(morePolicies, i), srv6.HEncapsRed, catalog.Segment))
		}
	}
	has := func(ctx context.Context) (bool, error) {
		s, err := n.Daemon.Client.ListSIDs(ctx, &pb.ListSIDsRequest{})
		if err != nil {
			return false, err
		}
		return more == (len(s.Sids) >= b.Entries+len(device.Configuration().SIDs)), nil
	}
	return n.Daemon.Reload(ctx, change, has)
}

// morePolicies begins the names of those that come and go.
const morePolicies = "more"

// otherSegment is where the policy of the live path leads to every other time.
var otherSegment = catalog.Addr("2001:db8:e:2::")

// policy changes the path of the packets that are on it.
func (b *Bench) policy(ctx context.Context, n *device.Node) error {
	to := catalog.Segment
	if b.turn("policy") {
		to = otherSegment
	}
	change := func(c *config.Config) {
		for i, p := range c.Policies {
			if p.Name == catalog.PolicyReduced {
				c.Policies[i] = catalog.OnePath(catalog.PolicyReduced, srv6.HEncapsRed, to)
			}
		}
	}
	return n.Daemon.Reload(ctx, change, func(ctx context.Context) (bool, error) {
		list, err := n.Daemon.Client.ListPolicies(ctx, &pb.ListPoliciesRequest{Key: catalog.PolicyReduced})
		if err != nil || len(list.Policies) != 1 {
			return false, err
		}
		return list.Policies[0].Resource.SegmentLists[0].Segments[0] == to.String(), nil
	})
}

// adjacency gives the next hop another Ethernet address.
func (b *Bench) adjacency(ctx context.Context, n *device.Node) error {
	to := node.MAC(4).String()
	if b.turn("adjacency") {
		to = node.MAC(14).String()
	}
	err := n.Net.Node.Script(
		"neigh replace "+catalog.Peer4.String()+" lladdr "+to+" dev "+node.PortOut+" nud permanent",
		"neigh replace "+catalog.Peer6.String()+" lladdr "+to+" dev "+node.PortOut+" nud permanent")
	if err != nil {
		return err
	}
	return n.Daemon.Until(ctx, func(ctx context.Context) (bool, error) {
		list, err := n.Daemon.Client.ListAdjacencies(ctx, &pb.ListAdjacenciesRequest{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Adjacencies, func(a *pb.AdjacencyStatus) bool { return a.Interface == node.PortOut && a.Mac != to }), nil
	})
}

// rescale has two CPUs handle packets instead of one, or one instead of two.
func (b *Bench) rescale(ctx context.Context, n *device.Node) error {
	cpus := config.CPUs{b.cpus.Device}
	if b.turn("rescale") {
		cpus = config.CPUs{b.cpus.Device, b.cpus.Generator}
	}
	return n.Daemon.SpreadOver(ctx, cpus)
}

// flowsToSpread are those of the packets at the node that spreads them.
const flowsToSpread = 64

// openSpread makes a node whose packets one CPU hands to others.
func (b *Bench) openSpread(ctx context.Context) (err error) {
	if b.spread, err = device.NewNode("spread"); err != nil {
		return err
	}
	b.Later(b.spread.Close)
	c := device.Configuration()
	c.Spread = config.Spread{By: config.SpreadFlow, CPUs: config.CPUs{b.cpus.Device}}
	return b.spread.Start(ctx, b.Setting, c, b.cpus.Device)
}

// The session whose packets are held, and the two gNBs that it is at.
var (
	firstGNB  = smf.Tunnel{Address: catalog.FarGTPU, TEID: 0x100000}
	secondGNB = smf.Tunnel{Address: catalog.Addr("192.88.99.10"), TEID: 0x200000}
)

// openUPF makes a second node a UPF with one session.
func (b *Bench) openUPF(ctx context.Context) (err error) {
	if b.upf, err = device.NewNode("upf"); err != nil {
		return err
	}
	b.Later(b.upf.Close)
	c := catalog.Configuration(nil, 1)
	cost.MakeUPF(c, catalog.Prefix(catalog.UENet, 24))
	c.Limits.Sessions = 256
	if err := b.upf.Start(ctx, b.Setting, c, b.cpus.Device); err != nil {
		return err
	}
	b.control, err = cost.StartControl(ctx, b.upf.Net.Node, cost.Group{Dialect: smf.Free5GC, Spec: smf.Spec{
		Name: "ue", Count: 1, QFI: 9, NetworkInstance: "internet", UE4: netip.PrefixFrom(catalog.FirstUE, 24),
		Access: &firstGNB, Local: &smf.Local{Address: catalog.UPF, AccessTEID: catalog.FirstTEID},
	}})
	if err == nil {
		b.Later(b.control.Close)
	}
	return err
}
