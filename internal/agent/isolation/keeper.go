package isolation

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netpol"
)

// NetworkPolicies are what isolates pods in the data path.
type NetworkPolicies interface {
	// Enforce has pods closed that are put from now on, until Apply names them. false:
	// nobody is isolated any more.
	Enforce(bool) error
	// Apply has the data path hold what is desired. Pods that it does not name stay as they
	// are.
	Apply(netpol.Desired) error
}

// Source is what the Kubernetes API says. complete: it has sent everything.
type Source interface {
	NetworkState() (s netpol.State, complete bool)
}

// Pods are this node's.
type Pods interface {
	List() []pods.Status
	// Identify says which pod a recovered one is.
	Identify(key pods.Attachment, namespace, name, uid string)
}

// How long Wait waits, and a round that failed until it is tried again.
const (
	DefaultPatience = 5 * time.Second // less than the CNI plugin waits
	DefaultPause    = 5 * time.Second
)

// Errors of what has no answer.
var (
	// ErrOff: this node enforces no NetworkPolicies.
	ErrOff = errors.New("this node enforces no NetworkPolicies: it needs overlay.mode kube, and overlay.kube.network_policies: enforce")
	// ErrUnknown: the API has not sent everything yet.
	ErrUnknown = errors.New("the Kubernetes API has not sent all pods and NetworkPolicies yet")
)

// Keeper keeps the data path at what NetworkPolicies say.
type Keeper struct {
	log      *slog.Logger
	path     NetworkPolicies
	source   Source
	pods     Pods
	patience time.Duration
	pause    time.Duration
	changed  chan struct{}

	rounds   sync.Mutex
	compiler *netpol.Compiler
	exceeded map[string]*exceeded // by namespace

	mu       sync.Mutex
	enforced bool
	begun    uint64 // rounds
	done     uint64 // the last one that was applied
	settled  map[int]netpol.Local
	applied  chan struct{} // closed when a round is applied, and then another one
	state    netpol.State  // the last complete one, without this node's pods
	known    bool          // there is one
	status   Status
	told     map[string]bool // problems in the log
}

// Status is how enforcing goes.
type Status struct {
	Enforced bool
	// Problem is why the data path does not have what the cluster has now.
	Problem string
	// Policies are all of the cluster. Isolated are this node's pods that some select, Open
	// those that none does, and Closed those that the API has not reported.
	Policies, Isolated, Open, Closed int
	// Identities are what rules tell peers apart by, Peers all addresses and prefixes.
	Identities, Peers int
	// Problems are rules that cannot be used, and pods that policies do not reach.
	Problems []string
	// Exceeded are namespaces for whose policies there is no room, and what of it.
	Exceeded []string
	Applied  time.Time // when the data path was last brought up to date
	Failures uint64    // to do so
}

// Settings of a Keeper.
type Settings struct {
	Path   NetworkPolicies
	Source Source
	Pods   Pods
	Log    *slog.Logger
	// Patience is how long Wait waits; DefaultPatience unless set.
	Patience time.Duration
	// Pause is how long after a failure the next try is; DefaultPause unless set.
	Pause time.Duration
}

// New makes one that enforces nothing yet.
func New(s Settings) *Keeper {
	s.Patience, s.Pause = cmp.Or(s.Patience, DefaultPatience), cmp.Or(s.Pause, DefaultPause)
	return &Keeper{
		log: s.Log, path: s.Path, source: s.Source, pods: s.Pods, patience: s.Patience, pause: s.Pause, changed: make(chan struct{}, 1),
		compiler: netpol.NewCompiler(rand.Text()), exceeded: map[string]*exceeded{}, settled: map[int]netpol.Local{}, applied: make(chan struct{}), told: map[string]bool{},
	}
}

// Enforce starts and stops enforcing. It does nothing where nothing changes, but at first.
func (k *Keeper) Enforce(enforce bool) error {
	k.rounds.Lock()
	defer k.rounds.Unlock()
	k.mu.Lock()
	same := k.enforced == enforce && k.begun > 0
	k.mu.Unlock()
	if same {
		return nil
	}
	if err := k.path.Enforce(enforce); err != nil {
		return fmt.Errorf("NetworkPolicies: %w", err)
	}
	k.mu.Lock()
	k.enforced, k.status.Enforced = enforce, enforce
	k.begun++
	if !enforce {
		k.settled, k.state, k.known, k.status = map[int]netpol.Local{}, netpol.State{}, false, Status{}
		close(k.applied) // nobody has to wait
		k.applied = make(chan struct{})
	}
	k.mu.Unlock()
	if !enforce {
		k.compiler, k.exceeded = netpol.NewCompiler(rand.Text()), map[string]*exceeded{}
	}
	k.Changed()
	return nil
}

