package apply

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/sid"
	"github.com/culvert-net/culvert/internal/dataplane/tunnel"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf"
	"github.com/culvert-net/culvert/srv6"
)

// Table writes one table of the data path. Put adds or updates an entry, and writes
// nothing where nothing changes.
type Table[V, K any] struct {
	Put    func(V) error
	Delete func(K) error
}

// DataPath is what this package calls of the data path.
type DataPath struct {
	SetSettings func(settings.Settings) error
	// CheckSettings says what SetSettings would refuse.
	CheckSettings func(settings.Settings) error
	SetSpread     func(plan.Spread) error
	Policies      Table[srpolicy.Policy, string]
	// TurnLists takes segment lists out of policies, or back: was and now say why packets
	// do not take a list; empty: they do.
	TurnLists   func(was, now func(segments []netip.Addr) string)
	Tunnels     Table[gtpu.Tunnel, string]
	SIDs        Table[srv6.LocalSID, netip.Prefix]
	SessionSIDs Table[netip.Prefix, netip.Prefix]
	Links       Table[ethernet.Link, ethernet.Link]
	Steering    Table[class.Entry, srpolicy.Steering]
	SetClasses  func(names []string) error
	// SetSessionWays says which policies sessions' packets take that are in classes.
	SetSessionWays func(class.SessionWays) error
	// ClassifyPods classifies pods' packets.
	ClassifyPods func(*class.Table)

	// Interfaces, by index: the program, its settings, and the overlay's programs.
	SetPort    func(ifindex int, p port.Port) error
	DeletePort func(ifindex int) error
	Attach     func(ifindex int, mode attach.Mode) (attach.Mode, error)
	Detach     func(ifindex int) error
	Attached   func() map[int]attach.Mode
	Closing    Closing
	Uplinks    Table[int, int]
	Entry      Table[int, int]
	// Members are who is inside the SR domain of the cluster.
	Members Table[overlay.Member, overlay.Member]
	// GuardForwarded has nobody else reach its SIDs through the kernel, or ends that.
	GuardForwarded func(bool) error

	// What the kernel says.
	Locals      Table[netip.Prefix, netip.Prefix]
	Devices     Table[int, int]
	PutRoute    func(table uint32, p netip.Prefix, via []adjacency.Key) error
	DeleteRoute func(table uint32, p netip.Prefix) error
	// Rehearse says which of uses of next hops, one after the other, has no room.
	Rehearse         func([]adjacency.Use) (at int, err error)
	AdjacencyKeys    func() []adjacency.Key
	AdjacencyChanges func() (fresh, gone []adjacency.Key)
	SetNextHop       func(adjacency.Key, *adjacency.NextHop) error
	SetShared        func(adjacency.Key, []adjacency.Member) error
}

// Closing guards interfaces that the program is not on (docs/adr/0033-fail-closed.md).
type Closing struct {
	Put    func(plan.Port) error
	Delete func(ifindex int) error
	On     func() map[int]attach.Mode
}

// Writer writes tables to the data path, and knows what the data path holds.
type Writer struct {
	Tables   *plan.Tables           // that the data path holds
	Modes    map[string]attach.Mode // of attached interfaces, by name
	Failures map[desired.Ref]error  // what could not be written, and is tried again

	dp  *DataPath
	upf *upf.UPF // nil: the node is no user plane function
	log *slog.Logger
}

// NewWriter is one for a data path that may hold anything.
func NewWriter(dp *DataPath, sessions *upf.UPF, log *slog.Logger) *Writer {
	return &Writer{Tables: &plan.Tables{}, Modes: map[string]attach.Mode{}, Failures: map[desired.Ref]error{}, dp: dp, upf: sessions, log: log}
}

// Commit writes tables that were compiled of w.Tables in a scope, and then calls
// last, if that is set: all of it, or nothing. When a step fails, Commit takes back
// those before it.
func (w *Writer) Commit(to *plan.Tables, s plan.Scope, last func() error) error {
	steps := w.steps(to, s)
	var err error
	done := len(steps)
	for i, s := range steps {
		if failure := w.write(s.Do); failure != nil {
			done, err = i, named(s, failure)
			break
		}
	}
	if err == nil && last != nil {
		err = last()
	}
	if err == nil {
		w.openOthers(to.Ports)
		w.holds(to, s)
		return nil
	}
	errs := []error{err}
	for _, s := range slices.Backward(steps[:done]) {
		if err := w.write(s.Undo); err != nil {
			errs = append(errs, fmt.Errorf("%s: take back: %w", s.Ref, err))
		}
	}
	return errors.Join(errs...)
}

