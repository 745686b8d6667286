package labcli

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/gnb"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/smf"
)

// gnbFlags say what a gNB is, and whose sessions it serves.
type gnbFlags struct {
	smfFlags
	from, sessions                  string // a state file of culvert smf
	n3, n3UPF, netns, n4Netns, name string
	ue                              []string
	chooseUE, instance, dnn         string
	sst                             uint8
	sd                              string
	teid, gnbTEID                   uint32
	qfi                             uint8
	mbrUplink, mbrDownlink          uint64
	count, mtu                      int
	usage                           bool
}

func (a *app) gnb() *cobra.Command {
	c := &cobra.Command{
		Use: "gnb", Short: "A gNB with UEs, to try a UPF by hand",
		Long: `A gNB with UEs, to try any UPF by hand. Each UE is a network namespace with a TUN
device; the gNB carries its packets in GTP-U with a PDU Session Container, answers
Echo Requests, and sends Error Indications for TEIDs that it does not know.

With --upf the command makes the sessions itself, as a small SMF. It can also serve
sessions that "culvert smf" made (--session-from), or somebody else (--teid). In the
end it deletes what it made, and nothing else.`,
	}
	c.AddCommand(a.gnbAttach(), a.gnbPing(), a.gnbIperf())
	return c
}

func (f *gnbFlags) add(c *cobra.Command) {
	f.smfFlags.add(c)
	f.addDialect(c)
	flags := c.Flags()
	flags.Lookup("upf").Usage = "N4 `address` of the UPF, optionally with a port (default 8805): make the sessions there"
	flags.StringVar(&f.from, "session-from", "", "`file`: serve the sessions of this state file of culvert smf")
	flags.StringVar(&f.sessions, "sessions", "", "`name` of the group of sessions in that file (default: all)")
	flags.StringVar(&f.n3, "n3", "", "`address` of the gNB on N3")
	flags.StringVar(&f.netns, "netns", "", "network namespace (`name`) that has the address on N3 (default: this one)")
	flags.StringVar(&f.n4Netns, "n4-netns", "", "network namespace (`name`) from which the UPF's N4 is reached (default: this one)")
	flags.StringVar(&f.n3UPF, "n3-upf", "", "GTP-U `address` of the UPF: if the SMF chooses F-TEIDs, or somebody else made the session")
	flags.Uint32Var(&f.teid, "teid", 0, "`TEID` of the UPF for the first UE (default: any)")
	flags.Uint32Var(&f.gnbTEID, "gnb-teid", 0, "`TEID` of the gNB for the first UE, of a session that somebody else made")
	flags.StringSliceVar(&f.ue, "ue", nil, "`address` of the first UE, or one of each family; others have those that follow")
	flags.StringVar(&f.chooseUE, "choose-ue", "", "`types` of UE addresses that the UPF chooses: ipv4, ipv6 or ipv4v6")
	flags.StringVar(&f.instance, "network-instance", "internet", "network instance (`name`) of the sessions")
	flags.StringVar(&f.dnn, "dnn", "internet", "DNN (`name`) of the sessions")
	flags.Uint8Var(&f.sst, "sst", 0, "slice/service `type` of the S-NSSAI (default: none)")
	flags.StringVar(&f.sd, "sd", "", "slice differentiator of the S-NSSAI: six hexadecimal `digits`")
	flags.Uint8Var(&f.qfi, "qfi", 9, "`QFI` of the QoS flow")
	flags.Uint64Var(&f.mbrUplink, "mbr-uplink", 0, "MBR in `kbit/s` (default: none)")
	flags.Uint64Var(&f.mbrDownlink, "mbr-downlink", 0, "MBR in `kbit/s` (default: none)")
	flags.IntVar(&f.count, "count", 1, "`number` of UEs")
	flags.StringVar(&f.name, "name", "ue", "what network namespaces and devices of UEs are called (`name`), with the number behind it")
	flags.IntVar(&f.mtu, "mtu", 1400, "MTU of the UEs, in `octets`")
	flags.BoolVar(&f.usage, "usage", true, "have the UPF count the sessions, to say where packets were lost")
	for _, flag := range []string{"netns", "n4-netns"} {
		_ = c.RegisterFlagCompletionFunc(flag, completeNamespace) // fails only for a flag that is not there
	}
	cmdline.Complete(c, "choose-ue", []string{"ipv4", "ipv6", "ipv4v6"})
}

