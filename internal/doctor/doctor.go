package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/netdev"
)

// Level is how a check ended.
type Level string

const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, but not all of it, or not as well
	Fail Level = "fail" // it does not work
)

func (l Level) rank() int { return slices.Index([]Level{OK, Warn, Fail}, l) }

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Fix says what to do, empty if nothing is.
	Fix string `json:"fix,omitempty"`
	// Command mends it when it is run on this machine, in this network
	// namespace; empty if no single command does.
	Command []string `json:"command,omitempty"`
}

// Prober tries what the data path needs of the kernel. Each name is there with
// what is wrong, nil if nothing.
type Prober interface {
	Features() map[string]error
}

// ProberFunc is a function as a Prober.
type ProberFunc func() map[string]error

// Features calls the function.
func (f ProberFunc) Features() map[string]error { return f() }

// Options are what Run is told.
type Options struct {
	Prober Prober
	// Interfaces are those of the configuration; all Ethernet links that are
	// up, if there are none.
	Interfaces []string
	// GTPUOverIPv4 says that the configuration sends GTP-U from IPv4 addresses.
	GTPUOverIPv4 bool
	// Segments is the longest segment list, which MTUs must have room for: 12
	// unless set.
	Segments int
	// Proc and BPFFS are where procfs and bpffs are mounted: /proc and
	// /sys/fs/bpf unless set.
	Proc, BPFFS string
}

// Run makes all checks, those of the machine first.
func Run(o Options) []Check {
	o.Segments = cmp.Or(o.Segments, 12)
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.BPFFS = cmp.Or(o.BPFFS, "/sys/fs/bpf")
	checks := []Check{kernelVersion()}
	if o.Prober != nil {
		checks = append(checks, features(o.Prober.Features())...)
	}
	checks = append(checks, capabilities(o.Proc)...)
	checks = append(checks, bpffs(o.BPFFS), jit(o.Proc))
	checks = append(checks, forwarding(o.Proc)...)
	return append(checks, interfaces(o)...)
}

// Worst is the worst level among checks, OK if there are none.
func Worst(checks []Check) Level {
	worst := OK
	for _, c := range checks {
		if c.Level.rank() > worst.rank() {
			worst = c.Level
		}
	}
	return worst
}

// interfaces looks at each interface, in this network namespace.
func interfaces(o Options) []Check {
	inspector, err := netdev.NewInspector()
	if err != nil {
		return []Check{{Name: "interfaces", Level: Fail, Detail: err.Error()}}
	}
	defer inspector.Close()
	s, err := inspector.Snapshot()
	if err != nil {
		return []Check{{Name: "interfaces", Level: Fail, Detail: err.Error()}}
	}
	names := o.Interfaces
	if len(names) == 0 {
		for _, l := range s.Links {
			if l.Ethernet && l.Up && !l.Loopback {
				names = append(names, l.Name)
			}
		}
	}
	var checks []Check
	for _, name := range names {
		l, ok := s.Link(name)
		if !ok {
			checks = append(checks, Check{
				Name: name + ": present", Level: Fail, Detail: "there is no such interface",
				Fix: "correct the name in the configuration, or create the interface: culvert attaches to it when it appears",
			})
			continue
		}
		checks = append(checks, oneInterface(inspector, s, l, o)...)
	}
	return checks
}

func oneInterface(i *netdev.Inspector, s *netdev.Snapshot, l netdev.Link, o Options) []Check {
	f, err := i.Facts(l.Name)
	if err != nil {
		return []Check{{Name: l.Name + ": offloads", Level: Warn, Detail: err.Error()}}
	}
	view := device{Link: l, Facts: f, segments: o.Segments}
	if peer, ok := s.LinkByIndex(f.PeerIfindex); ok && f.PeerIfindex != 0 && peer.Kind == "veth" && !l.ParentElsewhere {
		pf, err := i.Facts(peer.Name)
		if err == nil {
			view.peer, view.peerFacts = peer.Name, &pf
		}
	}
	checks := []Check{
		view.up(), view.nativeXDP(), view.redirectTarget(), view.lro(), view.vlanTags(),
		view.partialChecksums(), view.segmentation(), view.headroom(), view.nativeMTU(),
	}
	checks = append(checks, rpFilter(o.Proc, l.Name))
	if o.GTPUOverIPv4 {
		checks = append(checks, acceptLocal(o.Proc, l.Name))
	}
	return slices.DeleteFunc(checks, func(c Check) bool { return c.Name == "" })
}

// fix is a check with a command that mends it.
func (c Check) fix(format string, args ...any) Check {
	c.Fix = fmt.Sprintf(format, args...)
	c.Command = strings.Fields(c.Fix)
	return c
}

// advice is a check with words on how to mend it.
func (c Check) advice(format string, args ...any) Check {
	c.Fix = fmt.Sprintf(format, args...)
	return c
}