// Changed has a round begin soon.
func (k *Keeper) Changed() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Run keeps the data path up to date until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
		case <-again:
		}
		again = nil
		err := k.round()
		if wait := k.untilRetry(); wait > 0 {
			again = time.After(wait)
		}
		if err != nil {
			k.log.Error("cannot apply NetworkPolicies: pods are isolated as before; will try again", "event", logevent.NetPolFailed, "error", err)
			again = time.After(k.pause)
		}
	}
}

// round brings the data path up to date, if the state is complete.
func (k *Keeper) round() error {
	k.rounds.Lock()
	defer k.rounds.Unlock()
	k.mu.Lock()
	enforced := k.enforced
	k.begun++
	round := k.begun
	k.mu.Unlock()
	if !enforced {
		return nil
	}
	s, complete := k.source.NetworkState()
	if !complete {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.status.Problem = ErrUnknown.Error()
		return nil
	}
	all := k.pods.List()
	s.Local = locals(all, &s)
	k.identify(all, s.Local)
	d, err := k.bring(&s)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state, k.known = s, true
	k.note(&s, &d, err)
	if err != nil {
		return err
	}
	k.done, k.settled = round, map[int]netpol.Local{}
	for _, l := range s.Local {
		if !slices.Contains(d.Unknown, l.Ifindex) {
			k.settled[l.Ifindex] = l
		}
	}
	close(k.applied)
	k.applied = make(chan struct{})
	return nil
}

// identify says which pods are those whose state was lost, where the API knows.
func (k *Keeper) identify(all []pods.Status, known []netpol.Local) {
	for i, l := range known {
		if all[i].Recovered() && l.UID != "" {
			k.pods.Identify(all[i].Attachment, l.Namespace, l.Name, l.UID)
		}
	}
}

