package device

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// fewestRounds is how many a claim takes.
const fewestRounds = 3

// metricVethLoss is what the pair in front of a device loses by itself, at a rate that is too much
// for the device.
const metricVethLoss = "veth_loss"

// Figures returns charts of all sizes for the throughputs, and charts per frame size
// for the rest.
func (d *Experiment) Figures() []result.Figure {
	list := []result.Figure{
		{
			ID: "device_ndr", Title: "Packets per second without loss (NDR)", Kind: result.Bars, Metric: "ndr", X: "size", Series: "what",
			XTitle: "octets of a frame with FCS", YTitle: "packets/s",
			Caption:  "The highest rate at which no packet was lost, found by MLRsearch (RFC 9971). Longer bars are better. \"veth\" is no device: it is the pair of interfaces that leads to the built-in ones, so none of them can be faster.",
			Headline: "packets/s without loss", Doubt: pairLoses("NDR", 0),
		},
		{
			ID: "device_pdr", Title: fmt.Sprintf("Packets per second with up to %.2g %% loss (PDR)", 100*d.Loss), Kind: result.Bars, Metric: "pdr", X: "size", Series: "what",
			XTitle: "octets of a frame with FCS", YTitle: "packets/s",
			Doubt:   pairLoses("PDR", d.Loss),
			Caption: "The highest rate at which so few packets were lost. Where it is far above NDR, the device loses a few packets now and then, not because it is too slow.",
		},
	}
	for _, size := range d.Sizes {
		at := result.Labels{"size": size}
		list = append(list, result.Figure{
			ID: "device_loss_" + size, Title: "Loss against rate, frames of " + size, Kind: result.Lines, Metric: "loss", Where: at,
			X: "rate", Series: "what", XTitle: "offered, million packets/s", YTitle: "share of packets lost",
			Caption: "Each line begins at no loss and rises where its device is at its limit. What comes above the limit is lost, so a line that rises later is of a faster device.",
		})
		for _, share := range d.Latency {
			percent := fmt.Sprintf("%.0f", 100*share)
			load, id := percent+" %", size+"_"+percent
			where := result.Labels{"size": size, "load": load}
			list = append(list, result.Figure{
				ID: "device_latency_" + id, Title: fmt.Sprintf("Latency at %s of PDR, frames of %s", load, size), Kind: result.Percentiles,
				Metric: "latency", Where: where, Series: "what", YTitle: "latency", LogY: true,
				Caption: "From the making of a packet to the program at the receiving interface. Each device has its own PDR, so each is equally busy.",
			}, result.Figure{
				ID: "device_deviation_" + id, Title: fmt.Sprintf("Deviation of latency at %s of PDR, frames of %s", load, size), Kind: result.Density,
				Metric: "latency", Where: where, Series: "what", Centered: true, YTitle: "share of packets",
				Caption: "How far single packets are from their median: a high and narrow curve is a device that treats all packets alike.",
			})
		}
	}
	return append(list, result.Figure{
		ID: "device_table", Title: "Latency", Kind: result.Table, Metric: "latency_p99",
		Caption: "What 99 of 100 packets do not exceed, in ns, at shares of each device's own PDR.",
	})
}

// pairLoses is of devices whose rate says nothing of them.
func pairLoses(goal string, loss float64) *result.Doubt {
	return &result.Doubt{
		Metric: metricVethLoss, Where: result.Labels{"goal": goal}, Above: loss,
		Why: "the pair of interfaces in front of the device loses more than that with nothing behind it, at the rate that was too much: its queue of 256 packets is the limit, or who else used the CPU, not the device",
	}
}

// Claims compare what two built-in devices do alike.
func (d *Experiment) Claims(r *result.Run) (claims []string) {
	for _, m := range r.Select("pdr", result.Labels{"device": CulvertDevice}) {
		for _, other := range r.Select("pdr", result.Labels{"device": KernelDevice, "function": m.Labels["function"], "size": m.Labels["size"]}) {
			doubt := pairLoses("PDR", d.Loss)
			if len(m.Samples) != len(other.Samples) || len(m.Samples) < fewestRounds || r.Doubts(m, doubt) || r.Doubts(other, doubt) {
				continue
			}
			times, low, high := stats.Interval(m.Samples, other.Samples)
			if low > 1 || high < 1 {
				claims = append(claims, fmt.Sprintf("%s, frames of %s: Culvert forwards %.2f times (%.2f to %.2f) as many packets as Linux with at most %.2g %% loss, each on one core.",
					m.Labels["function"], m.Labels["size"], times, low, high, 100*d.Loss))
			}
		}
	}
	return claims
}