// Rehearse says whether the data path can have the settings of the tables, and has room for their
// next hops: what Commit would refuse. It changes nothing.
func (w *Writer) Rehearse(to *plan.Tables, s plan.Scope) error {
	steps := w.steps(to, s)
	uses := make([]adjacency.Use, len(steps))
	for i, s := range steps {
		if v, is := s.Do.Value.(*settings.Settings); is {
			if err := w.dp.CheckSettings(*v); err != nil {
				return named(s, err)
			}
		}
		if s.Do.Delete {
			uses[i].Release = hopsOf(s.Do.Value)
			continue
		}
		uses[i].Acquire = hopsOf(s.Do.Value)
		if !s.Undo.Delete { // it replaces that one
			uses[i].Release = hopsOf(s.Undo.Value)
		}
	}
	if at, err := w.dp.Rehearse(uses); err != nil {
		return named(steps[at], err)
	}
	return nil
}

// hopsOf are the next hops that a value in a table refers to.
func hopsOf(value any) []adjacency.Key {
	switch v := value.(type) {
	case *srpolicy.Policy:
		return policy.Hops(*v)
	case *gtpu.Tunnel:
		return []adjacency.Key{tunnel.Hop(*v)}
	case *srv6.LocalSID:
		return []adjacency.Key{sid.Hop(*v)}
	case *plan.Link:
		return []adjacency.Key{v.Key()}
	}
	return nil
}

// named is the error of a step with its resource, which most tables name themselves.
func named(s plan.Step, err error) error {
	if strings.HasPrefix(err.Error(), s.Ref.String()+": ") {
		return s.Errorf("%w", err)
	}
	return s.Errorf("%s: %w", s.Ref, err)
}

// Start writes all of the tables to a data path that may hold those of an earlier
// daemon. It takes nothing back: what it wrote is what that one had, or what this
// one wants.
func (w *Writer) Start(to *plan.Tables) error {
	for _, s := range w.steps(to, plan.Scope{}) {
		if err := w.write(s.Do); err != nil {
			return named(s, err)
		}
	}
	w.holds(to, plan.Scope{})
	return nil
}

// Converge goes as far towards the tables as it can. It logs what fails, which
// Failures holds then: it must not keep the rest from being right.
func (w *Writer) Converge(to *plan.Tables, s plan.Scope) {
	failures := map[desired.Ref]error{}
	w.openOthers(to.Ports)
	for _, s := range w.steps(to, s) {
		if err := w.write(s.Do); err != nil {
			failures[s.Ref] = errors.Join(err, w.close(s.Do))
			if before := w.Failures[s.Ref]; before == nil || before.Error() != err.Error() {
				w.log.Error("cannot bring the data path to the desired state; will try again", "event", logevent.ResourceFailed, "resource", s.Ref.String(), "error", err)
			}
		}
	}
	for ref := range failures {
		to.Keep(ref, w.Tables)
	}
	for ref := range w.Failures {
		if failures[ref] == nil {
			w.log.Info("recovered", "event", logevent.ResourceRecovered, "resource", ref.String())
		}
	}
	w.Failures = failures
	w.holds(to, s)
}

func (w *Writer) steps(to *plan.Tables, s plan.Scope) []plan.Step {
	return plan.Steps(w.Tables, to, s, w.upf != nil)
}

