package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/cni/install"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/inventory"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/support"
)

const (
	mostLogLines  = 100000
	firstSessions = 20
)

// bundle is one run of `culvert support`.
type bundle struct {
	app        *app
	output     string
	identities bool
	lines      int
	configPath string
	pinPath    string

	client  *api.Client
	running *config.Config // nil: the daemon does not answer, as dead says
	dead    error
	onDisk  *config.Config // nil: the file cannot be read, as badFile says
	badFile error
	mask    *support.Mask // nil with --identities
}

// outputOrFormat is --output of `culvert support`: a format sets the format, as for all
// commands, and anything else names the file.
type outputOrFormat struct{ b *bundle }

func (o outputOrFormat) String() string { return "" }
func (o outputOrFormat) Type() string   { return "file" }
func (o outputOrFormat) Set(s string) error {
	if slices.Contains(printer.Formats, s) {
		return o.b.app.format.Set(s)
	}
	o.b.output = s
	return nil
}

func supportCommand(a *app) *cobra.Command {
	b := &bundle{app: a}
	c := &cobra.Command{
		Use: "support", Short: "Collect what support needs into one archive", Args: cmdline.NoArgs,
		Long: `Collect what support needs into one archive: configuration, state, counters, the
log, and facts about this machine. manifest.json in it lists what was collected, and
what failed and why. It works as far as possible while the daemon is dead.

Passwords, tokens and keys are never collected. Addresses of UEs and identities
of subscribers are replaced by placeholders, the same one for the same UE, unless
--identities is given. Read the archive before you send it.

--output names the archive; --output json, yaml or table is the format of the manifest
that is printed. To give both, give it twice.`,
		Example: "  culvert support\n  culvert support --output /tmp/fault.tar.gz -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if b.lines < 1 || b.lines > mostLogLines {
				return cmdline.Usagef("--lines %d: give a number from 1 to %d", b.lines, mostLogLines)
			}
			return b.collect(c)
		},
	}
	f := c.Flags()
	f.VarP(outputOrFormat{b}, "output", "o", "`file` to write (default culvert-support-HOST-DATE.tar.gz), or the format json, yaml or table")
	f.BoolVar(&b.identities, "identities", false, "keep addresses of UEs and identities of subscribers")
	f.IntVar(&b.lines, "lines", 5000, "`number` of lines of the log, from its end")
	f.StringVar(&b.configPath, "config", "/etc/culvert/culvert.yaml", "configuration `file`")
	f.StringVar(&b.pinPath, "pin-path", agent.DefaultPinPath, "`directory` of the pins")
	return c
}

func (b *bundle) collect(c *cobra.Command) error {
	client, err := api.NewClient(b.app.endpoint)
	if err != nil {
		return cmdline.Usage(err)
	}
	b.client = client
	ctx, cancel := context.WithTimeout(c.Context(), readTimeout)
	b.running, b.dead = client.Running(ctx)
	cancel()
	if b.dead != nil {
		b.running = nil
	}
	if b.onDisk, b.badFile = readConfig(b.configPath); b.badFile != nil {
		b.onDisk = nil
	}
	b.prepareMask()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	now := b.app.now().UTC()
	path := cmp.Or(b.output, fmt.Sprintf("culvert-support-%s-%s.tar.gz", host, now.Format("20060102-150405")))
	note := ""
	if b.dead != nil {
		note = "the daemon does not answer: " + b.dead.Error()
		fmt.Fprintln(c.ErrOrStderr(), note)
	}
	m, err := support.Write(c.Context(), path, b.items(), support.Options{
		Version: b.app.version, Time: now, Host: host, Note: note, Mask: b.mask, Notes: c.ErrOrStderr(),
	})
	if err != nil {
		return err
	}
	return b.app.print(c, m, func(g *printer.Grid) {
		g.Row("FILE", "BYTES", "MISSING")
		for _, r := range m.Items {
			g.Row(r.Name, r.Bytes, strings.ReplaceAll(r.Error, "\n", "; "))
		}
		g.Row(filepath.Clean(m.Archive), "", fmt.Sprintf("%d of %d", m.Failed(), len(m.Items)))
	})
}

// prepareMask tells the mask where UEs have their addresses. A node that does not know
// shows addresses of its configuration only.
func (b *bundle) prepareMask() {
	if b.identities {
		return
	}
	b.mask = &support.Mask{}
	known, text := b.running != nil || b.onDisk != nil, ""
	for _, c := range []*config.Config{b.running, b.onDisk} {
		if c == nil {
			continue
		}
		pools := slices.Concat(c.GTPU.Pools, c.UPF.Pools())
		b.mask.Know(pools...)
		if c.UPF.IsSet() && len(pools) == 0 {
			known = false
		}
		if data, err := yaml.Marshal(support.Redact(c)); err == nil {
			text += string(data)
		}
	}
	if !known {
		b.mask.HideAll(text)
	}
}

