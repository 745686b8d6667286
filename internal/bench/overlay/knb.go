package overlay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/overlay/services"
	"github.com/culvert-net/culvert/internal/bench/proc"
)

// The cases of knb, the Kubernetes Network Benchmark, by its names.
const (
	caseIdle   = "idle"
	caseP2PTCP = "p2ptcp"
	caseP2PUDP = "p2pudp"
	caseP2STCP = "p2stcp"
	caseP2SUDP = "p2sudp"
)

// KNBCases returns their names.
func KNBCases() []string {
	return []string{caseIdle, caseP2PTCP, caseP2PUDP, caseP2STCP, caseP2SUDP}
}

// KNB are the parameters of `culvert bench knb`: what the tool knb measures between pods of two
// nodes, in the laboratory of `culvert bench overlay`.
type KNB struct {
	Variants []string `json:"variants"`
	Families []string `json:"families"`
	Cases    []string `json:"cases"`
	// Time is how long each variant sends, or idles.
	Time experiment.Duration `json:"time"`
	// Datagram is the payload of UDP, in octets.
	Datagram int `json:"datagram"`
}

// KNBKind is the experiment's.
var KNBKind = experiment.Kind{Name: "knb", NoiseLimit: experiment.NoiseOfRates, New: func() experiment.Experiment {
	return &KNB{Variants: []string{flat, ours, vxlan, ipInIP}, Families: []string{ipv4}, Cases: KNBCases(),
		Time: experiment.Duration(10 * time.Second), Datagram: mostDatagram}
}}

// Flags offers the parameters.
func (k *KNB) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&k.Variants, "variants", k.Variants, "`names` of the ways between pods: "+strings.Join(Variants(), ", "))
	f.StringSliceVar(&k.Families, "families", k.Families, "`families` of pods' addresses: ipv4, ipv6")
	f.StringSliceVar(&k.Cases, "cases", k.Cases, "`names` of what is measured, as knb has them: "+strings.Join(KNBCases(), ", "))
	f.TextVar(&k.Time, "time", k.Time, "`duration` for which each sends; the paper's is 120s")
	f.IntVar(&k.Datagram, "datagram", k.Datagram, "`octets` of UDP's payload")
}

// Quick makes it seconds.
func (k *KNB) Quick() {
	k.Time, k.Families = min(k.Time, experiment.Duration(2*time.Second)), k.Families[:min(1, len(k.Families))]
}

// CPUs are those that it measures on: the client's and the server's.
func (*KNB) CPUs(chosen int) ([]int, error) { return proc.Both(chosen) }

const (
	leastKNB = 2 * time.Second // a second is left out
	mostKNB  = 10 * time.Minute
)

// Validate says everything that is wrong.
func (k *KNB) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	experiment.Chosen(want, "variants", k.Variants, Variants())
	experiment.Chosen(want, "families", k.Families, Families())
	experiment.Chosen(want, "cases", k.Cases, KNBCases())
	d := time.Duration(k.Time)
	want(d >= leastKNB && d <= mostKNB && d%time.Second == 0, "time", fmt.Sprintf("give whole seconds, %v to %v", leastKNB, mostKNB), "%v is out of range", d)
	want(k.Datagram >= leastDatagram && k.Datagram <= mostDatagram, "datagram", fmt.Sprintf("give %d to %d", leastDatagram, mostDatagram), "%d is out of range", k.Datagram)
	return experiment.Check(list)
}

// params are those of the laboratory's rig.
func (k *KNB) params() *Params { return &Params{Variants: k.Variants, Families: k.Families} }

// measured are the variants of a case: those that are asked for, after the flat routing beside
// them. What routes by eBPF knows no Services.
func (k *KNB) measured(of string) []variant {
	return slices.DeleteFunc(k.params().measured(), func(v variant) bool {
		return isService(of) && (v.name == hostRouted || v.name == ipInIP)
	})
}

func isService(of string) bool { return of == caseP2STCP || of == caseP2SUDP }

// knbPoint is a case by all variants.
type knbPoint struct{ of, family string }

func (p knbPoint) id() string { return p.of + ", " + p.family }

func (k *KNB) points() (list []knbPoint) {
	for _, of := range k.Cases {
		for _, family := range k.Families {
			list = append(list, knbPoint{of, family})
			if of == caseIdle {
				break // nothing has a family
			}
		}
	}
	return list
}

// takesKNB is what a variant takes besides sending: iperf3's start and end.
const takesKNB = time.Second

// Plan is everything that will be measured.
func (k *KNB) Plan() (experiment.Plan, error) {
	plan := experiment.Plan{SetUp: takesLab}
	for _, p := range k.points() {
		n := len(k.measured(p.of))
		plan.Points = append(plan.Points, experiment.Point{ID: p.id(), Takes: time.Duration(n) * (time.Duration(k.Time) + takesKNB)})
	}
	return plan, nil
}

