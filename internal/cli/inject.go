package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// injection is an entry of an injector's file.
type injection struct {
	Color         uint32                 `json:"color"`
	Endpoint      netip.Addr             `json:"endpoint"`
	Distinguisher uint32                 `json:"distinguisher,omitempty"`
	Headends      []netip.Addr           `json:"headends,omitempty"`
	PolicyName    string                 `json:"policy_name,omitempty"`
	Name          string                 `json:"name,omitempty"`
	Preference    uint32                 `json:"preference,omitempty"`
	BindingSID    netip.Addr             `json:"binding_sid,omitzero"`
	SegmentLists  []srpolicy.SegmentList `json:"segment_lists"`
}

// injections is an injector's file.
type injections struct {
	Paths []injection `json:"paths"`
}

// inject is what `culvert policy inject` is told.
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
}

func (a *app) inject() *cobra.Command {
	i := inject{app: a}
	c := &cobra.Command{
		Use:   "inject PEER...",
		Short: "Tell headends candidate paths of SR policies, for as long as it runs",
		Long: `Tells headends the candidate paths that a file lists, as a BGP speaker of SAFI 73
(RFC 9830). PEER is a headend or a route reflector: an address, or
[address]:port for another port than 179. It goes on until it is ended, and
follows the file: what is added, changed or taken out there is added, replaced
or withdrawn. When it ends, headends keep what they were told for --keep, so
that it can be restarted.`,
		Example: `  culvert policy inject --to bgp 2001:db8:101::1 --asn 65001 --router-id 192.0.2.9 --file paths.yaml

  paths:
    - color: 100
      endpoint: 2001:db8:102::1
      headends: [192.0.2.1]      # router IDs; without, every peer takes it
      preference: 200
      segment_lists: [{segments: ["2001:db8:112:1::", "2001:db8:102:d46::"]}]`,
		Args: atLeastOne("one PEER or more"),
		RunE: func(c *cobra.Command, peers []string) error {
			i.peers = peers
			return i.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&i.to, "to", "bgp", "`how` headends are told: bgp")
	f.StringVarP(&i.file, "file", "f", "", "YAML `file` that lists the paths")
	f.Uint32Var(&i.asn, "asn", 0, "`AS number` of this speaker")
	f.Uint32Var(&i.peerASN, "peer-asn", 0, "`AS number` of the peers (default: that of --asn)")
	f.StringVar(&i.routerID, "router-id", "", "router `ID` of this speaker, an IPv4 address that no other has")
	f.StringVar(&i.source, "source", "", "`address` to connect from")
	f.StringVar(&i.password, "password-file", "", "`file` with the password of TCP MD5")
	f.DurationVar(&i.keep, "keep", 2*time.Minute, "how `long` headends keep what they were told after this ends; 0: not at all")
	a.outputFlag(c)
	complete(c, "to", []string{"bgp"})
	return c
}

// config reads the flags.
func (i *inject) config() (bgp.Config, error) {
	c := bgp.Config{ASN: i.asn, Restart: i.keep, Log: slog.New(slog.DiscardHandler)}
	if i.to != "bgp" {
		return c, usagef("--to %q: give bgp", i.to)
	}
	if i.file == "" || i.asn == 0 {
		return c, usagef("--file and --asn are needed: what to tell, and as whom")
	}
	var err error
	if c.RouterID, err = netip.ParseAddr(i.routerID); err != nil || !c.RouterID.Is4() {
		return c, usagef("--router-id %q: give an IPv4 address that no other speaker has", i.routerID)
	}
	var source netip.Addr
	if i.source != "" {
		if source, err = netip.ParseAddr(i.source); err != nil {
			return c, usagef("--source %q is not an IP address", i.source)
		}
	}
	password, err := bgp.ReadPassword(i.password)
	if err != nil {
		return c, fmt.Errorf("--password-file: %w", err)
	}
	for _, text := range i.peers {
		p := bgp.Peer{ASN: i.peerASN, Local: source, Password: password, Hold: 30 * time.Second}
		if p.ASN == 0 {
			p.ASN = i.asn
		}
		if at, err := netip.ParseAddrPort(text); err == nil {
			p.Address, p.Port = at.Addr(), at.Port()
		} else if p.Address, err = netip.ParseAddr(text); err != nil {
			return c, usagef("%q is no peer: give an address, or [address]:port", text)
		}
		c.Peers = append(c.Peers, p)
	}
	return c, nil
}

func (i *inject) run(c *cobra.Command) error {
	settings, err := i.config()
	if err != nil {
		return err
	}
	list, err := readInjections(i.file)
	if err != nil {
		return err
	}
	speaker, err := bgp.Start(c.Context(), settings, nil)
	if err != nil {
		return err
	}
	defer speaker.Stop()
	in := bgp.NewInjector(speaker)
	events, err := in.Set(list)
	i.print(c.OutOrStdout(), events)
	if err != nil {
		return err
	}
	return i.follow(c, in, speaker)
}

// follow goes along with the file, and says which peers listen.
func (i *inject) follow(c *cobra.Command, in *bgp.Injector, speaker *bgp.Speaker) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	const look = 500 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	was, states := stamp(i.file), map[netip.Addr]string{}
	for {
		asked := false
		select {
		case <-c.Context().Done():
			return nil
		case <-hangup:
			asked = true
		case <-tick.C:
		}
		if err := i.peerStates(c.Context(), c.ErrOrStderr(), speaker, states); err != nil {
			return err
		}
		now := stamp(i.file)
		if !asked && (now.Equal(was) || now.IsZero()) { // an editor takes it away for a moment
			continue
		}
		was = now
		list, err := readInjections(i.file)
		if err == nil {
			var events []bgp.Event
			events, err = in.Set(list)
			i.print(c.OutOrStdout(), events)
		}
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "culvert: what was told stays as it is: %v\n", err)
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

func (i *inject) peerStates(ctx context.Context, w io.Writer, speaker *bgp.Speaker, before map[netip.Addr]string) error {
	peers, err := speaker.Peers(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	for _, p := range peers {
		up := p.State == "established"
		switch was := before[p.Address]; {
		case up && was != "established":
			fmt.Fprintf(w, "culvert: %s listens (AS %d, router ID %s)\n", p.Address, p.ASN, p.RouterID)
		case !up && was == "established":
			fmt.Fprintf(w, "culvert: %s is gone: %s\n", p.Address, p.Reason)
		}
		before[p.Address] = p.State
	}
	return err
}

// print says what changed, one line each.
func (i *inject) print(w io.Writer, events []bgp.Event) {
	for _, e := range events {
		if i.app.format == formatJSON {
			line, err := json.Marshal(struct {
				Op string `json:"op"`
				srpolicy.Advertised
			}{e.Op, e.Path})
			if err == nil {
				fmt.Fprintln(w, string(line))
			}
			continue
		}
		detail := ""
		if e.Op != "withdraw" {
			detail = fmt.Sprintf(", preference %d: %s", e.Path.EffectivePreference(), segmentLists(e.Path.SegmentLists))
		}
		fmt.Fprintf(w, "%s color %d, endpoint %s, distinguisher %d%s\n", e.Op, e.Path.Color, e.Path.Endpoint, e.Path.Distinguisher, detail)
	}
}

// readInjections reads a file whole, or says all that is wrong with it, by line.
func readInjections(file string) ([]bgp.Injection, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var f injections
	lines, err := config.Unmarshal(text, &f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out := make([]bgp.Injection, len(f.Paths))
	for j, v := range f.Paths {
		out[j] = bgp.Injection{Headends: v.Headends, Advertised: srpolicy.Advertised{
			Color: v.Color, Endpoint: v.Endpoint, Distinguisher: v.Distinguisher, PolicyName: v.PolicyName, Name: v.Name,
			Preference: v.Preference, BindingSID: v.BindingSID, SegmentLists: v.SegmentLists,
		}}
	}
	var all config.Errors
	for _, e := range bgp.CheckInjections(out) {
		all = append(all, config.Error{Field: "paths" + e.Field, Problem: e.Problem, Fix: e.Fix})
	}
	if len(all) > 0 {
		return nil, fmt.Errorf("%s: %w", file, lines.Of(all))
	}
	return out, nil
}
