package overlay

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// goal sets limits for one measurement: it must reach must and aims at aim. They
// are upper limits if less is set.
type goal struct {
	what      string
	metric    string
	where     result.Labels
	value     result.Value
	must, aim float64
	less      bool
	// waits: it is by the clock on the wall, so that others' use of the CPU counts.
	waits bool
}

// noiseOfWaits is what others may take of a CPU's time before a clock on the wall
// says little.
const noiseOfWaits = 0.1

// goals are Culvert's own: with one segment, which is the default.
func goals() (list []goal) {
	traffic := func(protocol, gso string, more ...string) result.Labels {
		return result.Labels{labelName: ours, labelProtocol: protocol, labelGSO: gso, labelServices: "0"}.With(more...)
	}
	list = []goal{
		{what: "throughput, to flat routing", metric: metricRate, where: traffic("tcp", off), value: result.ToBaseline, must: 1.00, aim: 1.15},
		{what: "throughput, to VXLAN", metric: metricBeside, where: traffic("tcp", off, labelBeside, vxlan), value: result.ToBaseline, must: 1.10, aim: 1.25},
		{what: "throughput, to the kernel's SRv6", metric: metricBeside, where: traffic("tcp", off, labelBeside, seg6), value: result.ToBaseline, must: 1.25, aim: 1.40},
		{what: "throughput, to flat routing", metric: metricRate, where: traffic("tcp", on), value: result.ToBaseline, must: 0.95, aim: 1.00},
		{what: "packets in a CPU second, to flat routing", metric: metricPacket, where: traffic("udp", off), value: result.OfBaseline, must: 0.95, aim: 1.05},
		{what: "pod ADD in the agent, P99, ms", metric: metricPod, where: result.Labels{labelBy: "agent", labelQuantile: p99}, must: 80, aim: 30, less: true, waits: true},
		{what: "agent's memory, MiB", metric: metricMemory, must: 200, aim: 100, less: true},
	}
	cost := func(rules string, must, aim float64) goal {
		return goal{what: "more time of a packet, by L2 forwarding's", metric: metricPolicyCost, where: result.Labels{labelRules: rules}, value: result.ToBaseline, must: must, aim: aim, less: true}
	}
	list = append(list, cost("none", 0.05, 0.02), cost("10000", 0.25, 0.10))
	for _, s := range sources {
		list = append(list, goal{what: "policy change, P99, ms", metric: metricChange, where: result.Labels{labelBy: s.name, labelQuantile: p99}, must: 100, aim: 20, less: true, waits: true})
	}
	return list
}

// What a measurement makes of a goal.
const (
	aimMet = "aim met"
	passed = "pass"
	failed = "fail"
)

// Verdict compares the value of a measurement with its goal. It is open if the
// measurement's interval includes the limit, or if a time by the wall clock may be
// wrong because other processes used the CPU.
type Verdict struct {
	What    string        `json:"what"`
	Labels  result.Labels `json:"labels"`
	Must    float64       `json:"must"`
	Aim     float64       `json:"aim"`
	Value   float64       `json:"value"`
	Low     float64       `json:"low"`
	High    float64       `json:"high"`
	Verdict string        `json:"verdict"` // pass, fail or aim met
	Open    bool          `json:"open"`
	Why     string        `json:"why,omitempty"` // it is open
}

// Verdicts of what a run measured.
func Verdicts(run *result.Run) (list []Verdict) {
	for _, g := range goals() {
		for _, m := range run.Select(g.metric, g.where) {
			v := g.judge(m)
			if g.waits && run.Environment.Noise > noiseOfWaits {
				v.Open, v.Why = true, "others used the CPU"
			}
			list = append(list, v)
		}
	}
	return list
}

func (g goal) judge(m result.Measurement) Verdict {
	e := m.Estimate(g.value)
	v := Verdict{What: g.what, Labels: m.Labels, Must: g.must, Aim: g.aim, Value: e.Value, Low: e.Low, High: e.High, Verdict: failed}
	if e.Low < g.must && e.High > g.must {
		v.Open, v.Why = true, "the interval holds it"
	}
	switch {
	case g.reached(e.Value, g.aim):
		v.Verdict = aimMet
	case g.reached(e.Value, g.must):
		v.Verdict = passed
	}
	return v
}

func (g goal) reached(value, wanted float64) bool {
	if g.less {
		return value <= wanted
	}
	return value >= wanted
}

func (v Verdict) String() string {
	of := v.Labels[labelNodes] + " nodes"
	switch {
	case v.Labels[labelRules] != "":
		of = fmt.Sprintf("policies: %s, %s", v.Labels[labelRules], v.Labels[labelDirection])
	case v.Labels[labelProtocol] == "udp":
		of = "UDP, " + v.Labels[labelFamily]
	case v.Labels[labelFamily] != "":
		of = fmt.Sprintf("TCP with GSO %s, %s", v.Labels[labelGSO], v.Labels[labelFamily])
	case v.Labels[labelBy] != "" && v.Labels[labelBy] != "agent":
		of = fmt.Sprintf("by %s, %s", v.Labels[labelBy], of)
	}
	open := ""
	if v.Open {
		open = ", but " + v.Why
	}
	return fmt.Sprintf("%s, %s: %.3g (%.3g to %.3g); must %.3g, aim %.3g: %s%s", v.What, of, v.Value, v.Low, v.High, v.Must, v.Aim, v.Verdict, open)
}
