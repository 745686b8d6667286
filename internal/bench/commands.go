package bench

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/disrupt"
	"github.com/culvert-net/culvert/internal/bench/experiment"
)

func deviceCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("device", &cobra.Command{
		Short: "Throughput and latency of any device between two interfaces, beside Linux and Culvert",
		Long: `Finds the highest rate at which a device loses nothing (NDR) and the highest at
which it loses at most 0.5 % (PDR), by MLRsearch (RFC 9971); then its latency at
shares of PDR, and its loss against the rate. The device is whatever forwards
from the interface --tx to the interface --rx: give the Ethernet address at which
it receives (--mac), what is sent (--template) and what must come out (--expect).
Every packet is checked.

--against measures built-in devices beside it: functions of Linux and of Culvert,
each in namespaces of its own. Without --tx and --rx only they are measured. They
need a CPU besides the generator's. Rates that the generator does not reach by
itself are never held against a device.`,
		Example: `  culvert bench device
  culvert bench device --tx eth1 --rx eth2 --mac 02:00:00:00:00:01 --template gtpu --expect ipv4
  culvert bench device --against kernel/end_dt6,culvert/end_dt6 --sizes 64,512,1518 -o json`,
	}, nil, nil)
	complete(c, map[string][]string{
		"template": device.TemplateNames(), "expect": device.TemplateNames(), "against": device.AgainstNames(),
		"sizes": {"64", "128", "256", "512", "1024", "1280", "1518", "imix"}, "method": {"live", "packet"},
	})
	return c
}

func disruptCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("disrupt", &cobra.Command{
		Short: "How long packets are blocked by restarts, upgrades and changes under load",
		Long: `Holds a load, does something to the daemon or to what it knows, and tells how many
packets were lost by it: blocked time is packets lost by offered rate. The load is
NDR, which is found first, or --rate. For each event the same load is held for as
long with nothing done. With --rounds each is done so many times.`,
		Example: "  culvert bench disrupt\n  culvert bench disrupt --events upgrade,kill --rate 0.5 --rounds 10",
	}, nil, nil)
	complete(c, map[string][]string{"events": disrupt.EventNames()})
	return c
}

// complete offers values of flags to a shell.
func complete(c *cobra.Command, values map[string][]string) {
	for flag, list := range values {
		directive := cobra.ShellCompDirectiveNoFileComp
		if flag == "template" || flag == "expect" {
			directive = cobra.ShellCompDirectiveDefault
		}
		must(c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, directive)))
	}
}
