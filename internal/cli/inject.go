package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// injection is an entry of an injector's file.
type injection struct {
	srpolicy.Advertised
	srpolicy.DelayConstraint
	Headends []string `json:"headends,omitempty"` // router IDs, or names of nodes
}

// delayField is the field of the constraint.
func (i injection) delayField() string {
	if i.DelayBound != 0 {
		return "delay_bound"
	}
	return "lowest_delay"
}

// inject has the arguments of `culvert policy inject`.
type inject struct {
	app      *app
	to       string
	peers    []string
	file     string
	asn      uint32
	peerASN  uint32
	routerID string
	source   string
	password string
	keep     time.Duration
	kube     kube.InjectorConfig
	form     string
}

func injectCommand(a *app) *cobra.Command {
	i := inject{app: a}
	c := &cobra.Command{
		Use:   "inject [PEER|NODE]...",
		Short: "Send candidate paths of SR policies to headends, by BGP or the Kubernetes API",
		Long: `Sends the candidate paths that a file lists to headends.

--to bgp: run as a BGP speaker of SAFI 73 (RFC 9830) until interrupted. PEER is a
headend or a route reflector: an address, or [address]:port for a port other than
179. The command follows the file: it advertises paths that are added or changed
there, and withdraws those that are removed. After it ends, headends keep the paths
for --keep, so that it can be restarted.

--to kube: write the paths to a cluster, once. New paths are added, changed ones
replaced, and those of an earlier injection that the file no longer has withdrawn.
Colors are 4 (IPv4) and 6 (IPv6), headends are names of nodes; paths without
headends go to each NODE. --as chooses the form: a ConfigMap for each node, or an
SRv6Policy for each path and node. Only these have delay_bound and lowest_delay.`,
		Example: `  culvert policy inject --to bgp 2001:db8:101::1 --asn 65001 --router-id 192.0.2.9 --file paths.yaml
  culvert policy inject --to kube --file paths.yaml --dry-run

  paths:
    - color: 100                 # --to kube: 4 or 6
      endpoint: 2001:db8:102::1
      headends: [192.0.2.1]      # router IDs, or names of nodes; without, every one that receives the paths
      preference: 200
      segment_lists: [{segments: ["2001:db8:112:1::", "2001:db8:102:d46::"]}]`,
		RunE: func(c *cobra.Command, peers []string) error {
			i.peers = peers
			switch i.to {
			case "bgp":
				return i.toBGP(c)
			case "kube":
				return i.toKube(c)
			}
			return cmdline.Usagef("--to %q: give bgp or kube", i.to)
		},
	}
	f := c.Flags()
	f.StringVar(&i.to, "to", "bgp", "`method`: bgp or kube")
	f.StringVarP(&i.file, "file", "f", "", "YAML `file` with the list of paths")
	f.Uint32Var(&i.asn, "asn", 0, "`AS number` of this speaker")
	f.Uint32Var(&i.peerASN, "peer-asn", 0, "`AS number` of the peers (default: that of --asn)")
	f.StringVar(&i.routerID, "router-id", "", "router `ID` of this speaker, an IPv4 address that no other speaker has")
	f.StringVar(&i.source, "source", "", "`address` to connect from")
	f.StringVar(&i.password, "password-file", "", "`file` with the password for TCP MD5")
	f.DurationVar(&i.keep, "keep", 2*time.Minute, "`duration` for which headends keep the paths after this ends; 0: they drop them")
	f.StringVar(&i.kube.Kubeconfig, "kubeconfig", "", "--to kube: kubeconfig `file` of the cluster (default: as kubectl finds it)")
	f.StringVar(&i.kube.Namespace, "namespace", config.DefaultKubeNamespace, "--to kube: `namespace` of the ConfigMaps")
	f.StringVar(&i.form, "as", string(kube.FormConfigMap), "--to kube: `form` of the objects: configmap or srv6policy")
	f.BoolVar(&i.kube.DryRun, "dry-run", false, "--to kube: have the API server check all of it, and change nothing")
	f.BoolVar(&i.kube.Force, "force", false, "--to kube: take over what somebody else has written")
	cmdline.Complete(c, "to", []string{"bgp", "kube"})
	cmdline.Complete(c, "as", kube.Forms())
	return a.printing(c)
}

