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

// Sources of --topology that are no files or programs.
const (
	sourceBGP        = "bgp-ls"
	sourceKubernetes = "kubernetes"
)

// topologyFlag adds the flag that says where the topology of all `culvert te` comes from.
func topologyFlag(c *cobra.Command) {
	c.PersistentFlags().StringSlice("topology", nil, "`source` of nodes, links and metrics in place of FILE: vtysh[:FOLDER], which asks FRR's isisd, frr:PATH, what its \"show isis mpls-te database json\" prints, or bgp-ls, what the peers of engine.bgp advertise; beside it or alone: kubernetes, whose nodes then are nodes of FILE")
	complete := func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		if strings.HasPrefix(word, "frr:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return []string{sourceBGP, "frr:", sourceKubernetes, "vtysh"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("topology", complete); err != nil {
		panic(err) // the flag is above
	}
}

// sources are what --topology says.
type sources struct {
	links   string // where links come from; empty: from FILE
	cluster bool   // nodes of Kubernetes are nodes of FILE
}

func sourcesOf(c *cobra.Command, path string) (s sources, err error) {
	list, err := c.Flags().GetStringSlice("topology")
	for _, source := range list {
		switch {
		case source == sourceKubernetes:
			s.cluster = true
		case s.links != "":
			return s, cmdline.Usagef("--topology: links come from one source: give one, and kubernetes beside it")
		default:
			s.links = source
		}
	}
	if path == "-" && s.links == "frr:-" {
		return s, cmdline.Usagef("--topology: the network is read from standard input: give the path of a file")
	}
	return s, err
}

// network reads the network of the first argument, and the topology of --topology; - is
// standard input. What cannot be used of the topology is said on standard error.
func (a *app) network(c *cobra.Command, args []string) (te.Network, error) {
	_, n, left, err := a.readNetwork(c, args[0], nil)
	for _, l := range left {
		fmt.Fprintln(c.ErrOrStderr(), l)
	}
	return n, err
}

// readNetwork reads a file, and the network that it and --topology describe. s reads BGP-LS; nil: a
// speaker that ends then.
func (a *app) readNetwork(c *cobra.Command, path string, s *teSpeaker) (file *netfile.Network, n te.Network, left []te.LeftOut, err error) {
	from, err := sourcesOf(c, path)
	if err != nil {
		return nil, n, nil, err
	}
	data, err := cmdline.ReadFile(c, path)
	if err != nil {
		return nil, n, nil, err
	}
	var live *te.Topology
	if from.links != "" {
		t, more, err := topology(c, from.links, data, s)
		if err != nil {
			return nil, n, nil, err
		}
		live, left = &t, more
	}
	file, more, err := a.parse(c, data, from, live)
	if err != nil {
		return nil, n, nil, err
	}
	left = append(left, more...)
	if live == nil {
		return file, file.Values(), left, nil
	}
	n, more = file.Over(*live)
	return file, n, append(left, more...), nil
}

// parse reads the network of a file, and of the cluster if its nodes are nodes of it.
func (a *app) parse(c *cobra.Command, data []byte, from sources, live *te.Topology) (*netfile.Network, []te.LeftOut, error) {
	if !from.cluster {
		file, err := netfile.Parse(data)
		return file, nil, err
	}
	e, err := netfile.ParseEngine(data)
	if err != nil {
		return nil, nil, err
	}
	nodes, left, err := a.cluster.nodes(c, e.Agents, live)
	if err != nil {
		return nil, nil, err
	}
	file, more, err := netfile.ParseWith(data, nodes)
	return file, append(left, more...), err
}

// readFile reads a file without the topology of --topology.
func (a *app) readFile(c *cobra.Command, path string) (*netfile.Network, sources, error) {
	from, err := sourcesOf(c, path)
	if err != nil {
		return nil, from, err
	}
	data, err := cmdline.ReadFile(c, path)
	if err != nil {
		return nil, from, err
	}
	file, _, err := a.parse(c, data, from, nil)
	return file, from, err
}

// topology reads the topology of a source of links; data is the file.
func topology(c *cobra.Command, source string, data []byte, s *teSpeaker) (te.Topology, []te.LeftOut, error) {
	kind, path, _ := strings.Cut(source, ":")
	var text []byte
	var err error
	switch {
	case source == sourceBGP && s != nil:
		return s.topology(c.Context())
	case source == sourceBGP:
		e, err := netfile.ParseEngine(data)
		if err != nil {
			return te.Topology{}, nil, err
		}
		return topologyOnce(c.Context(), e.BGP)
	case kind == "frr" && path != "":
		text, err = cmdline.ReadFile(c, path)
	case kind == "vtysh":
		text, err = askFRR(c.Context(), path)
	default:
		return te.Topology{}, nil, cmdline.Usagef("--topology: %q is no source: give frr:PATH, frr:- for standard input, vtysh, bgp-ls, or kubernetes", source)
	}
	if err != nil {
		return te.Topology{}, nil, err
	}
	return frr.Parse(text)
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
