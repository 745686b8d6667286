package designs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/config"
)

func TestValidate(t *testing.T) {
	if err := Kind.New().Validate(); err != nil {
		t.Error(err)
	}
	quick := Kind.New().(*Experiment)
	quick.Quick()
	if err := quick.Validate(); err != nil {
		t.Errorf("quick: %v", err)
	}
	for says, wrong := range map[string]func(*Experiment){
		`with.against[0]: "eupf" is none`:           func(e *Experiment) { e.Against = []string{"eupf"} },
		`with.against[0]: "eUPF=eupf" is none`:      func(e *Experiment) { e.Against = []string{"eUPF=eupf"} },
		`with.against[0]: "eupf= " is none`:         func(e *Experiment) { e.Against = []string{"eupf= "} },
		`with.against[0]: the name "cp" is taken`:   func(e *Experiment) { e.Against = []string{"cp=eupf"} },
		`with.against[1]: the name "eupf" is taken`: func(e *Experiment) { e.Against = []string{"eupf=eupf --a b=c", "eupf=x"} },
		`with.designs[1]: there is no "card"`:       func(e *Experiment) { e.Designs = []string{"dp", "card"} },
		"with.designs: none is chosen":              func(e *Experiment) { e.Designs = nil },
		`with.sizes[0]: "63" is no size`:            func(e *Experiment) { e.Sizes = []string{"63"} },
		"with.sizes: there is none":                 func(e *Experiment) { e.Sizes = nil },
		"with.sessions: 3 is out of range":          func(e *Experiment) { e.Sessions = 3 },
		"with.latency[0]: 2 is none":                func(e *Experiment) { e.Latency = []float64{2} },
		"with.watts_per_core: -1 is none":           func(e *Experiment) { e.WattsPerCore = -1 },
		"with.of_gnbs[1]: 1001 is out of range":     func(e *Experiment) { e.OfGNBs = []uint{1, 1001} },
		"with.of_sessions[0]: 0 is out of range":    func(e *Experiment) { e.OfSessions = []uint{0} },
		"with.price: NaN is none":                   func(e *Experiment) { e.Price = math.NaN() },
		"with.trial: 1ms is too short":              func(e *Experiment) { e.Trial = experiment.Duration(time.Millisecond) },
		"with.sizes[1]: \"jumbo\" is no size":       func(e *Experiment) { e.Sizes = []string{"64", "jumbo"} },
		"with.sessions: 2097152 is out of range":    func(e *Experiment) { e.Sessions = 1 << 21 },
		"with.designs[2]: \"dp\" is there twice":    func(e *Experiment) { e.Designs = []string{"dp", "cp", "dp"} },
		"with.latency[2]: 0 is none":                func(e *Experiment) { e.Latency = []float64{0.1, 0.5, 0} },
		`with.events[1]: there is no "flood"`:       func(e *Experiment) { e.Events = []string{"heavy", "flood"} },
		`with.events[1]: "heavy" is there twice`:    func(e *Experiment) { e.Events = []string{"heavy", "heavy"} },
	} {
		e := Kind.New().(*Experiment)
		wrong(e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

func measured(design, metric string, samples ...float64) result.Measurement {
	labels := result.Labels{"design": design}
	switch metric {
	case metricPackets:
		labels["size"] = "64"
	case metricP50:
		labels["load"] = "50 %"
	default:
		labels["offered"] = "0"
	}
	return result.Measurement{Metric: metric, Labels: labels, Samples: samples}
}

// TestClaims: a finding of the paper is borne out, excluded or left open by our interval.
func TestClaims(t *testing.T) {
	r := &result.Run{Measurements: []result.Measurement{
		measured(steerOffload, metricPackets, 20, 21, 22, 20, 21), measured(softUPF, metricPackets, 5, 5, 6, 5, 5),
		measured(softUPF, metricP50, 50, 51, 50, 52, 50), measured(dpOffload, metricP50, 70, 71, 72, 70, 70),
		measured(cpOffload, signalling.PerSecond, 9, 8, 11, 12, 10), measured(softUPF, signalling.PerSecond, 10, 9, 10, 9, 11),
	}}
	claims := (&Experiment{}).Claims(r)
	for i, says := range []string{
		"SteerOffload forwards up to 45 % more than SoftUPF. Our interval bears it out, frames of 64: SteerOffload is 4.",
		"DPOffload's latency is up to 24 % lower than SoftUPF's. Our interval excludes it: SoftUPF is 0.71 times DPOffload's",
		"CPOffload answers 402 times as many requests as SoftUPF. Our interval leaves it open: CPOffload is ",
	} {
		if len(claims) != 3 || !strings.Contains(claims[i], says) {
			t.Errorf("claims %q, want one that says %q", claims, says)
		}
	}
	for i := range r.Measurements {
		r.Measurements[i].Samples = r.Measurements[i].Samples[:2]
	}
	if claims := (&Experiment{}).Claims(r); len(claims) != 0 {
		t.Errorf("two rounds say %q", claims)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	r := &result.Run{Measurements: []result.Measurement{measured(cpOffload, signalling.PerSecond, 3, 1, 2), measured(dpOffload, metricPackets, 5, 5, 5),
		{Metric: metricP99, Labels: result.Labels{"design": dpOffload, "event": "heavy", "ue": "others"}, Samples: []float64{7, 7, 7}}}}
	r.Measurements = append([]result.Measurement{measured("eupf", metricPackets, 4, 4, 4)}, r.Measurements...)
	if err := PrintJSON(&out, &experiment.File{With: &Experiment{Sessions: 64, Against: []string{"eupf=eupf --config x"}}}, r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bench string
		Rows  []row
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := []row{
		{Design: "dp", Measure: "pps", Size: "64", Sessions: 64, Value: 5, Low: 5, High: 5},
		{Design: "dp", Measure: "p99_us", Event: "heavy", UE: "others", Sessions: 64, Value: 7, Low: 7, High: 7},
		{Design: "cp", Measure: "n4_per_s", Offered: "0", Sessions: 64, Value: 2, Low: 1, High: 3},
		{Design: "eupf", Measure: "pps", Size: "64", Sessions: 64, Value: 4, Low: 4, High: 4},
	}
	if got.Bench != "designs" || !slices.Equal(got.Rows, want) {
		t.Errorf("%s", out.Bytes())
	}
}

// TestAgainstClaims: each of our designs stands against a foreign UPF where both were measured.
func TestAgainstClaims(t *testing.T) {
	r := &result.Run{Measurements: []result.Measurement{
		measured(dpOffload, metricPackets, 20, 20, 20), measured(steerOffload, metricPackets, 5, 5, 5), measured("eupf", metricPackets, 10, 10, 10),
		measured(dpOffload, signalling.PerSecond, 3, 3, 3), measured("eupf", metricP50, 1, 1, 1),
	}}
	e := &Experiment{Designs: []string{"dp", "steer"}, Against: []string{"eupf=eupf"}}
	want := []string{
		"packets/s, frames of 64: DPOffload has 2.00 times eupf's (2.00 to 2.00).",
		"packets/s, frames of 64: SteerOffload has 0.50 times eupf's (0.50 to 0.50).",
	}
	if got := e.Claims(r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if e.Glossary()["eupf"] != "a UPF that was started by: eupf" {
		t.Errorf("%q", e.Glossary())
	}
}

// TestPlan: a point of each design and size, one of requests and one of events; none without.
func TestPlan(t *testing.T) {
	e := &Experiment{Designs: []string{"dp", "soft"}, Events: EventNames(), Sizes: []string{"64", "imix"}, Requests: experiment.Duration(time.Second)}
	points := func() (ids []string) {
		p, err := e.Plan()
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range p.Points {
			ids = append(ids, at.ID)
		}
		return ids
	}
	if got := points(); !slices.Equal(got, []string{"dp, 64", "dp, imix", "dp, N4", "dp, events", "soft, 64", "soft, imix", "soft, N4", "soft, events"}) {
		t.Errorf("%q", got)
	}
	e.Against = []string{"eupf=eupf"}
	if got := points(); len(got) != 12 || got[11] != "eupf, events" {
		t.Errorf("%q", got)
	}
	e.Against, e.Events = nil, nil
	if e.Requests = 0; len(points()) != 4 {
		t.Errorf("%q", points())
	}
	e.Designs = []string{"dp", "ideal"}
	if got := points(); !slices.Equal(got, []string{"dp, 64", "dp, imix", "ideal, cores"}) {
		t.Errorf("%q", got)
	}
}

// TestIdeal: an ideal card is measured on 1, 2, 4, ... and all cores; its figures have names of
// their own, and those of packets and CPU time in JSON; a sentence says what more cores give.
func TestIdeal(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 2: {1, 2}, 6: {1, 2, 4, 6}, 8: {1, 2, 4, 8}} {
		if got := numbersOf(n); !slices.Equal(got, want) {
			t.Errorf("of %d cores %v are measured, want %v", n, got, want)
		}
	}
	of := func(metric, cores string, samples ...float64) result.Measurement {
		return result.Measurement{Metric: metric, Labels: Labels("ideal").With("cores", cores), Samples: samples}
	}
	r := &result.Run{Measurements: []result.Measurement{
		of(metricIdealPackets, "1", 10, 10, 10), of(metricIdealPackets, "2", 19, 19, 19), of(metricIdealCPU, "2", 105, 105, 105),
	}}
	e := &Experiment{Designs: []string{"ideal"}, Sessions: 64}
	want := []string{"With an ideal card 2 cores forward 1.90 times one core's packets (1.90 to 1.90)."}
	if got := e.Claims(r); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := len(idealFigures(e.Designs)); got != 1 || len(idealFigures([]string{"dp"})) != 0 {
		t.Errorf("%d figures", got)
	}
	var out bytes.Buffer
	if err := PrintJSON(&out, &experiment.File{With: e}, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"measure": "pps",`, `"measure": "cpu_ns",`, `"cores": 2,`, `"design": "ideal",`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %s", out.String(), want)
		}
	}
}

// TestCost: a core that forwards 1 million packets of 1,000 octets a second has 8 Gbit/s.
func TestCost(t *testing.T) {
	e := &Experiment{Sizes: []string{"64", "1400"}, WattsPerCore: 5, Price: 100}
	if got := e.costSize(); got != "64" {
		t.Errorf("cores are counted by frames of %s", got)
	}
	if e.Sizes = append(e.Sizes, "imix"); e.costSize() != "imix" {
		t.Errorf("cores are counted by frames of %s", e.costSize())
	}
	var got []string
	for _, s := range e.cost("dp", "imix", 1e6, 1000) {
		got = append(got, fmt.Sprint(s.Labels["rate"], " ", s.Metric, " ", s.Value, s.Unit))
	}
	want := []string{"10 Gbit/s cores 2cores", "10 Gbit/s watts 10W", "10 Gbit/s price 200", "100 Gbit/s cores 13cores", "100 Gbit/s watts 65W", "100 Gbit/s price 1300"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(e.costFigures()); n != 3 {
		t.Errorf("%d figures", n)
	}
	e.WattsPerCore, e.Price = 0, 0
	if n, figures := len(e.cost("dp", "imix", 1e6, 1000)), len(e.costFigures()); n != 2 || figures != 1 {
		t.Errorf("without watts and price %d values in %d figures", n, figures)
	}
}

// TestSeries: each number is a point with a UPF of its own, and its rows are packets per
// second of so many.
func TestSeries(t *testing.T) {
	e := &Experiment{Designs: []string{"dp"}, Sizes: []string{"64"}, Sessions: 64, Series: true, OfSessions: []uint{1, 1000}, OfGNBs: []uint{100}}
	var names []string
	for _, at := range e.seriesTasks() {
		names = append(names, at.name)
	}
	if !slices.Equal(names, []string{"1 sessions", "1000 sessions", "100 gNBs"}) || len(e.seriesFigures()) != 2 {
		t.Errorf("%q in %d figures", names, len(e.seriesFigures()))
	}
	for _, m := range []struct {
		metric, label, number string
		want                  row
	}{
		{"pps_of_sessions", "sessions", "1000", row{Measure: "pps", Sessions: 1000}},
		{"pps_of_gnbs", "gnbs", "100", row{Measure: "pps", Sessions: 64, GNBs: 100}},
		{"pps", "sessions", "7", row{Measure: "pps", Sessions: 64}},
	} {
		got := row{Measure: m.metric, Sessions: 64}
		e.ofSeries(result.Measurement{Metric: m.metric, Labels: result.Labels{m.label: m.number}}, &got)
		if got != m.want {
			t.Errorf("%+v, want %+v", got, m.want)
		}
	}
	if e.Series = false; len(e.seriesTasks())+len(e.seriesFigures()) != 0 {
		t.Error("series without --series")
	}
}

// TestAllow: all gNBs may send on N3, wherever their addresses begin.
func TestAllow(t *testing.T) {
	for _, gnbs := range []int{1, 10, 1000} {
		c := &config.Config{Interfaces: []config.Interface{{Name: node.PortN3}, {Name: node.PortN6}}}
		allow(c, gnbs)
		gnb := catalog.GNB
		for range gnbs {
			if !c.Interfaces[0].Peers[0].Contains(gnb) || c.Interfaces[1].Peers != nil {
				t.Fatalf("%d gNBs: %s may not send: %v, %v", gnbs, gnb, c.Interfaces[0].Peers, c.Interfaces[1].Peers)
			}
			gnb = gnb.Next()
		}
	}
}
