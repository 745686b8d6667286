package overlay

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/experiment"
)

func params() *Params { return Kind.New().(*Params) }

func TestValidate(t *testing.T) {
	if err := params().Validate(); err != nil {
		t.Error(err)
	}
	for _, x := range []struct {
		change func(*Params)
		says   string
	}{
		{func(p *Params) { p.Variants = []string{"gre"} }, `with.variants[0]: there is no "gre"`},
		{func(p *Params) { p.Variants = nil }, "with.variants: none is chosen"},
		{func(p *Params) { p.Families = []string{ipv4, ipv4} }, `with.families[1]: "ipv4" is there twice`},
		{func(p *Params) { p.Traffic, p.Rules = nil, nil }, "with.traffic: none is chosen"},
		{func(p *Params) { p.Services = nil }, "with.services: no number is given"},
		{func(p *Params) { p.Services = []int{-1} }, "with.services[0]: -1 is out of range"},
		{func(p *Params) { p.Connections = 0 }, "with.connections: 0 is out of range"},
		{func(p *Params) { p.Rules = []int{1, 0} }, "with.rules[1]: 0 is out of range"},
		{func(p *Params) { p.Rules = []int{7, 7} }, "with.rules[1]: 7 is there twice"},
		{func(p *Params) { p.Flows = 1 << 20 }, "with.flows: 1048576 is out of range"},
		{func(p *Params) { p.Packets = 0 }, "with.packets: 0 is out of range"},
		{func(p *Params) { p.Traffic = []string{"sctp"} }, `with.traffic[0]: there is no "sctp"`},
		{func(p *Params) { p.Trial = 1 }, "with.trial: 1ns is too short"},
		{func(p *Params) { p.Datagram = 1500 }, "with.datagram: 1500 is out of range"},
		{func(p *Params) { p.Pods = -1 }, "with.pods: -1 is out of range"},
		{func(p *Params) { p.Nodes = []int{10, 2} }, "with.nodes[1]: 2 is out of range"},
		{func(p *Params) { p.Nodes = []int{10, 10} }, "with.nodes[1]: 10 is there twice"},
	} {
		p := params()
		x.change(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%v, want %q", err, x.says)
		}
	}
}

// What is measured has what it stands beside.
func TestMeasured(t *testing.T) {
	for asked, want := range map[string]string{
		ours: "flat srv6", flat: "flat", "srv6-3-sids": "flat-router srv6-3-sids", flatRouter: "flat-router",
	} {
		p := params()
		p.Variants = []string{asked}
		var names []string
		for _, v := range p.measured() {
			names = append(names, v.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s are measured, want %s", asked, got, want)
		}
	}
}

// Variants and nodes that are asked for are what there is to measure, and the agent
// not where neither pods nor changes are.
func TestPlan(t *testing.T) {
	p := params()
	ids := func() (list []string) {
		plan, err := p.Plan()
		if err != nil {
			t.Fatal(err)
		}
		for _, point := range plan.Points {
			list = append(list, point.ID)
		}
		return list
	}
	if got := ids(); len(got) != 7*2*2+2+3 || !slices.Contains(got, "tcp-gso-off, ipv6, 100 Services") || !slices.Contains(got, "NetworkPolicies, egress") || !slices.Contains(got, "agent, 1000 nodes") {
		t.Errorf("%q", got)
	}
	p.Pods, p.Changes = 0, 0
	if got := ids(); len(got) != 7*2*2+3 {
		t.Errorf("%q without the agent", got)
	}
	p.Traffic = nil
	if err := p.Validate(); err != nil {
		t.Errorf("nothing but NetworkPolicies: %v", err)
	}
	if got := ids(); !slices.Equal(got, []string{"NetworkPolicies, ingress", "NetworkPolicies, egress", "NetworkPolicies, forwarded"}) {
		t.Errorf("%q without traffic", got)
	}
	p.Quick()
	if p.Pods != 0 || p.Changes != 0 {
		t.Errorf("a quick run adds %d pods and changes %d paths: none were asked for", p.Pods, p.Changes)
	}
}

// The file in a run's folder states all parameters, including those that the user
// set to zero: a resumed run reads them from it.
func TestKept(t *testing.T) {
	p := params()
	p.Pods, p.Changes = 0, 0
	text, err := (&experiment.File{Name: "kept", Kind: "overlay", Title: "kept", Rounds: 1, Seed: 1, NoiseLimit: 0.5, With: p}).Text()
	if err != nil {
		t.Fatal(err)
	}
	f, err := experiment.Parse(text, []experiment.Kind{Kind})
	if err != nil {
		t.Fatal(err)
	}
	if got := f.With.(*Params); got.Pods != 0 || got.Changes != 0 || len(got.Nodes) != len(p.Nodes) {
		t.Errorf("%+v of %s", got, text)
	}
}

// A run takes 41 minutes at most, and a quick one 3.
func TestTakes(t *testing.T) {
	p := params()
	whole, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	p.Quick()
	quick, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		plan    experiment.Plan
		rounds  int
		minutes float64
	}{"whole": {whole, 10, 41}, "quick": {quick, 2, 3}} {
		if took := x.plan.Takes(x.rounds); took.Minutes() > x.minutes {
			t.Errorf("%s: %s, want at most %v minutes", name, took, x.minutes)
		}
	}
}

func TestThereAndBack(t *testing.T) {
	if got := thereAndBack(3, 1, 4); !slices.Equal(got, []int{1, 2, 0, 0, 2, 1, 1, 2, 0, 0, 2, 1}) {
		t.Errorf("%v", got)
	}
}