// knbRig is the laboratory, with a CPU for the client's node and pod and another for the server's.
type knbRig struct {
	*rig
	knb  *KNB
	cpus proc.Pair // Generator: the client's
}

// Open builds the laboratory.
func (k *KNB) Open(ctx context.Context, set experiment.Setting) (experiment.Bench, error) {
	return k.open(ctx, set, instance)
}

func (k *KNB) open(ctx context.Context, set experiment.Setting, instance string) (_ *knbRig, err error) {
	cpus, err := proc.PickPair(set.CPU)
	if err != nil {
		return nil, err
	}
	r := &knbRig{&rig{params: k.params(), setting: set}, k, cpus}
	defer r.OnError(&err)
	if err := r.openNetwork(ctx, instance); err != nil {
		return nil, err
	}
	if err := r.setGSO(on); err != nil {
		return nil, err
	}
	for _, v := range k.params().measured() {
		if err := r.divide(v); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return r, nil
}

// divide has each node handle on its own CPU what comes from the other one, and gives the
// client's node the Service.
func (r *knbRig) divide(v variant) error {
	for i, cpu := range []int{r.cpus.Generator, r.cpus.Device} {
		if err := napi.Steer(r.network.Namespace(v.node(1+i)), uplink, cpu); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(r.knb.Cases, isService) {
		return nil
	}
	var to [2]string
	for i, ip4 := range []bool{true, false} {
		address, err := r.network.Address(v.pod("b"), ip4)
		if err != nil {
			return err
		}
		to[i] = address.String()
	}
	rules := fmt.Sprintf("table inet bench-service { chain prerouting { type nat hook prerouting priority dstnat; "+
		"ip daddr %s dnat ip to %s; ip6 daddr %s dnat ip6 to %s; }; }", serviceAddress[ipv4], to[0], serviceAddress[ipv6], to[1])
	if err := r.network.Do(v.node(1), func() error { return services.Load(rules) }); err != nil {
		return fmt.Errorf("a Service at node %s: %w (fix: install nftables, or leave p2stcp and p2sudp out of --cases)", v.node(1), err)
	}
	return nil
}

// serviceAddress are those of the Service, by family.
var serviceAddress = map[string]string{ipv4: "10.96.255.1", ipv6: "fd00:10:96::ff:1"}

// Measure has each variant send, from another one on in each round.
func (r *knbRig) Measure(ctx context.Context, which experiment.Point, round int) ([]experiment.Sample, error) {
	all := r.knb.points()
	i := slices.IndexFunc(all, func(p knbPoint) bool { return p.id() == which.ID })
	if i < 0 {
		return nil, fmt.Errorf("there is no point %q", which.ID)
	}
	p, list := all[i], r.knb.measured(all[i].of)
	seen := map[string]hosts{}
	for i := range list {
		v := list[(i+round)%len(list)]
		h, err := r.hosts(ctx, v, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		seen[v.name] = h
	}
	return knbSamples(p, list, seen), nil
}

// hosts is what the two hosts did while a variant sent.
type hosts struct {
	bits   float64 // in a second, received
	lost   float64 // share of datagrams
	cpu    [2]proc.States
	agents [2]float64 // memory of the daemons, MB; of kernels' nodes nothing
	used   float64    // memory of the machine, MB
}

func (r *knbRig) hosts(ctx context.Context, v variant, p knbPoint) (h hosts, err error) {
	before, err := r.states()
	if err != nil {
		return h, err
	}
	if p.of == caseIdle {
		err = node.Wait(ctx, time.Duration(r.knb.Time))
	} else {
		err = r.iperf(ctx, v, p, &h)
	}
	after, err2 := r.states()
	if err := errors.Join(err, err2); err != nil {
		return h, err
	}
	for i := range h.cpu {
		h.cpu[i] = after[i].Since(before[i])
	}
	available, total, err := proc.Available("/proc")
	if err != nil {
		return h, err
	}
	h.used = float64(total-available) / 1e6
	daemons := r.network.Daemons()
	for i := range h.agents {
		if pid := daemons[v.node(1+i)]; pid != 0 {
			resident, maps, err := proc.Memory(pid)
			if err != nil {
				return h, err
			}
			h.agents[i] = float64(resident+maps) / 1e6
		}
	}
	return h, nil
}

// states are those of the client's CPU and the server's.
func (r *knbRig) states() (s [2]proc.States, err error) {
	for i, cpu := range []int{r.cpus.Generator, r.cpus.Device} {
		if s[i], err = proc.StatesOf(cpu); err != nil {
			return s, err
		}
	}
	return s, nil
}
