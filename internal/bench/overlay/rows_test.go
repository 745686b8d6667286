package overlay

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/lab"
)

// measured is a run with a row of each sort.
func measured() *result.Run {
	tcp := point{tcpMTU, ipv4, 0}
	udpPoint := point{udp, ipv6, 0}
	beside := tcp.labels(ours)
	beside[labelBeside] = vxlan
	agent := func(metric, by, quantile string, value float64) result.Measurement {
		labels := result.Labels{labelNodes: "1000", labelBy: by, labelQuantile: quantile}
		return result.Measurement{Metric: metric, Labels: labels, Unit: "ms", Samples: []float64{value}}
	}
	return &result.Run{Measurements: []result.Measurement{
		{Metric: metricRate, Labels: tcp.labels(ours), Unit: "bit/s", Samples: []float64{4e9, 4.4e9}, Baseline: []float64{4e9, 4e9}},
		{Metric: metricWall, Labels: tcp.labels(ours), Unit: "bit/s", Samples: []float64{2e9, 2e9}, Baseline: []float64{2e9, 2e9}},
		{Metric: metricPacket, Labels: tcp.labels(ours), Unit: "ns", Samples: []float64{2000, 2000}, Baseline: []float64{2200, 2200}},
		{Metric: metricBeside, Labels: beside, Unit: "bit/s", Samples: []float64{4e9, 4.4e9}, Baseline: []float64{4e9, 4e9}},
		{Metric: metricRate, Labels: udpPoint.labels(ours), Unit: "bit/s", Samples: []float64{1e9}, Baseline: []float64{1e9}},
		{Metric: metricWall, Labels: udpPoint.labels(ours), Unit: "bit/s", Samples: []float64{1e9}, Baseline: []float64{1e9}},
		{Metric: metricPacket, Labels: udpPoint.labels(ours), Unit: "ns", Samples: []float64{1000}, Baseline: []float64{1100}},
		agent(metricPod, "agent", p50, 20), agent(metricPod, "agent", p99, 81), agent(metricPod, "agent", perEach, 5),
		agent(metricChange, "bgp", p99, 90),
		{Metric: metricMemory, Labels: result.Labels{labelNodes: "1000"}, Unit: "MiB", Samples: []float64{99}},
	}}
}

func TestRows(t *testing.T) {
	var out bytes.Buffer
	if err := PrintJSON(&out, nil, measured()); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 2 || len(got.Agent) != 3 {
		t.Fatalf("%+v", got)
	}
	want := Row{Name: ours, Family: ipv4, Protocol: "tcp", Gbit: 4.2, Baseline: flat, Ratio: 1.05, Low: 1, High: 1.1, GbitByWall: 2,
		PacketNS: 2000, GiBSeconds: bitsOfGiB / 4.2e9, PacketsPerCPU: 5e5, PacketRatio: 1.1, PacketLow: 1.1, PacketHigh: 1.1, N: 2}
	if got.Rows[0] != want {
		t.Errorf("%+v, want %+v", got.Rows[0], want)
	}
	if want := (AgentRow{Name: metricPod, By: "agent", Nodes: 1000, P50: 20, P99: 81, CPU: 5, N: 1}); got.Agent[0] != want {
		t.Errorf("%+v, want %+v", got.Agent[0], want)
	}
	for _, name := range []string{`"gbit_per_s":`, `"ratio":`, `"low":`, `"high":`, `"gso":`, `"family":`, `"protocol":`, `"name":`} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("no %s in %s", name, out.String())
		}
	}
}

// Of values, must and aim; an interval that holds what must be leaves it open.
func TestVerdicts(t *testing.T) {
	want := map[string]struct {
		verdict string
		open    bool
	}{
		"throughput, to flat routing":              {passed, false},
		"throughput, to VXLAN":                     {failed, false},
		"packets in a CPU second, to flat routing": {aimMet, false},
		"pod ADD in the agent, P99, ms":            {failed, false},
		"policy change, P99, ms":                   {passed, false},
		"agent's memory, MiB":                      {aimMet, false},
	}
	list := Verdicts(measured())
	if len(list) != len(want) {
		t.Errorf("%d verdicts, want %d", len(list), len(want))
	}
	for _, v := range list {
		if x := want[v.What]; v.Verdict != x.verdict || v.Open != x.open {
			t.Errorf("%s: want %s, open %v", v, x.verdict, x.open)
		}
	}
	noisy := measured()
	noisy.Environment.Noise = 0.2
	for _, v := range Verdicts(noisy) {
		if waits := strings.HasSuffix(v.What, "ms"); v.Open != waits {
			t.Errorf("%s: open %v where others use the CPU", v, v.Open)
		}
	}
	g := goal{metric: metricRate, value: result.ToBaseline, must: 1, aim: 2}
	v := g.judge(result.Measurement{Samples: []float64{9, 10, 12}, Baseline: []float64{10, 10, 10}})
	if v.Verdict != passed || !v.Open || !strings.Contains(v.String(), "but the interval holds it") {
		t.Errorf("%s", v)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := PrintTable(&out, nil, measured()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"srv6  ipv4    tcp       off  0         4.20", "policy_change  bgp    1000   -       90.0", "TCP with GSO off, ipv4: 1.05 (1 to 1.1); must 1, aim 1.15: pass\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// What went another way is no figure.
func TestProof(t *testing.T) {
	f := variantOf(ours).proof
	p, a := point{tcpGSO, ipv4, 0}, amount{packets: 100}
	counted := func(policy, there, back uint64) map[string]lab.Counters {
		return map[string]lab.Counters{
			"srv6-1": {Policies: map[string]uint64{"srv6-2:ipv4": policy}, SIDs: map[string]uint64{"fc00:0:1:4::/64": back}},
			"srv6-2": {SIDs: map[string]uint64{"fc00:0:2:4::/64": there}},
		}
	}
	none := counted(5, 5, 5)
	for name, x := range map[string]struct {
		p     point
		after map[string]lab.Counters
		says  string
	}{
		"all":                {p, counted(105, 105, 105), ""},
		"policy":             {p, counted(104, 105, 105), "policy srv6-2:ipv4 of srv6-1 counted 99 of 100"},
		"SID":                {p, counted(105, 5, 105), "SID fc00:0:2:4::/64 of srv6-2 counted nothing"},
		"back":               {p, counted(105, 105, 5), "SID fc00:0:1:4::/64 of srv6-1 counted nothing"},
		"nothing is back":    {point{udp, ipv4, 0}, counted(105, 105, 5), ""},
		"the other family's": {point{tcpGSO, ipv6, 0}, counted(105, 105, 105), "policy srv6-2:ipv6 of srv6-1 counted 0 of 100"},
	} {
		err := f.check(x.p, a, none, x.after)
		if (x.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want %q", name, err, x.says)
		}
	}
}
