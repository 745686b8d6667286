package overlay

import (
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// The metrics of knb.
const (
	metricKNB     = "knb_bandwidth" // bit/s, received
	metricKNBLost = "knb_lost"      // share of datagrams
	metricKNBCPU  = "knb_cpu"       // share of a host's CPU
	metricKNBRAM  = "knb_memory"    // used
)

// Labels of them.
const (
	labelCase  = "case"
	labelHost  = "host"
	labelState = "state"
	labelOf    = "of"
)

// knbStates are those of a CPU, and all of them together, as knb has them.
var knbStates = []string{"total", "user", "nice", "system", "iowait", "steal"}

// The hosts.
var knbHosts = [2]string{"client", "server"}

// knbSamples are what each variant came to, beside flat routing.
func knbSamples(p knbPoint, list []variant, seen map[string]hosts) (out []experiment.Sample) {
	for _, v := range list {
		labels := result.Labels{labelName: v.name, labelCase: p.of}
		if p.of != caseIdle {
			labels = labels.With(labelFamily, p.family)
		}
		h, beside := seen[v.name], seen[v.beside]
		add := func(metric, unit string, labels result.Labels, of func(hosts) float64, compared bool) {
			s := experiment.Sample{Metric: metric, Labels: labels, Unit: unit, Value: of(h)}
			if compared {
				baseline := of(beside)
				s.Baseline = &baseline
			}
			out = append(out, s)
		}
		if p.of != caseIdle {
			add(metricKNB, "bit/s", labels, func(h hosts) float64 { return h.bits }, true)
		}
		if p.of == caseP2PUDP || p.of == caseP2SUDP {
			add(metricKNBLost, "", labels, func(h hosts) float64 { return h.lost }, false)
		}
		for i, host := range knbHosts {
			at := labels.With(labelHost, host)
			for _, state := range knbStates {
				add(metricKNBCPU, "%", at.With(labelState, state), func(h hosts) float64 { return h.cpu[i].Shares()[state] }, false)
			}
			if h.agents[i] > 0 {
				add(metricKNBRAM, "MB", at.With(labelOf, "agent"), func(h hosts) float64 { return h.agents[i] }, false)
			}
		}
		add(metricKNBRAM, "MB", labels.With(labelOf, "machine"), func(h hosts) float64 { return h.used }, false)
	}
	return out
}

// Glossary says what the figures' words mean.
func (*KNB) Glossary() map[string]string {
	words := map[string]string{
		caseIdle: "nothing is sent", caseP2PTCP: "TCP from pod to pod", caseP2PUDP: "UDP from pod to pod, as fast as it goes",
		caseP2STCP: "TCP from pod to Service", caseP2SUDP: "UDP from pod to Service, as fast as it goes",
		"agent": "culvert's own memory and its BPF maps", "machine": "what the whole machine uses, both hosts and all else",
	}
	for _, v := range variants {
		words[v.name] = v.meaning
	}
	return words
}

// Figures show what is measured.
func (k *KNB) Figures() (list []result.Figure) {
	const about = "iperf3 with one connection, by the clock on the wall; TCP without its first second. The client's host and the server's have a CPU of this machine each. "
	for _, family := range k.Families {
		where := result.Labels{labelFamily: family}
		list = append(list, result.Figure{
			ID: "knb-" + family, Title: "Throughput between pods, " + family, Kind: result.Bars, Metric: metricKNB, Where: where, X: labelName, Series: labelCase,
			YTitle: "throughput", Caption: about + "p2s: to a Service, which the client's node translates; host routing by eBPF, also with IP-in-IP, knows none. UDP: what arrives.",
			Anchors: []result.Anchor{
				{Label: "paper 002, TCP, IP-in-IP and SRv6 of VPP", Source: paper, X: ours, Y: 2e9, Unit: "bit/s", Note: "order of magnitude, IPv4; virtual machines in KVM of 2 or 4 virtual CPUs"},
				{Label: "paper 002, UDP, IP-in-IP and SRv6 of VPP", Source: paper, X: ours, Y: 1e9, Unit: "bit/s", Note: "order of magnitude, IPv4; virtual machines in KVM of 2 or 4 virtual CPUs"},
			},
		}, result.Figure{
			ID: "knb-ratio-" + family, Title: "Throughput between pods, to flat routing, " + family, Kind: result.Bars, Metric: metricKNB, Where: where, X: labelName, Series: labelCase,
			Value: result.ToBaseline, YTitle: "throughput, flat routing = 1", Caption: about + "By that of flat routing in the same round: 1.1 is a tenth more.",
		})
	}
	return append(list, result.Figure{
		ID: "knb-cpu-client", Title: "CPU of the client's host", Kind: result.Bars, Metric: metricKNBCPU, Where: result.Labels{labelHost: "client", labelState: "total"}, X: labelName, Series: labelCase, YTitle: "share of its CPU, %",
		Caption: "As knb's total: user, nice, system, iowait and steal, of the program, the pod and the node, and of whatever else the machine runs there.",
	}, result.Figure{
		ID: "knb-cpu-server", Title: "CPU of the server's host", Kind: result.Bars, Metric: metricKNBCPU, Where: result.Labels{labelHost: "server", labelState: "total"}, X: labelName, Series: labelCase, YTitle: "share of its CPU, %",
		Caption: "The same of the server's.",
	}, result.Figure{
		ID: "knb-cpu", Title: "CPU of both hosts by state", Kind: result.Table, Metric: metricKNBCPU,
		Caption: "Shares of the time of the host's CPU, of /proc/stat. system includes interrupts and softirqs, in which the kernel handles packets.",
	}, result.Figure{
		ID: "knb-memory", Title: "Memory", Kind: result.Table, Metric: metricKNBRAM,
		Caption: "machine: used, which is all but MemAvailable; both hosts are on this machine, so knb's two figures are one here. agent: of the node's culvert.",
	}, result.Figure{
		ID: "knb-lost", Title: "Lost datagrams", Kind: result.Table, Metric: metricKNBLost, Caption: "Share of UDP's datagrams: the client sends as fast as it can.",
	})
}

// Claims are sentences that the measurements bear out: what figure 15 compares.
func (k *KNB) Claims(run *result.Run) (list []string) {
	for _, of := range []string{caseP2PTCP, caseP2PUDP} {
		for _, family := range k.Families {
			for _, m := range run.Select(metricKNB, result.Labels{labelCase: of, labelFamily: family}) {
				// Only what differs for certain.
				if e := m.Estimate(result.ToBaseline); e.HasInterval() && (e.Low > 1 || e.High < 1) {
					list = append(list, fmt.Sprintf("%s, %s: %s reaches %.2f (%.2f to %.2f) times the throughput of flat routing, in runs of %v.",
						of, family, m.Labels[labelName], e.Value, e.Low, e.High, time.Duration(k.Time)))
				}
			}
		}
	}
	return list
}
