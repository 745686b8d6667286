package doctor

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Level is how a check ended.
type Level string

// The levels, from the best to the worst.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, but not all of it, or not as well
	Fail Level = "fail" // it does not work
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Fix says what to do, empty if nothing is.
	Fix string `json:"fix,omitempty"`
	// Command fixes the problem when a user runs it on this machine, in this
	// network namespace. It is empty if no single command does.
	Command []string `json:"command,omitempty"`
}

// remedy is how to fix a problem, by a command that can be run here or otherwise.
type remedy struct {
	text    string
	command bool
}

func command(format string, args ...any) remedy { return remedy{fmt.Sprintf(format, args...), true} }
func advice(format string, args ...any) remedy  { return remedy{fmt.Sprintf(format, args...), false} }

// problem is something that a check may find.
type problem struct {
	there  bool
	level  Level
	detail string
	remedy
}

// check returns the first problem that is there, or else OK with the text good.
func check(name, good string, problems ...problem) Check {
	for _, p := range problems {
		if p.there {
			c := Check{Name: name, Level: p.level, Detail: p.detail, Fix: p.text}
			if p.command {
				c.Command = strings.Fields(p.text)
			}
			return c
		}
	}
	return Check{Name: name, Level: OK, Detail: good}
}

// Probe tries the features that the data path needs of the kernel. It returns an error
// for each, nil if the feature works.
type Probe func() map[string]error

// Options say what Run checks.
type Options struct {
	// Whose returns the name of an XDP program, and whether it is culvert's; nil: nobody knows.
	Whose                 func(id uint32) (name string, ours bool, err error)
	Features, PodFeatures Probe
	// Interfaces are those of the configuration, where XDP runs. If the configuration
	// names none and the node is in no cluster, they are all Ethernet links that are up.
	Interfaces []string
	// Overlay is of a member of a cluster; one that is found here is, too.
	Overlay *Overlay
	// GTPUOverIPv4 says that the configuration sends GTP-U from IPv4 addresses.
	GTPUOverIPv4 bool
	// Config is the configuration; nil: none is known.
	Config *config.Config
}

// Where procfs, sysfs and bpffs are mounted.
const (
	procfs   = "/proc"
	sysfs    = "/sys"
	bpffsDir = "/sys/fs/bpf"
)

// Run makes all checks, those of the machine first.
func Run(o Options) []Check {
	checks := []Check{kernelVersion()}
	n, err := look(&o)
	if n != nil {
		defer n.Close()
	}
	var others []capability
	if o.Overlay != nil {
		others = append(others, neededByMember)
	}
	if o.Config != nil && o.Config.Spread.IsSet() && o.Config.Spread.Method != config.SpreadCard {
		others = append(others, neededToSpread)
	}
	held := capabilities(procfs, others...)
	if !slices.ContainsFunc(held, func(c Check) bool { return c.Level == Fail }) { // else each would fail for want of them
		if o.Features != nil {
			checks = append(checks, features(o.Features())...)
		}
		if o.PodFeatures != nil && o.Overlay != nil {
			checks = append(checks, features(o.PodFeatures())...)
		}
	}
	checks = append(checks, held...)
	checks = append(checks, bpffs(bpffsDir), jit(procfs))
	if err != nil {
		return append(checks, Check{Name: "interfaces", Level: Fail, Detail: err.Error()})
	}
	checks = append(checks, n.userPlane()...)
	checks = append(checks, n.ports()...)
	checks = append(checks, sids(n)...)
	if o.Overlay != nil {
		return merged(append(checks, n.member()...))
	}
	v4, v6 := families(o.Config)
	return merged(slices.Concat(checks, forwarding(procfs, v4, v6, o.Config != nil), n.interfaces(o.Interfaces)))
}

// merged returns the checks with one line for each cause: what several interfaces have in
// common, and one command of sysctl(8) fixes, is one check.
func merged(checks []Check) (out []Check) {
	type cause struct {
		what, detail string
		level        Level
	}
	first := map[cause]int{} // index in out
	for _, c := range checks {
		of, what, isOfInterface := strings.Cut(c.Name, ": ")
		key := cause{what, c.Detail, c.Level}
		i, seen := first[key]
		if !isOfInterface || len(c.Command) < 3 || c.Command[0] != "sysctl" {
			out = append(out, c)
			continue
		}
		if !seen {
			first[key] = len(out)
			out = append(out, c)
			continue
		}
		o := &out[i]
		others, _, _ := strings.Cut(o.Name, ": ")
		o.Name = others + ", " + of + ": " + what
		o.Command = append(slices.Clone(o.Command), c.Command[2:]...)
		o.Fix = strings.Join(o.Command, " ")
	}
	return out
}

// families are those that packets to forward may be of: both, unless the node has sessions only.
func families(c *config.Config) (v4, v6 bool) {
	if c == nil || c.BGP.IsSet() || c.Overlay.IsSet() || !c.UPF.IsSet() {
		return true, true
	}
	return config.SessionFamilies(c)
}

// network is the state of this network namespace, and the options of the checks.
type network struct {
	*netdev.Inspector
	*netdev.Snapshot
	Options
}