// config reads the flags.
func (i *inject) config() (bgp.Config, error) {
	c := bgp.Config{ASN: i.asn, Restart: i.keep, Waits: true, Log: slog.New(slog.DiscardHandler)}
	if len(i.peers) == 0 {
		return c, cmdline.Usagef("%q takes one PEER or more, or --to kube: see culvert policy inject --help", "culvert policy inject --to bgp")
	}
	if i.file == "" || i.asn == 0 || i.routerID == "" {
		return c, cmdline.Usagef("--file, --asn and --router-id are missing: give the paths, and who sends them")
	}
	var err error
	if c.RouterID, err = netip.ParseAddr(i.routerID); err != nil || !c.RouterID.Is4() {
		return c, cmdline.Usagef("--router-id %q: give an IPv4 address that no other speaker has", i.routerID)
	}
	var source netip.Addr
	if i.source != "" {
		if source, err = netip.ParseAddr(i.source); err != nil {
			return c, cmdline.Usagef("--source %q is not an IP address", i.source)
		}
	}
	password, err := bgp.ReadPassword(i.password)
	if err != nil {
		return c, fmt.Errorf("--password-file: %w", err)
	}
	for _, text := range i.peers {
		p := bgp.Peer{ASN: cmp.Or(i.peerASN, i.asn), Local: source, Password: password, Hold: 30 * time.Second}
		if at, err := netip.ParseAddrPort(text); err == nil {
			p.Address, p.Port = at.Addr(), at.Port()
		} else if p.Address, err = netip.ParseAddr(text); err != nil {
			return c, cmdline.Usagef("%q is not a peer: give an address, optionally with a port as in [2001:db8::1]:1179 or 192.0.2.1:1179", text)
		}
		c.Peers = append(c.Peers, p)
	}
	return c, nil
}

func (i *inject) toBGP(c *cobra.Command) error {
	settings, err := i.config()
	if err != nil {
		return err
	}
	speaker, err := bgp.Start(c.Context(), settings, nil)
	if err != nil {
		return err
	}
	defer speaker.Stop()
	in := bgp.NewInjector(speaker)
	advertise := func() error {
		list, err := readBGPInjections(i.file)
		if err != nil {
			return err
		}
		events, err := in.Set(list)
		for _, e := range events {
			i.printEvent(c.OutOrStdout(), e.Op, "", e.Path, srpolicy.DelayConstraint{})
		}
		return err
	}
	if err := advertise(); err != nil {
		return err
	}
	if err := speaker.Connect(); err != nil {
		return err
	}
	return i.follow(c, speaker, advertise)
}

// follow calls advertise when the file changes, and reports the state of the peers.
func (i *inject) follow(c *cobra.Command, speaker *bgp.Speaker, advertise func() error) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	const look, ask = 50 * time.Millisecond, 250 * time.Millisecond
	tick, sessions := time.NewTicker(look), time.NewTicker(ask)
	defer tick.Stop()
	defer sessions.Stop()
	was, said, began := stamp(i.file), map[netip.Addr]bool{}, time.Now()
	for {
		asked := false
		select {
		case <-c.Context().Done():
			return nil
		case <-sessions.C:
			if err := i.peerStates(c.Context(), c.ErrOrStderr(), speaker, said, time.Since(began)); err != nil {
				return err
			}
			continue
		case <-hangup:
			asked = true
		case <-tick.C:
		}
		now := stamp(i.file)
		if !asked && (now.Equal(was) || now.IsZero()) { // an editor may remove it for a moment
			continue
		}
		was = now
		if err := advertise(); err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "culvert: the routes stay as they were advertised: %v\n", err)
		}
	}
}

