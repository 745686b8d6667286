package bench

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
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// event is something that is done under load. It can be done again and again:
// what one time adds, the next takes away.
type event struct {
	name    string
	session bool // it is done to a UPF's session
	do      func(*disruptBench, context.Context, *node) error
}

func events() []event {
	return []event{
		{name: "restart", do: func(_ *disruptBench, ctx context.Context, n *node) error {
			return n.daemon.again(ctx, n.net.node, n.daemon.binary, unix.SIGTERM)
		}},
		{name: "kill", do: func(_ *disruptBench, ctx context.Context, n *node) error {
			return n.daemon.again(ctx, n.net.node, n.daemon.binary, unix.SIGKILL)
		}},
		{name: "upgrade", do: (*disruptBench).upgrade},
		{name: "configuration", do: (*disruptBench).configuration},
		{name: "policy", do: (*disruptBench).policy},
		{name: "adjacency", do: (*disruptBench).adjacency},
		{name: "session", session: true, do: (*disruptBench).handover},
	}
}

func eventNames() (names []string) {
	for _, e := range events() {
		names = append(names, e.name)
	}
	return names
}

func eventOf(name string) event {
	all := events()
	return all[slices.IndexFunc(all, func(e event) bool { return e.name == name })]
}

// turn counts how often something was done: odd times go there, even ones back.
func (b *disruptBench) turn(what string) (there bool) {
	b.state[what]++
	return b.state[what]%2 == 1
}

// upgrade replaces the daemon by one with another build of the data path.
func (b *disruptBench) upgrade(ctx context.Context, n *node) error {
	if b.other == "" {
		if err := b.makeOther(); err != nil {
			return err
		}
	}
	_, before, err := n.daemon.version(ctx)
	if err != nil {
		return err
	}
	to := b.Culvert
	if b.turn("upgrade") {
		to = b.other
	}
	if err := n.daemon.again(ctx, n.net.node, to, unix.SIGTERM); err != nil {
		return err
	}
	_, after, err := n.daemon.version(ctx)
	if err == nil && before == after {
		err = fmt.Errorf("the data path is build %.8s before and after", before)
	}
	return err
}

// makeOther copies the binary with another build of the data path in it.
func (b *disruptBench) makeOther() error {
	program, err := os.ReadFile(b.Culvert)
	if err != nil {
		return err
	}
	if disturb.Rebuild(program) == 0 {
		return fmt.Errorf("%s holds no data path that could be replaced", b.Culvert)
	}
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return err
	}
	b.other = filepath.Join(dir, "culvert")
	return os.WriteFile(b.other, program, 0o700)
}

func (b *disruptBench) removeOther() error {
	if b.other == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(b.other))
}

// configuration adds SIDs and policies, or takes them away.
func (b *disruptBench) configuration(ctx context.Context, n *node) error {
	more := b.turn("configuration")
	change := func(c *config.Config) {
		c.SIDs = nil
		c.Policies = slices.DeleteFunc(c.Policies, func(p srpolicy.Policy) bool { return strings.HasPrefix(p.Name, morePolicies) })
		for i := range uint32(b.Entries) {
			if !more {
				return
			}
			c.SIDs = append(c.SIDs, srv6.LocalSID{SID: prefix(sidAt(sidsOfFunction+i), 64), Behavior: srv6.End})
			c.Policies = append(c.Policies, onePath(name(morePolicies, i), srv6.HEncapsRed, segment))
		}
	}
	has := func(ctx context.Context) (bool, error) {
		s, err := n.daemon.client.ListSIDs(ctx, &pb.ListSIDsRequest{})
		if err != nil {
			return false, err
		}
		return more == (len(s.Sids) >= b.Entries+len(localSIDs())), nil
	}
	return n.daemon.reload(ctx, change, has)
}

// morePolicies begins the names of those that come and go.
const morePolicies = "more"

// localSIDs are those that the device has all the time.
func localSIDs() []srv6.LocalSID {
	c := &config.Config{}
	for _, f := range forwarders() {
		if f.put != nil {
			f.put(c)
		}
	}
	return c.SIDs
}

// otherSegment is where the policy of the live path leads to every other time.
var otherSegment = addr("2001:db8:e:2::")

