package overlay

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/overlay/policies"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// The metrics of NetworkPolicies, beside L2 forwarding's CPU time of a packet.
const (
	metricPolicy     = "policy_packet_ns" // CPU time of a packet
	metricPolicyCost = "policy_cost_ns"   // more than a packet of its baseline
)

const (
	labelRules     = "rules" // of the pod's policies, or a name of policies
	labelDirection = "direction"
)

// policyPasses are how often all are sent in a round.
const policyPasses = 2

func (p *Params) policyPlan() policies.Plan {
	return policies.Plan{Rules: p.Rules, Flows: p.Flows, Packets: p.Packets, Pods: p.Pods, Services: slices.Max(p.Services)}
}

// openPolicies starts the nodes where NetworkPolicies are measured, unless they run.
func (r *rig) openPolicies(ctx context.Context) (err error) {
	if r.policies != nil {
		return nil
	}
	plan := r.params.policyPlan()
	plan.Culvert, plan.BPFFS, plan.CPU = r.setting.Culvert, r.setting.BPFFS, r.core.cpu
	if r.policies, err = policies.Open(ctx, plan); err == nil {
		r.Later(r.policies.Close)
	}
	return err
}

// measurePolicies takes a sample of each pod in a direction.
func (r *rig) measurePolicies(ctx context.Context, direction string, round int) ([]experiment.Sample, error) {
	if err := r.openPolicies(ctx); err != nil {
		return nil, err
	}
	names := r.params.policyPlan().Names(direction)
	s, err := r.policies.Measure(ctx, direction, thereAndBack(len(names)+1, round, policyPasses))
	if err != nil {
		return nil, err
	}
	out := policySamples(direction, names, s)
	if round == 0 && direction == policies.Ingress {
		labels := result.Labels{labelNodes: "1", labelBy: "plugin, policies"}
		out = append(out, timed{took: r.policies.Added()}.samples(metricPod, labels)...)
	}
	return out, nil
}

// policyBaselines are what pods without policies are compared with, if anything. Pods with policies are
// compared with one of the same node without.
var policyBaselines = map[string]string{policies.Off: "", policies.None: policies.Off, policies.First: policies.None, policies.Others: "", policies.Many: ""}

func policySamples(direction string, names []string, s policies.Sample) (out []experiment.Sample) {
	for _, name := range names {
		labels := result.Labels{labelRules: name, labelDirection: direction}
		out = append(out, experiment.Sample{Metric: metricPolicy, Labels: labels, Unit: "ns", Value: s.Pods[name], Baseline: &s.L2})
		beside, special := policyBaselines[name]
		if !special {
			beside = policies.Others
		}
		if beside != "" {
			out = append(out, experiment.Sample{Metric: metricPolicyCost, Labels: labels, Unit: "ns", Value: s.Pods[name] - s.Pods[beside], Baseline: &s.L2})
		}
	}
	return out
}

// PolicyRow is traffic of a pod in a direction, by what isolates the pod. More is the time that a
// packet takes more than one of the row's baseline, by the time of L2 forwarding (policyBaselines).
type PolicyRow struct {
	Rules     string  `json:"rules"` // of the pod's policies, or off, none, first, others, many
	Direction string  `json:"direction"`
	PacketNS  float64 `json:"cpu_ns_per_packet"`
	L2NS      float64 `json:"l2_forwarding_ns"`
	More      float64 `json:"more"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	N         int     `json:"n"` // rounds
}

func policyRows(run *result.Run) (rows []PolicyRow) {
	for _, m := range run.Select(metricPolicy, nil) {
		row := PolicyRow{Rules: m.Labels[labelRules], Direction: m.Labels[labelDirection], PacketNS: m.Estimate(result.Plain).Value, N: len(m.Samples)}
		row.L2NS = stats.Median(m.Baseline)
		if cost := one(run, metricPolicyCost, m.Labels); len(cost.Samples) > 0 {
			e := cost.Estimate(result.ToBaseline)
			row.More, row.Low, row.High = e.Value, e.Low, e.High
		}
		rows = append(rows, row)
	}
	return rows
}

// ExchangeRow is requests with their responses by one variant, one at a time. Ratio is their CPU
// time by that of Baseline in the same round. P50 and P99 are by the clock on the wall.
type ExchangeRow struct {
	Name      string  `json:"name"`
	Family    string  `json:"family"`
	Kind      string  `json:"kind"` // tcp-rr, udp-rr, tcp-crr
	Services  int     `json:"services"`
	CPUNS     float64 `json:"cpu_ns"`
	PerSecond float64 `json:"per_cpu_s"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Baseline  string  `json:"baseline"`
	Ratio     float64 `json:"ratio"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	N         int     `json:"n"` // rounds
}

func exchangeRows(run *result.Run) (rows []ExchangeRow) {
	for _, m := range run.Select(metricExchange, nil) {
		cpu, ratio := m.Estimate(result.Plain), m.Estimate(result.ToBaseline)
		latency := func(quantile string) float64 {
			return one(run, metricLatency, m.Labels.With(labelQuantile, quantile)).Estimate(result.Plain).Value / 1e3
		}
		rows = append(rows, ExchangeRow{
			Name: m.Labels[labelName], Family: m.Labels[labelFamily], Kind: m.Labels[labelProtocol], Services: servicesOf(m),
			CPUNS: cpu.Value, PerSecond: 1e9 / cpu.Value, P50: latency(p50), P99: latency(p99), Baseline: variantOf(m.Labels[labelName]).beside,
			Ratio: ratio.Value, Low: ratio.Low, High: ratio.High, N: cpu.N,
		})
	}
	return rows
}

func servicesOf(m result.Measurement) int {
	n, _ := strconv.Atoi(m.Labels[labelServices]) // a number of this program's
	return n
}

// printExchanges writes the rows of both for people.
func printExchanges(t io.Writer, r Report) {
	if len(r.Exchanges) > 0 {
		fmt.Fprintln(t, "\nname\tfamily\tkind\tServices\tCPU ns\ta CPU second\tP50 us\tP99 us\tto\tratio\t95 %")
	}
	for _, x := range r.Exchanges {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.0f\t%.0f\t%.1f\t%.1f\t%s\t%.3f\t%.3f to %.3f\n",
			x.Name, x.Family, x.Kind, x.Services, x.CPUNS, x.PerSecond, x.P50, x.P99, x.Baseline, x.Ratio, x.Low, x.High)
	}
	if len(r.Policies) > 0 {
		fmt.Fprintln(t, "\npolicy rules\tdirection\tCPU ns/packet\tL2 forwarding\tmore, by L2\t95 %")
	}
	for _, x := range r.Policies {
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%.0f\t%.3f\t%.3f to %.3f\n", x.Rules, x.Direction, x.PacketNS, x.L2NS, x.More, x.Low, x.High)
	}
}