// stamp changes when a file does; of a file that is not there it is zero.
func stamp(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// patience is how long a peer may take to set up its session before a message is printed.
const patience = 3 * time.Second

// peerStates prints which peers have a session, once each time that this changes. said
// holds what it has printed last.
func (i *inject) peerStates(ctx context.Context, w io.Writer, speaker *bgp.Speaker, said map[netip.Addr]bool, after time.Duration) error {
	peers, err := speaker.Peers(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	for _, p := range peers {
		up := p.State == "established"
		was, known := said[p.Address]
		switch {
		case up && !was:
			fmt.Fprintf(w, "culvert: %s listens (AS %d, router ID %s)\n", p.Address, p.ASN, p.RouterID)
		case !up && was:
			fmt.Fprintf(w, "culvert: %s is gone: %s\n", p.Address, p.Reason)
		case !up && !known && after > patience:
			fmt.Fprintf(w, "culvert: %s does not listen yet: is it there, and is this host among its bgp.peers, with AS %d?\n", p.Address, i.asn)
		default:
			continue
		}
		said[p.Address] = up
	}
	return err
}

// printEvent says what changed of one path, and for which node if it was sent to that one only.
func (i *inject) printEvent(w io.Writer, op, node string, path srpolicy.Advertised, delay srpolicy.DelayConstraint) {
	if i.app.format == printer.JSON {
		line, err := json.Marshal(struct {
			Op   string `json:"op"`
			Node string `json:"node,omitempty"`
			srpolicy.Advertised
			srpolicy.DelayConstraint
		}{op, node, path, delay})
		if err == nil {
			fmt.Fprintln(w, string(line))
		}
		return
	}
	of, detail := fmt.Sprintf("distinguisher %d", path.Distinguisher), ""
	if node != "" {
		of = fmt.Sprintf("%s, for %s", path.Name, node)
	}
	if op != "withdraw" {
		preference := path.EffectivePreference()
		if node != "" && path.Preference == 0 {
			preference = kube.DefaultPreference
		}
		detail = fmt.Sprintf(", preference %d: %s", preference, segmentLists(path.SegmentLists))
		if delay.DelayBound != 0 {
			detail += fmt.Sprintf(", delay bound %s", delay.DelayBound)
		}
		if delay.LowestDelay {
			detail += ", lowest delay"
		}
	}
	fmt.Fprintf(w, "%s color %d, endpoint %s, %s%s\n", op, path.Color, path.Endpoint, of, detail)
}

// readInjections reads a file, calls check with its paths, and reports every fault
// with its line. check also reports what BGP or Kubernetes cannot carry.
func readInjections(file string, check func([]injection) []srv6.FieldError) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var f struct {
		Paths []injection `json:"paths"`
	}
	lines, err := config.Unmarshal(text, &f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var faults config.Errors
	for _, e := range check(f.Paths) {
		faults = append(faults, config.Error{Field: "paths" + e.Field, Problem: e.Problem, Fix: e.Fix})
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s: %w", file, lines.Of(faults))
	}
	return nil
}

func readBGPInjections(file string) (out []bgp.Injection, err error) {
	err = readInjections(file, func(paths []injection) (errs []srv6.FieldError) {
		for j, v := range paths {
			one := bgp.Injection{Advertised: v.Advertised}
			if v.DelayConstraint.IsSet() {
				errs = append(errs, srv6.FieldError{Field: fmt.Sprintf("[%d].%s", j, v.delayField()), Problem: "BGP carries no constraint of delays",
					Fix: "remove it, and set it on the policy with this color and endpoint at the headend"})
			}
			for k, text := range v.Headends {
				id, err := netip.ParseAddr(text)
				if err != nil {
					errs = append(errs, srv6.FieldError{Field: fmt.Sprintf("[%d].headends[%d]", j, k), Problem: fmt.Sprintf("%q is no router ID", text),
						Fix: "give the headend's bgp.router_id, an IPv4 address"})
					continue
				}
				one.Headends = append(one.Headends, id)
			}
			out = append(out, one)
		}
		return append(errs, bgp.CheckInjections(out)...)
	})
	return out, err
}

// toKube writes the paths into a cluster.
func (i *inject) toKube(c *cobra.Command) error {
	if i.file == "" {
		return cmdline.Usagef("--file is missing: give the paths to send")
	}
	if !slices.Contains(kube.Forms(), i.form) {
		return cmdline.Usagef("--as %q: give configmap or srv6policy", i.form)
	}
	var list []kube.Injection
	err := readInjections(i.file, func(paths []injection) []srv6.FieldError {
		for _, v := range paths {
			nodes := v.Headends
			if len(nodes) == 0 {
				nodes = i.peers
			}
			list = append(list, kube.Injection{Advertised: v.Advertised, DelayConstraint: v.DelayConstraint, Nodes: nodes})
		}
		return kube.CheckInjections(list)
	})
	if err != nil {
		return err
	}
	i.kube.Form, i.kube.Version = kube.Form(i.form), i.app.version
	in, err := kube.NewInjector(i.kube)
	if err != nil {
		return err
	}
	events, err := in.Set(c.Context(), list)
	for _, e := range events {
		i.printEvent(c.OutOrStdout(), e.Op, e.Node, e.Path, e.DelayConstraint)
	}
	if errors.Is(err, kube.ErrForeign) {
		return fmt.Errorf("%w: --force overwrites it", err)
	}
	if err != nil {
		return err
	}
	if len(events) == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "culvert: nothing to change: the cluster has what the file says")
	}
	for _, node := range in.Absent(c.Context(), list) {
		fmt.Fprintf(c.ErrOrStderr(), "culvert: there is no node %s: what is for it waits until there is\n", node)
	}
	return nil
}
