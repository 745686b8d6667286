package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/frr"
)

// topologyFlag adds the flag that says where the topology of all `culvert te` comes from.
func topologyFlag(c *cobra.Command) {
	c.PersistentFlags().String("topology", "", "`source` of nodes, links and metrics in place of FILE: frr:PATH, what FRR's \"show isis mpls-te database json\" prints")
	complete := func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		if strings.HasPrefix(word, "frr:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return []string{"frr:"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("topology", complete); err != nil {
		panic(err) // the flag is above
	}
}

// network reads the network of the first argument, and the topology of --topology; - is
// standard input. What cannot be used of the topology is said on standard error.
func network(c *cobra.Command, args []string) (te.Network, error) {
	source, err := c.Flags().GetString("topology")
	if err != nil {
		return te.Network{}, err
	}
	if args[0] == "-" && source == "frr:-" {
		return te.Network{}, cmdline.Usagef("--topology: the network is read from standard input: give the path of a file")
	}
	data, err := cmdline.ReadFile(c, args[0])
	if err != nil {
		return te.Network{}, err
	}
	n, err := netfile.Parse(data)
	if err != nil {
		return te.Network{}, err
	}
	if source == "" {
		return n.Values(), nil
	}
	live, left, err := topology(c, source)
	if err != nil {
		return te.Network{}, err
	}
	laid, more := n.Over(live)
	for _, l := range append(left, more...) {
		fmt.Fprintln(c.ErrOrStderr(), l)
	}
	return laid, nil
}

// topology reads the topology of a source.
func topology(c *cobra.Command, source string) (te.Topology, []te.LeftOut, error) {
	path, isFRR := strings.CutPrefix(source, "frr:")
	if !isFRR || path == "" {
		return te.Topology{}, nil, cmdline.Usagef("--topology: %q is no source: give frr:PATH, or frr:- for standard input", source)
	}
	data, err := cmdline.ReadFile(c, path)
	if err != nil {
		return te.Topology{}, nil, err
	}
	return frr.Parse(data)
}
