package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/frr"
)

// sourceBGP is the --topology of BGP-LS.
const sourceBGP = "bgp-ls"

// topologyFlag adds the flag that says where the topology of all `culvert te` comes from.
func topologyFlag(c *cobra.Command) {
	c.PersistentFlags().String("topology", "", "`source` of nodes, links and metrics in place of FILE: vtysh[:FOLDER], which asks FRR's isisd, frr:PATH, what its \"show isis mpls-te database json\" prints, or bgp-ls: what the peers of engine.bgp advertise")
	complete := func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		if strings.HasPrefix(word, "frr:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return []string{sourceBGP, "frr:", "vtysh"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("topology", complete); err != nil {
		panic(err) // the flag is above
	}
}

// network reads the network of the first argument, and the topology of --topology; - is
// standard input. What cannot be used of the topology is said on standard error.
func network(c *cobra.Command, args []string) (te.Network, error) {
	_, n, left, err := readNetwork(c, args[0])
	for _, l := range left {
		fmt.Fprintln(c.ErrOrStderr(), l)
	}
	return n, err
}

// readNetwork reads a file, and the network that it and --topology describe.
func readNetwork(c *cobra.Command, path string) (file *netfile.Network, n te.Network, left []te.LeftOut, err error) {
	return readNetworkBy(c, path, nil)
}

// readNetworkBy is readNetwork by a speaker, if there is one: else BGP-LS is read by one that ends.
func readNetworkBy(c *cobra.Command, path string, s *teSpeaker) (file *netfile.Network, n te.Network, left []te.LeftOut, err error) {
	file, source, err := readFile(c, path)
	if err != nil {
		return nil, n, nil, err
	}
	if source == "" {
		return file, file.Values(), nil, nil
	}
	live, left, err := topology(c, source, file, s)
	if err != nil {
		return nil, n, nil, err
	}
	n, more := file.Over(live)
	return file, n, append(left, more...), nil
}

// readFile reads a file, and where its topology comes from; empty: from the file.
func readFile(c *cobra.Command, path string) (file *netfile.Network, source string, err error) {
	if source, err = c.Flags().GetString("topology"); err != nil {
		return nil, "", err
	}
	if path == "-" && source == "frr:-" {
		return nil, "", cmdline.Usagef("--topology: the network is read from standard input: give the path of a file")
	}
	data, err := cmdline.ReadFile(c, path)
	if err != nil {
		return nil, "", err
	}
	file, err = netfile.Parse(data)
	return file, source, err
}

// topology reads the topology of a source.
func topology(c *cobra.Command, source string, file *netfile.Network, s *teSpeaker) (te.Topology, []te.LeftOut, error) {
	kind, path, _ := strings.Cut(source, ":")
	var data []byte
	var err error
	switch {
	case source == sourceBGP && s != nil:
		return s.topology(c.Context())
	case source == sourceBGP:
		return topologyOnce(c.Context(), file)
	case kind == "frr" && path != "":
		data, err = cmdline.ReadFile(c, path)
	case kind == "vtysh":
		data, err = askFRR(c.Context(), path)
	default:
		return te.Topology{}, nil, cmdline.Usagef("--topology: %q is no source: give frr:PATH, frr:- for standard input, vtysh, or bgp-ls", source)
	}
	if err != nil {
		return te.Topology{}, nil, err
	}
	return frr.Parse(data)
}

// askFRR has vtysh ask FRR for its database. sockets is the folder of the daemons' sockets; empty:
// where vtysh looks.
func askFRR(ctx context.Context, sockets string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	args := []string{"-d", "isisd", "-c", "show isis mpls-te database json"}
	if sockets != "" {
		args = append([]string{"--vty_socket", sockets}, args...)
	}
	out, err := exec.CommandContext(ctx, "vtysh", args...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("vtysh: %w: %s", err, strings.TrimSpace(string(failed.Stderr)+string(out)))
	}
	if err != nil {
		return nil, fmt.Errorf("vtysh: %w (fix: run this where FRR is, or give --topology frr:PATH)", err)
	}
	return out, nil
}