// locals are pods as policies know them, in the same order.
func locals(all []pods.Status, s *netpol.State) (out []netpol.Local) {
	for _, p := range all {
		if p.Recovered() {
			p.Namespace, p.Name, p.UID = recovered(p, s)
		}
		l := netpol.Local{Ifindex: p.HostIfindex, Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		for _, a := range p.Addresses {
			l.Addresses = append(l.Addresses, netpol.Address{Tenant: p.TenantID, Addr: a})
		}
		out = append(out, l)
	}
	return out
}

// recovered is who a pod is of which the state file was lost: the one of this node that the API knows by its
// address. Another node's kubelet may say of its pods what it likes. Until the API knows one, nobody knows the
// pod, which is not the same as a container without policies.
func recovered(p pods.Status, s *netpol.State) (namespace, name, uid string) {
	for _, o := range s.Pods {
		if o.HostNetwork || o.Finished || o.Node != s.Node {
			continue
		}
		for _, a := range p.Addresses {
			if slices.Contains(o.Addresses, netpol.Address{Tenant: p.TenantID, Addr: a}) {
				return o.Namespace, o.Name, o.UID
			}
		}
	}
	return "", p.Attachment.String(), ""
}

// note keeps how a round went. mu is held.
func (k *Keeper) note(s *netpol.State, d *netpol.Desired, err error) {
	now := Status{Enforced: true, Policies: len(s.Policies), Peers: len(d.Peers), Closed: len(d.Unknown), Applied: k.status.Applied, Failures: k.status.Failures}
	identities := map[*netpol.Identity]bool{}
	for _, i := range d.Peers {
		identities[i] = true
	}
	now.Identities = len(identities)
	for _, i := range d.Pods {
		if i.Ingress == nil && i.Egress == nil {
			now.Open++
		}
	}
	now.Isolated = len(d.Pods) - now.Open - now.Closed
	for _, p := range s.Policies {
		for _, problem := range p.Problems {
			now.Problems = append(now.Problems, fmt.Sprintf("NetworkPolicy %s/%s: %s", p.Namespace, p.Name, problem))
		}
	}
	slices.Sort(now.Problems)
	for _, name := range slices.Sorted(maps.Keys(k.exceeded)) {
		now.Exceeded = append(now.Exceeded, k.exceeded[name].Error())
	}
	if err == nil {
		now.Applied = time.Now()
	} else {
		now.Problem = err.Error()
		now.Failures++
	}
	k.status = now
	told := map[string]bool{}
	for _, problem := range now.Exceeded {
		if told[problem] = true; !k.told[problem] {
			k.log.Warn("there is no room for the NetworkPolicies of a namespace: its isolated pods are closed", "event", logevent.NetPolExceeded, "problem", problem)
		}
	}
	for _, problem := range now.Problems {
		if told[problem] = true; !k.told[problem] {
			k.log.Warn("a NetworkPolicy cannot be used as it is", "event", logevent.NetPolUnusable, "problem", problem)
		}
	}
	k.told = told
}

// Wait returns once the data path has what policies say of a pod that was put, or when it has
// waited long enough, or end is closed. Then the pod reaches its own node only, until
// the API says more.
func (k *Keeper) Wait(end <-chan struct{}, ifindex int, uid string) error {
	k.mu.Lock()
	if !k.enforced {
		k.mu.Unlock()
		return nil
	}
	need := k.begun + 1 // one that begins after the pod was put
	k.mu.Unlock()
	late := time.NewTimer(k.patience)
	defer late.Stop()
	k.Changed()
	for {
		k.mu.Lock()
		l, there := k.settled[ifindex]
		if !k.enforced || k.done >= need && there && l.UID == uid {
			k.mu.Unlock()
			return nil
		}
		applied, problem := k.applied, k.status.Problem
		k.mu.Unlock()
		select {
		case <-applied:
		case <-end:
			return errors.New("the daemon is ending")
		case <-late.C:
			if problem == "" {
				problem = "the Kubernetes API has not reported the pod"
			}
			return fmt.Errorf("after %s: %s", k.patience, problem)
		}
	}
}

// Status is how it goes now.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.status
	out.Problems, out.Exceeded = slices.Clone(out.Problems), slices.Clone(out.Exceeded)
	return out
}

// Ask is a question of people.
type Ask struct {
	From     string `json:"from"` // NAMESPACE/POD, POD or an address
	To       string `json:"to"`
	Protocol string `json:"protocol,omitempty"` // TCP, UDP, SCTP, ICMP; empty: any
	Port     string `json:"port,omitempty"`     // a number or a name
}

// Explain says which policies and rules decide. nodes are names by addresses.
func (k *Keeper) Explain(a Ask, nodes map[netip.Addr]string) ([]netpol.Verdict, error) {
	k.mu.Lock()
	s, known, enforced := k.state, k.known, k.enforced
	k.mu.Unlock()
	switch {
	case !enforced:
		return nil, ErrOff
	case !known:
		return nil, ErrUnknown
	}
	s.Local, s.Nodes = locals(k.pods.List(), &s), nodes
	return Explain(&s, a)
}

// Explain answers a question from a state.
func Explain(s *netpol.State, a Ask) ([]netpol.Verdict, error) {
	q, err := question(a)
	if err != nil {
		return nil, err
	}
	if q.From, err = s.Party(a.From); err != nil {
		return nil, err
	}
	if q.To, err = s.Party(a.To); err != nil {
		return nil, err
	}
	return s.Explain(q)
}

// question reads protocol and port.
func question(a Ask) (q netpol.Question, err error) {
	protocol := strings.ToUpper(a.Protocol)
	switch protocol {
	case "":
		if a.Port == "" {
			return q, nil
		}
		q.Protocol = netpol.TCP
	case "ICMP":
		q.Protocol = icmp
	default:
		var known bool
		if q.Protocol, known = netpol.ProtocolByName(protocol); !known {
			return q, fmt.Errorf("%w: %q is none of TCP, UDP, SCTP, ICMP", netpol.ErrNoProtocol, a.Protocol)
		}
	}
	if q.Protocol == icmp {
		if a.Port != "" {
			return q, fmt.Errorf("%w: ICMP has no ports", netpol.ErrNoPort)
		}
		return q, nil
	}
	return q, q.SetPort(a.Port)
}

// icmp stands for ICMP of both families: rules have neither.
const icmp = 1