// look reads the state of the network namespace. It fills in the interfaces of o if none are named.
func look(o *Options) (*network, error) {
	inspector, err := netdev.NewInspector()
	if err != nil {
		return nil, err
	}
	s, err := inspector.Snapshot()
	if err != nil {
		inspector.Close()
		return nil, err
	}
	if _, is := s.Link(netdev.EntryName); is && o.Overlay == nil {
		o.Overlay = &Overlay{}
	}
	for _, l := range s.Links {
		if o.Overlay == nil && len(o.Interfaces) == 0 && l.Ethernet && l.Up && !l.Loopback {
			o.Interfaces = append(o.Interfaces, l.Name)
		}
	}
	return &network{inspector, s, *o}, nil
}

// interfaces looks at those that XDP runs on.
func (n *network) interfaces(names []string) (checks []Check) {
	for _, name := range names {
		if l, ok := n.Link(name); ok {
			checks = append(checks, n.oneInterface(l)...)
		} else {
			checks = append(checks, absent(name))
		}
	}
	return checks
}

func absent(name string) Check {
	return check(name+": present", "", problem{true, Fail, "there is no such interface",
		advice("correct the name in the configuration, or create the interface: culvert attaches to it when it appears")})
}

// speaksSRv6 says whether packets of the node may carry segments. Without a
// configuration they may.
func speaksSRv6(o *Options) bool {
	c := o.Config
	return c == nil || config.SpeaksSRv6(c) || o.Overlay != nil
}

// pushed returns what headers packets that leave by an interface may get: those of GTP-U, and
// IPv6 with up to so many segments.
func pushed(n *network, name string) (gtpu bool, segments int) {
	c, port := n.Config, n.port(name)
	gtpu = port == nil || port.HasRole(config.RoleN3, config.RoleN9, config.RoleAny)
	if !speaksSRv6(&n.Options) || port != nil && !port.HasRole(config.RoleSR, config.RoleAny) {
		return gtpu, 0
	}
	if c == nil || c.BGP.IsSet() || c.Overlay.IsSet() { // others choose the paths
		return gtpu, mostSegments
	}
	segments = 1
	for _, p := range c.Policies {
		segments = max(segments, longest(p.SegmentLists))
	}
	for _, p := range c.CandidatePaths {
		segments = max(segments, longest(p.SegmentLists))
	}
	return gtpu, segments
}

func longest(lists []srpolicy.SegmentList) (n int) {
	for _, l := range lists {
		n = max(n, len(l.Segments))
	}
	return n
}

// needsRedirect are the packets that only the data path can send by an interface: its own answers,
// and what it looks up in another table than the kernel would.
func needsRedirect(port *config.Interface, c *config.Config) (packets []string) {
	isUPF := c != nil && c.UPF.IsSet() // whose daemon answers by a socket
	if !isUPF && (port == nil || port.HasRole(config.RoleN3, config.RoleN9, config.RoleAny)) {
		packets = append(packets, "answers to GTP-U Echo Requests")
	}
	if c != nil && slices.ContainsFunc(c.SIDs, func(s srv6.LocalSID) bool { return s.Table != 0 && s.Table != unix.RT_TABLE_MAIN }) {
		packets = append(packets, "packets of SIDs with a table of their own")
	}
	return packets
}

func (n *network) oneInterface(l netdev.Link) []Check {
	f, err := n.Facts(l.Name)
	if err != nil {
		return []Check{{Name: l.Name + ": offloads", Level: Warn, Detail: err.Error()}}
	}
	view := device{Link: l, Facts: f}
	if port := n.port(l.Name); port != nil {
		view.mode = port.Mode
	}
	if peer, ok := n.LinkByIndex(f.PeerIfindex); ok && f.PeerIfindex != 0 && peer.Kind == "veth" && !l.ParentElsewhere {
		if pf, err := n.Facts(peer.Name); err == nil {
			view.peer, view.peerFacts = peer.Name, pf
		}
	}
	checks := []Check{
		view.up(), view.foreign(n.Whose, n.port(l.Name) != nil), view.nativeXDP(), view.redirectTarget(needsRedirect(n.port(l.Name), n.Config)), view.lro(), view.vlanTags(),
		view.partialChecksums(), view.segmentation(), view.nativeMTU(),
	}
	if gtpu, segments := pushed(n, l.Name); gtpu || segments > 0 {
		checks = append(checks, view.headroom(segments))
	}
	if n.Config != nil {
		if view.interrupts, err = netdev.Interrupts(procfs, sysfs, l.Name); err != nil {
			checks = append(checks, Check{Name: l.Name + ": interrupts", Level: Warn, Detail: err.Error()})
		}
		checks = append(checks, view.queues(n.port(l.Name), n.Config, runtime.NumCPU()))
	}
	if !n.isForN4(l.Name) {
		checks = append(checks, rpFilter(procfs, l.Name))
	}
	if n.GTPUOverIPv4 {
		checks = append(checks, acceptLocal(procfs, l.Name))
	}
	return checks
}