// items are in an order that lets the mask know the sessions' addresses first.
func (b *bundle) items() []support.Item {
	items := slices.Concat([]support.Item{
		b.asked("sessions.json", b.sessions),
		{Name: "version.json", Collect: func(context.Context) (any, error) { return b.app.versionInfo(), nil }},
		{Name: "config/running.yaml", Collect: func(context.Context) (any, error) { return redacted(b.running, b.dead) }},
		{Name: "config/file.yaml", Collect: func(context.Context) (any, error) { return redacted(b.onDisk, b.badFile) }},
	}, b.state())
	if b.isElsewhere() {
		return items
	}
	items = append(items, support.Item{Name: "bpf.json", Collect: func(context.Context) (any, error) { return inventory.Read(b.pinPath) }},
		support.Log("culvert.service", b.lines))
	c := cmp.Or(b.running, b.onDisk)
	var interfaces []string
	listen := config.DefaultMetricsListen
	if c != nil {
		interfaces, listen = c.InterfaceNames(), cmp.Or(c.Metrics.Listen, listen)
	}
	if listen != "off" {
		items = append(items, support.HTTP("metrics.txt", "http://"+reachable(listen)+"/metrics"), support.HTTP("readyz.txt", "http://"+reachable(listen)+"/readyz"))
	}
	return append(items, support.Machine(interfaces)...)
}

// isElsewhere says whether the daemon is on another machine, about which this one's
// log and devices say nothing.
func (b *bundle) isElsewhere() bool {
	host, _, err := net.SplitHostPort(b.app.endpoint.Address)
	if err != nil || host == "localhost" {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err != nil || !a.IsLoopback()
}

// reachable is the address of a server that listens on every address.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if a, bad := netip.ParseAddr(host); err == nil && (host == "" || bad == nil && a.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return listen
}

// redacted is a configuration as YAML, without secrets.
func redacted(c *config.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(support.Redact(c))
	return data, err
}

// asked is an item that the daemon answers.
func (b *bundle) asked(file string, f func(context.Context) (any, error)) support.Item {
	return support.Item{Name: file, Collect: func(ctx context.Context) (any, error) {
		if b.dead != nil {
			return nil, b.dead
		}
		v, err := f(ctx)
		if err != nil {
			return nil, err
		}
		return v, nil
	}}
}

// state is what the daemon says.
func (b *bundle) state() []support.Item {
	return []support.Item{
		b.asked("status.json", func(ctx context.Context) (any, error) { return b.client.Status(ctx) }),
		{Name: "doctor.json", Collect: b.doctor},
		b.asked("counters.json", func(ctx context.Context) (any, error) { return readCounters(b.client, ctx) }),
		b.asked("drops.json", func(ctx context.Context) (any, error) {
			outcomes, err := b.client.Outcomes(ctx, "")
			return slices.DeleteFunc(outcomes, func(o agent.Outcome) bool { return !o.Drop }), err
		}),
		b.asked("interfaces.json", func(ctx context.Context) (any, error) { return b.client.Interfaces(ctx, "") }),
		b.asked("adjacencies.json", func(ctx context.Context) (any, error) { return b.client.Adjacencies(ctx, "") }),
		b.asked("policies.json", func(ctx context.Context) (any, error) { return b.client.Policies(ctx, "") }),
		b.asked("slices.json", func(ctx context.Context) (any, error) { return b.client.Slices(ctx, "") }),
		b.asked("associations.json", func(ctx context.Context) (any, error) { return b.client.Associations(ctx, "") }),
		b.asked("bgp.json", func(ctx context.Context) (any, error) { return b.client.BGPPeers(ctx, "") }),
	}
}

// doctor asks the daemon, or looks at this machine if the daemon is dead.
func (b *bundle) doctor(ctx context.Context) (any, error) {
	if b.dead == nil {
		return b.client.Doctor(ctx, nil)
	}
	if b.isElsewhere() {
		return nil, b.dead
	}
	e := api.Examination{}
	if c := b.onDisk; c != nil {
		e = api.Examination{Interfaces: c.InterfaceNames(), GTPUOverIPv4: c.SendsGTPUOverIPv4(), Running: c, Overlay: membership(c)}
	}
	return examiner(&install.Files{BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"})(ctx, e)
}

// sessions are how many there are, and the first. The mask gets to know more of them.
func (b *bundle) sessions(ctx context.Context) (any, error) {
	list, total, err := b.client.Sessions(ctx, agent.SessionFilter{})
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		b.mask.KnowUE(s.UE...)
	}
	return map[string]any{"total": total, "first": list[:min(len(list), firstSessions)]}, nil
}