// completeNamespace proposes the named network namespaces.
func completeNamespace(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	entries, _ := os.ReadDir(namespace.NamespaceDir) // no directory: no names
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// options are what the flags say.
func (f *gnbFlags) options(c *cobra.Command) (gnb.Options, error) {
	o := gnb.Options{
		Namespace: f.netns, N4Namespace: f.n4Netns, Name: f.name, MTU: f.mtu, Usage: f.usage,
		Say: func(text string) { fmt.Fprintln(c.ErrOrStderr(), text) },
	}
	if f.count < 1 {
		return o, errors.New("--count: give 1 or more")
	}
	var err error
	if f.n3 != "" {
		if o.N3, err = netip.ParseAddr(f.n3); err != nil {
			return o, fmt.Errorf("--n3: %q is not an address such as 203.0.113.9", f.n3)
		}
	}
	switch {
	case f.upf != "" && f.from != "":
		return o, errors.New("--upf makes sessions, --session-from names sessions that exist: give one of them")
	case f.upf != "":
		err = f.ours(&o)
	case f.from != "":
		err = f.saved(&o, c.Flags())
	default:
		err = f.given(&o)
	}
	if err == nil {
		err = o.Complete()
	}
	return o, err
}

// ours are sessions that the command makes.
func (f *gnbFlags) ours(o *gnb.Options) error {
	scenario := &smf.Scenario{}
	f.over(scenario, pflag.NewFlagSet("", pflag.ContinueOnError))
	scenario.Timeout, scenario.Attempts = f.timeout, f.attempts
	options, err := scenario.Options()
	if err != nil {
		return err
	}
	if f.dialect != "" && !slices.Contains(smf.Dialects(), f.dialect) {
		return fmt.Errorf("--dialect: %q: give one of %s", f.dialect, strings.Join(smf.Dialects(), ", "))
	}
	o.SMF = &options
	s := smf.Spec{Count: f.count, ChooseUE: f.chooseUE, NetworkInstance: f.instance, DNN: f.dnn, QFI: f.qfi}
	if s.UE4, s.UE6, err = f.ues(); err != nil {
		return err
	}
	if !s.UE4.IsValid() && !s.UE6.IsValid() && f.chooseUE == "" {
		return errors.New("--ue is missing: give the UE's address, or have the UPF choose one with --choose-ue ipv4")
	}
	s.SNSSAI.SST, s.SNSSAI.SD = f.sst, f.sd
	if f.mbrUplink > 0 || f.mbrDownlink > 0 {
		s.MBR = &session.BitRate{Uplink: f.mbrUplink, Downlink: f.mbrDownlink}
	}
	if f.n3UPF != "" || options.Dialect == smf.Free5GC {
		address, err := f.upfAddress()
		if err != nil {
			return err
		}
		s.Local = &smf.Local{Address: address, AccessTEID: cmp.Or(f.teid, gnb.RandomTEID())}
	}
	o.Spec = s
	checked := s // the gNB's tunnels come later
	return flagErrors(checked.Complete(options.Dialect), gnbFlag)
}

// gnbFlag is the flag that sets a field of the sessions.
func gnbFlag(field string) string {
	switch field {
	case "ue4", "ue6":
		return "--ue"
	case "local.address":
		return "--n3-upf"
	}
	return "--" + strings.ReplaceAll(strings.TrimPrefix(field, "snssai."), "_", "-")
}

// upfAddress is where the UPF has its F-TEIDs, if it is not the UPF that says so.
func (f *gnbFlags) upfAddress() (netip.Addr, error) {
	a, err := netip.ParseAddr(f.n3UPF)
	if err != nil {
		return a, fmt.Errorf("--n3-upf: %q: give the UPF's GTP-U address", f.n3UPF)
	}
	return a, nil
}

// ues are the pools that UEs' addresses count up in.
func (f *gnbFlags) ues() (ue4, ue6 netip.Prefix, err error) {
	for _, text := range f.ue {
		p, err := netip.ParsePrefix(text)
		if a, bare := netip.ParseAddr(text); bare == nil {
			p, err = pool(a, f.count), nil
		}
		to := &ue6
		if p.Addr().Is4() {
			to = &ue4
		}
		switch {
		case err != nil:
			return ue4, ue6, fmt.Errorf("--ue: %q is not an address such as 10.45.0.2", text)
		case to.IsValid():
			return ue4, ue6, fmt.Errorf("--ue: %s and %s are of one family: give the first UE's address, and --count", *to, text)
		}
		*to = p
	}
	return ue4, ue6, nil
}

// pool is a network that holds so many UEs from a on.
func pool(a netip.Addr, count int) netip.Prefix {
	one, many := 32, 8
	if a.Is6() {
		one, many = 64, 32
	}
	if count > 1 {
		one = many
	}
	return netip.PrefixFrom(a, one)
}

// saved are the sessions of a state file.
func (f *gnbFlags) saved(o *gnb.Options, flags *pflag.FlagSet) error {
	state, err := loadState(f.from)
	if err != nil {
		return err
	}
	if state == nil {
		return fmt.Errorf("--session-from: there is no file %s: culvert smf establish --state writes it", f.from)
	}
	list, n3, err := gnb.FromState(state, f.sessions)
	if err != nil {
		return fmt.Errorf("--session-from: %s: %w", f.from, err)
	}
	if o.N3.IsValid() && o.N3 != n3 {
		return fmt.Errorf("--n3: the sessions of %s are for the gNB %s: leave it out", f.from, n3)
	}
	if flags.Changed("count") && f.count < len(list) {
		list = list[:f.count]
	}
	o.N3, o.Given = n3, list
	return nil
}

// given is a session that the flags describe.
func (f *gnbFlags) given(o *gnb.Options) error {
	if f.teid == 0 {
		return errors.New("whose session? Give --upf to make one, --session-from for those of culvert smf, or --teid, --gnb-teid and --n3-upf")
	}
	if f.count != 1 {
		return errors.New("--count: a session that somebody else made is for one UE")
	}
	ue4, ue6, err := f.ues()
	if err != nil {
		return err
	}
	upf, err := f.upfAddress()
	if err != nil {
		return err
	}
	o.Given = []gnb.Session{{
		UE4: ue4.Addr(), UE6: ue6.Addr(), QFI: f.qfi, UPF: gnb.FTEID{Address: upf, TEID: f.teid}, GNB: gnb.FTEID{Address: o.N3, TEID: f.gnbTEID},
	}}
	return nil
}

// attach makes the gNB, for as long as f runs.
func (f *gnbFlags) attach(c *cobra.Command, run func(*gnb.Attachment) error) error {
	o, err := f.options(c)
	if err != nil {
		return cmdline.Usage(err)
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and devices need root: run it with sudo")
	}
	at, err := gnb.Attach(c.Context(), o)
	if err != nil {
		return err
	}
	return errors.Join(run(at), at.Close())
}

// attached is what a gNB has, for people and programs.
type attached struct {
	Event       string           `json:"event"`
	Association *smf.Association `json:"association,omitempty"`
	Sessions    []gnb.Session    `json:"sessions"`
}

func (a *app) printAttached(c *cobra.Command, at *gnb.Attachment) error {
	v := attached{Event: "attached", Sessions: at.Sessions}
	if at.Association.NodeID != "" {
		v.Association = &at.Association
	}
	table := func(g *printer.Grid) {
		if v.Association != nil {
			g.Line("UPF " + v.Association.NodeID)
			g.Gap()
		}
		g.Row("NAMESPACE", "UE", "UPLINK TO", "DOWNLINK TO", "QFI", "SEID")
		for _, s := range at.Sessions {
			seid := ""
			if s.UPSEID != 0 {
				seid = fmt.Sprintf("%#x", s.UPSEID)
			}
			g.Row(s.Namespace, addresses(s.UE4, s.UE6), s.UPF, s.GNB, s.QFI, seid)
		}
	}
	return (&smfOutput{a: a, w: c.OutOrStdout()}).once(v, table)
}

// once prints one thing, on a line of its own in JSON.
func (o *smfOutput) once(v any, table func(*printer.Grid)) error {
	o.print(v, table)
	return o.err
}

func (a *app) gnbAttach() *cobra.Command {
	var f gnbFlags
	c := &cobra.Command{
		Use: "attach", Short: "Attach UEs, until an interrupt",
		Long: `Attach UEs to a UPF, and carry their packets until an interrupt. Each UE is the
network namespace ue1, ue2 and so on, for any program:

  ip netns exec ue1 ping 198.51.100.1

The command prints reports of the UPF, End Markers and Error Indications as they come.
-o json prints a line for each.`,
		Example: `  culvert gnb attach --upf 192.0.2.10 --n3 203.0.113.9 --ue 10.45.0.2
  culvert gnb attach --upf 127.0.0.8 --netns gnb --n3 10.1.0.1 --ue 10.45.0.2,2001:db8:45::2 --count 4
  culvert gnb attach --upf 192.0.2.10 --dialect free5gc --n3 203.0.113.9 --n3-upf 203.0.113.1 --ue 10.60.0.2
  culvert gnb attach --session-from smf.json
  culvert gnb attach --n3 203.0.113.9 --n3-upf 203.0.113.1 --teid 0x11 --gnb-teid 0x21 --ue 10.45.0.2`,
		Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.attach(c, func(at *gnb.Attachment) error {
				if err := a.printAttached(c, at); err != nil {
					return err
				}
				fmt.Fprintf(c.ErrOrStderr(), "attached; try: ip netns exec %s ping ADDRESS; interrupt to detach\n", at.Sessions[0].Namespace)
				return a.follow(c, at)
			})
		},
	}
	f.add(c)
	cmdline.OutputFlag(c, &a.format)
	return c
}

// lookEvery is how often the gNB's counters are looked at for something to say.
const lookEvery = 200 * time.Millisecond

// seen is what a gNB has seen of a tunnel, or of none (an unknown TEID).
type seen struct {
	Event     string `json:"event"` // end_marker, error_indication or unknown_teid
	Namespace string `json:"namespace,omitempty"`
	Count     uint64 `json:"count"`
	text      string
}

// follow prints what happens, until an interrupt or until the gNB fails.
func (a *app) follow(c *cobra.Command, at *gnb.Attachment) error {
	out := &smfOutput{a: a, w: c.OutOrStdout()}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	before := at.Stats()
	for {
		select {
		case <-c.Context().Done():
			return out.err
		case <-at.Ended():
			return errors.Join(out.err, at.Err())
		case r := <-at.Reports():
			out.report(&r)
		case <-ticker.C:
			now := at.Stats()
			for _, s := range changes(at.Sessions, &before, &now) {
				out.print(s, func(g *printer.Grid) { g.Line(s.text) })
			}
			before = now
		}
	}
}