// policy changes the path of the packets that are on it.
func (b *disruptBench) policy(ctx context.Context, n *node) error {
	to := segment
	if b.turn("policy") {
		to = otherSegment
	}
	change := func(c *config.Config) {
		for i, p := range c.Policies {
			if p.Name == policyRed {
				c.Policies[i] = onePath(policyRed, srv6.HEncapsRed, to)
			}
		}
	}
	return n.daemon.reload(ctx, change, func(ctx context.Context) (bool, error) {
		list, err := n.daemon.client.ListPolicies(ctx, &pb.ListPoliciesRequest{Key: policyRed})
		if err != nil || len(list.Policies) != 1 {
			return false, err
		}
		return list.Policies[0].Resource.SegmentLists[0].Segments[0] == to.String(), nil
	})
}

// adjacency gives the next hop another Ethernet address.
func (b *disruptBench) adjacency(ctx context.Context, n *node) error {
	to := macOf(4).String()
	if b.turn("adjacency") {
		to = macOf(14).String()
	}
	err := n.net.node.script(
		"neigh replace "+peer4.String()+" lladdr "+to+" dev "+portOut+" nud permanent",
		"neigh replace "+peer6.String()+" lladdr "+to+" dev "+portOut+" nud permanent")
	if err != nil {
		return err
	}
	return n.daemon.until(ctx, func(ctx context.Context) (bool, error) {
		list, err := n.daemon.client.ListAdjacencies(ctx, &pb.ListAdjacenciesRequest{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Adjacencies, func(a *pb.AdjacencyStatus) bool { return a.Interface == portOut && a.Mac != to }), nil
	})
}

// The session whose packets are held, and the two gNBs that it is at.
var (
	firstGNB  = smf.Tunnel{Address: farGTPU, TEID: 0x100000}
	secondGNB = smf.Tunnel{Address: addr("192.88.99.10"), TEID: 0x200000}
)

// downlinkSession are the packets of a session to its UE.
func downlinkSession() forwarder {
	return forwarder{
		sent: traffic.Template{Inner: traffic.Inner{Source: dst4, Destination: firstUE}, Flows: 256},
		expect: &traffic.Template{Outer: traffic.Outer{
			Kind: traffic.GTPU, Source: upf, Destination: firstGNB.Address, TEID: firstGNB.TEID, Container: traffic.Downlink, QFI: 9,
		}},
	}
}

// openUPF makes a second node a UPF with one session.
func (b *disruptBench) openUPF(ctx context.Context) (err error) {
	if b.upf, err = newNode("upf"); err != nil {
		return err
	}
	c := configuration(nil, 1)
	c.GTPU.Pools = nil
	c.UPF = config.UPF{N4: []netip.Addr{n4UPF}, UEPools: []config.UEPool{{Prefixes: []netip.Prefix{prefix(ueNet, 24)}}}, EchoInterval: 3600}
	c.Limits.Sessions = 256
	if err := b.upf.start(ctx, b.Setting, c, b.cpus.device); err != nil {
		return err
	}
	b.control = &control{}
	err = b.upf.net.node.do(func() error {
		b.control.client, err = smf.Dial(smf.Options{
			UPF: netip.AddrPortFrom(n4UPF, smf.Port), Local: netip.AddrPortFrom(n4SMF, smf.Port), Dialect: smf.Free5GC,
		})
		return err
	})
	if err != nil {
		b.control = nil
		return err
	}
	if _, err := b.control.client.Associate(ctx); err != nil {
		return err
	}
	group, err := b.control.client.Add(smf.Spec{
		Name: "ue", Count: 1, QFI: 9, NetworkInstance: "internet", UE4: netip.PrefixFrom(firstUE, 24),
		Access: &firstGNB, Local: &smf.Local{Address: upf, AccessTEID: firstTEID},
	})
	if err != nil {
		return err
	}
	b.control.groups = []*smf.Group{group}
	_, err = perform(ctx, smf.Pace{Window: window}, group.Establish, group.Forward)
	return err
}

// handover switches the session's FAR to another gNB.
func (b *disruptBench) handover(ctx context.Context, _ *node) error {
	to := firstGNB
	if b.turn("session") {
		to = secondGNB
	}
	r, err := b.control.groups[0].Handover(ctx, smf.Pace{Window: 1}, to, false)
	return errors.Join(err, r.Err())
}