// holds notes what the data path holds now.
func (w *Writer) holds(to *plan.Tables, s plan.Scope) {
	to.Switched(w.Tables, s, func(policy, before string, now srpolicy.Verdict, ready bool) {
		own := func(path string) string { return cmp.Or(path, "(its own segment lists)") }
		w.log.Info("policy takes another candidate path", "event", logevent.PolicyPathChanged, "policy", policy, "path", own(now.Path), "before", own(before), "held_ready", ready, "why", now.Why)
	})
	to.Turned(w.Tables, s, func(turn plan.Turn) {
		log := w.log.With("policy", turn.Policy, "list", turn.List, "segments", to.Policies[turn.Policy].Lists()[turn.List].Segments)
		switch {
		case turn.Slow:
			log.Info("packets leave a segment list for its delay", "event", logevent.SegmentListSlow, "why", turn.Why)
		case turn.Why != "":
			log.Warn("segment list is down", "event", logevent.SegmentListDown, "why", turn.Why)
		default:
			log.Info("segment list is up again", "event", logevent.SegmentListUp)
		}
	})
	w.Tables = to
	maps.DeleteFunc(w.Modes, func(name string, _ attach.Mode) bool {
		_, stays := to.Ports[name]
		return !stays
	})
}

// DetachOthers takes the program off interfaces that the ports are without.
func (w *Writer) DetachOthers(ports map[string]plan.Port) error {
	keep := map[int]bool{}
	for _, p := range ports {
		keep[p.Ifindex] = true
	}
	for ifindex := range w.dp.Attached() {
		if keep[ifindex] {
			continue
		}
		if err := errors.Join(w.dp.Detach(ifindex), w.dp.DeletePort(ifindex)); err != nil {
			return fmt.Errorf("leave an interface that is not in the configuration: %w", err)
		}
	}
	return nil
}

// close closes an interface that could not be attached.
func (w *Writer) close(failed plan.Write) error {
	if p, ok := failed.Value.(*plan.Port); ok && !failed.Delete && p.FailsClosed() {
		return w.dp.Closing.Put(*p)
	}
	return nil
}

// openOthers opens closed interfaces that the ports are without.
func (w *Writer) openOthers(ports map[string]plan.Port) {
	keep := map[int]bool{}
	for _, p := range ports {
		keep[p.Ifindex] = keep[p.Ifindex] || p.FailsClosed()
	}
	for ifindex := range w.dp.Closing.On() {
		if keep[ifindex] {
			continue
		}
		if err := w.dp.Closing.Delete(ifindex); err != nil {
			w.log.Error("cannot open an interface; will try again", "event", logevent.InterfaceStaysClosed, "error", err)
		}
	}
}

// write does one write.
func (w *Writer) write(one plan.Write) error {
	switch v := one.Value.(type) {
	case *srpolicy.Policy:
		return into(w.dp.Policies, one, v, v.Name)
	case *gtpu.Tunnel:
		return into(w.dp.Tunnels, one, v, v.Name)
	case *srv6.LocalSID:
		return into(w.dp.SIDs, one, v, v.SID)
	case *plan.SessionSID:
		p := netip.Prefix(*v)
		return into(w.dp.SessionSIDs, one, &p, p)
	case *plan.Link:
		return into(w.dp.Links, one, &v.Link, v.Link)
	case *plan.Steering:
		return into(w.dp.Steering, one, &v.Entry, v.Steering)
	case *class.Table:
		w.dp.ClassifyPods(v)
		return nil
	case *plan.Classes:
		return w.dp.SetClasses(*v)
	case class.SessionWays:
		return w.dp.SetSessionWays(v)
	case *settings.Settings:
		return w.dp.SetSettings(*v)
	case *plan.Spread:
		return w.dp.SetSpread(*v)
	case *upf.Config:
		return w.upf.SetConfig(*v)
	case *plan.PortSettings:
		return w.dp.SetPort(v.Ifindex, v.Port)
	case *plan.Port:
		if one.Delete {
			return errors.Join(w.dp.Detach(v.Ifindex), w.dp.DeletePort(v.Ifindex))
		}
		// The port is set before its program runs.
		if err := w.dp.SetPort(v.Ifindex, v.Port); err != nil {
			return err
		}
		mode, err := w.dp.Attach(v.Ifindex, attach.Mode(cmp.Or(v.Mode, "auto")))
		if err != nil {
			return errors.Join(err, w.dp.DeletePort(v.Ifindex))
		}
		w.Modes[v.Name] = mode
		return nil
	default:
		return fmt.Errorf("no table holds a %T", v)
	}
}

func into[V, K any](t Table[V, K], one plan.Write, v *V, key K) error {
	if one.Delete {
		return t.Delete(key)
	}
	return t.Put(*v)
}
