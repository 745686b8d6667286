package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/watch"
	"github.com/culvert-net/culvert/internal/capture"
	"github.com/culvert-net/culvert/internal/cmdline"
)

// explainTimeout is for the kernel, which verifies a program, and for large tables.
const explainTimeout = time.Minute

func explainCommand(a *app) *cobra.Command {
	var digits string
	c := &cobra.Command{
		Use:   "explain INTERFACE [FILE]",
		Short: "Show what would become of packets that arrived now",
		Long: fmt.Sprintf(`Shows what the data path would do now with packets that arrived by INTERFACE, one
after the other, as culvert trace shows it of packets that did arrive. Nothing is
sent, counted or charged, and no meter, quota or NAT mapping changes.

FILE is a capture (pcap, pcapng), or text: a line of hexadecimal digits for each
packet, or what tshark -x, tcpdump -xx or Wireshark print. Packets begin with
their Ethernet header. "-" is standard input. --hex takes one packet from the
command line. At most %d packets are explained.

Where the daemon itself handles a packet (PFCP, fragments, buffered packets), the
explanation ends at the daemon.`, watch.MostPackets),
		Example: "  culvert explain n3 uplink.pcap\n  culvert explain n6 --hex 0200000000020200000000010800450000...\n  tcpdump -xx -c 1 -r n3.pcap 2>&1 | culvert explain n3 -",
		Args:    explainArguments(&digits),
		RunE: func(c *cobra.Command, args []string) error {
			frames, err := explainedFrames(c, args[1:], digits)
			if err != nil {
				return err
			}
			events, err := ask(a, c, explainTimeout, func(client *api.Client, ctx context.Context) ([]agent.TraceEvent, error) {
				return client.Explain(ctx, args[0], frames)
			})
			for _, e := range events {
				if err := a.printEvent(c.OutOrStdout(), e); err != nil {
					return err
				}
			}
			return err
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return interfaces.completeKeys(a)(c, args, "")
		},
	}
	c.Flags().StringVar(&digits, "hex", "", "the packet, in hexadecimal `digits`")
	return a.printing(c)
}

func explainArguments(digits *string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return cmdline.Usagef("give the interface by which the packets arrive, such as n3: see culvert explain --help")
		case len(args) == 1 && *digits == "":
			return cmdline.Usagef("give a capture file, - for standard input, or --hex DIGITS: see culvert explain --help")
		case len(args) > 1 && *digits != "" || len(args) > 2:
			return cmdline.Usagef("give one file, or --hex: see culvert explain --help")
		}
		return nil
	}
}

// explainedFrames reads the packets of the command line.
func explainedFrames(c *cobra.Command, files []string, digits string) ([][]byte, error) {
	if digits != "" {
		frames, err := capture.Text(digits, 1)
		if err != nil {
			return nil, cmdline.Usagef("--hex: %w", err)
		}
		return frames, nil
	}
	if files[0] == "-" {
		frames, err := capture.Frames(c.InOrStdin(), watch.MostPackets)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return frames, nil
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	frames, err := capture.Frames(bytes.NewReader(data), watch.MostPackets)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", files[0], err)
	}
	return frames, nil
}
