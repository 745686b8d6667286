package n9

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func params() *Params { return Kind.New().(*Params) }

func TestValidate(t *testing.T) {
	if err := params().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, tt := range []struct {
		flags string
		want  []string // field, and what is said
	}{
		{"--n9=mpls", []string{"with.n9[0]", "mpls", "gtpu, traditional, enhanced, enhanced-3"}},
		{"--n9=", []string{"with.n9", "none is chosen"}},
		{"--n9=gtpu,gtpu", []string{"with.n9[1]", "twice"}},
		{"--direction=sideways", []string{"with.direction[0]", "sideways", "uplink, downlink"}},
		{"--rates=0", []string{"with.rates[0]", "Mbit/s"}},
		{"--rates=NaN", []string{"with.rates[0]", "NaN"}},
		{"--rates=5,5", []string{"with.rates[1]", "twice"}},
		{"--points=1", []string{"with.points", "2 to 100"}},
		{"--packet-size=39", []string{"with.packet_size", "40 to 1400"}},
		{"--packet-size=1401", []string{"with.packet_size", "MTU"}},
		{"--trial=1ms", []string{"with.trial", "20ms"}},
		{"--trial=-1s", []string{"with.trial", "-1s"}},
	} {
		p := params()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.Flags(flags)
		if err := flags.Parse([]string{tt.flags}); err != nil {
			t.Errorf("%s: %v", tt.flags, err)
			continue
		}
		err := p.Validate()
		problems, ok := errors.AsType[experiment.Problems](err)
		if !ok || len(problems) != 1 {
			t.Errorf("%s: %v, want one problem", tt.flags, err)
			continue
		}
		if problems[0].Field != tt.want[0] || problems[0].Fix == "" {
			t.Errorf("%s: problem %+v, want of %s and with a fix", tt.flags, problems[0], tt.want[0])
		}
		for _, w := range tt.want[1:] {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", tt.flags, err, w)
			}
		}
	}
}

// Every point is there once; GTP-U need not be on the curve to stand beside the
// others.
func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		change func(*Params)
		points int
	}{
		{func(*Params) {}, 2 * (3*2 + 4*2)},
		{func(p *Params) { p.Direction = []string{downlink} }, 3*2 + 4*2},
		{func(p *Params) { p.Rates = []float64{10, 20} }, 2 * (3*2 + 4*2)},
		{func(p *Params) { p.N9 = []string{"enhanced"} }, 2 * (2 + 2*2)},
		{(*Params).Quick, 2*2 + 3*2},
	} {
		p := params()
		tt.change(p)
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		plan, err := p.Plan()
		if err != nil || len(plan.Points) != tt.points || plan.SetUp < takesLab {
			t.Errorf("%+v: %d points, set up in %v, %v; want %d", p, len(plan.Points), plan.SetUp, err, tt.points)
		}
		seen := map[string]bool{}
		for _, x := range plan.Points {
			if seen[x.ID] || x.Takes < time.Duration(p.Trial) {
				t.Errorf("point %+v", x)
			}
			seen[x.ID] = true
		}
		if !slices.Contains(p.measured(), base) {
			t.Errorf("%+v: %v has no %s", p, p.measured(), base)
		}
	}
}

func TestPick(t *testing.T) {
	for _, tt := range []struct {
		wanted           int
		allowed          []int
		nodes, generator int
		fails            string
	}{
		{-1, []int{0, 1}, 1, 0, ""},
		{0, []int{0, 1}, 0, 1, ""},
		{-1, []int{2, 5, 9}, 9, 2, ""},
		{2, []int{2, 5, 9}, 2, 5, ""},
		{3, []int{2, 5, 9}, 0, 0, "--cpu 3"},
		{-1, []int{4}, 0, 0, "one only"},
	} {
		nodes, generator, err := pick(tt.wanted, tt.allowed)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if err != nil || nodes != tt.nodes || generator != tt.generator {
			t.Errorf("%+v: %d, %d, %v", tt, nodes, generator, err)
		}
	}
}

// run is one of made-up figures: GTP-U delivers up to 2000 Mbit/s, SRv6 up to
// 1000, and once more at 4000, where the machine was kind.
func madeUp(p *Params) *result.Run {
	run := &result.Run{Version: result.Version, Figures: p.Figures()}
	for n9, whole := range map[string][]string{"gtpu": {"1000", "2000"}, "traditional": {"1000", "4000"}} {
		for _, offered := range []string{"4000", "1000", "2000"} {
			labels := point{n9: n9, direction: uplink}.labels()
			labels["offered"] = offered
			share := 0.6
			if slices.Contains(whole, offered) {
				share = 0.9995
			}
			run.Measurements = append(run.Measurements, result.Measurement{Metric: metricDelivery, Labels: labels, Samples: []float64{share, share, 0}})
		}
	}
	for n9, ratio := range map[string]float64{"traditional": 0.8, "enhanced": 1.5, "gtpu": 1.01} {
		m := result.Measurement{Metric: metricCost, Labels: point{n9: n9, direction: uplink}.labels(), Unit: "ns"}
		m.Labels["load"] = string(busy)
		for i := range 9 {
			m.Baseline = append(m.Baseline, 1000)
			m.Samples = append(m.Samples, 1000*ratio+float64(i-4)*10)
		}
		run.Measurements = append(run.Measurements, m)
	}
	return run
}

func TestClaims(t *testing.T) {
	p := params()
	run := madeUp(p)
	if err := run.Check(); err != nil {
		t.Error(err)
	}
	claims := strings.Join(p.Claims(run), "\n")
	for _, want := range []string{
		"uplink: highest rate of which at least 99.9 % is delivered, by a falling curve through the points: GTP-U 2 Gbit/s (0 to 2), SRv6 traditional (1 SID) 1 Gbit/s (0 to 4).",
		"SRv6 traditional (1 SID) takes 0.80 (",
		"SRv6 enhanced (2 SIDs) takes 1.50 (",
	} {
		if !strings.Contains(claims, want) {
			t.Errorf("no %q in\n%s", want, claims)
		}
	}
	for _, never := range []string{downlink, "GTP-U takes", "3 SIDs"} {
		if strings.Contains(claims, never) {
			t.Errorf("%q is claimed of nothing:\n%s", never, claims)
		}
	}
	// The interval holds 1: nothing is shown.
	for i := range run.Measurements {
		if m := &run.Measurements[i]; m.Metric == metricCost {
			m.Samples = m.Baseline
		}
	}
	if claims := strings.Join(p.Claims(run), "\n"); strings.Contains(claims, "takes") {
		t.Errorf("claims of equal costs:\n%s", claims)
	}
}
