package labcli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/smf"
)

// smfVerb is a command that does one step.
type smfVerb struct {
	name, short, long, example string
	fields                     []smfField // of the step, as flags
	template                   bool       // it has flags for the sessions' template too
	fresh                      bool       // the UPF shall take us for an SMF that has just started
}

// isAboutSessions says whether the step needs sessions that exist.
func (v smfVerb) isAboutSessions() bool {
	return slices.ContainsFunc(v.fields, func(f smfField) bool { return f.path == "sessions" })
}

var smfVerbs = []smfVerb{
	{name: "associate", short: "Set up the association, as an SMF that has just started", fresh: true},
	{name: "establish", short: "Establish sessions, and give the UPF the gNB's tunnels", template: true, fields: smfPaceFields,
		long: `Establish sessions, and, with --access, give the UPF the gNB's tunnels. Session i
gets the i-th UE address and TEID of the given ranges. The command sets up the
association first if there is none.`,
		example: `  culvert smf establish --upf 192.0.2.8 --ue4 10.45.0.0/16 --network-instance internet --access 192.0.2.1 --access-teid 0x1000
  culvert smf establish --upf 192.0.2.8 --dialect free5gc --count 10 --ue4 10.60.0.0/16 --local-address 192.0.2.8 --local-access-teid 1 --access 192.0.2.1 --access-teid 1`},
	{name: "handover", short: "Move sessions to another gNB's tunnels, with End Markers on the old ones",
		fields: slices.Concat(smfSelectFields, smfPaceFields, smfTunnelFields, []smfField{
			{flag: "end-marker", path: "end_marker", about: "ask for End Markers on the old tunnels", initial: "true"},
		}),
		example: "  culvert smf handover --upf 192.0.2.8 --access 192.0.2.2 --access-teid 0x2000"},
	{name: "idle", short: "Make the UPF buffer downlink packets and report the first", fields: slices.Concat(smfSelectFields, smfPaceFields)},
	{name: "page", short: "Wait for downlink data reports, then forward again",
		fields: slices.Concat(smfSelectFields, smfPaceFields, smfTunnelFields, []smfField{
			{flag: "now", path: "now", about: "do not wait for reports", initial: "false", is: "true"},
			{flag: "wait", path: "timeout", about: "`duration` to wait for reports (default 30s)", text: true},
		})},
	{name: "query", short: "Query the usage of sessions", fields: slices.Concat(smfSelectFields, smfPaceFields)},
	{name: "modify", short: "Change rates, gates, actions or the next UPF of sessions",
		fields:  slices.Concat(smfSelectFields, smfPaceFields, smfChangeFields),
		example: "  culvert smf modify --upf 192.0.2.8 --mbr-uplink 1000 --mbr-downlink 2000\n  culvert smf modify --upf 192.0.2.8 --downlink drop"},
	{name: "delete", short: "Delete sessions, and show their last usage", fields: slices.Concat(smfSelectFields, smfPaceFields)},
	{name: "show", short: "Show the sessions in the state file", fields: smfSelectFields},
	{name: "release", short: "Release the association and its sessions"},
	{name: "load", short: "Establish, modify and delete sessions at a rate, and measure it", template: true, fresh: true, fields: smfPaceFields,
		long: `Establish, modify and delete sessions, at a rate or as fast as the UPF answers, and
print requests per second and latency (microseconds). CPU is the CPU time of this
program per request; run it against "culvert smf responder" to measure its own
limit. The SMF presents itself as just started: the UPF drops the sessions of an
earlier SMF with the same Node ID.`,
		example: "  culvert smf load --upf 192.0.2.8 --count 100000 --ue4 10.0.0.0/8 --access 192.0.2.1 --access-teid 1 --window 256\n" +
			"  culvert smf load --upf 192.0.2.8 --count 20000 --rate 5000 --ue4 10.0.0.0/8 --access 192.0.2.1 --access-teid 1 -o json"},
}

// smfField is a field of a scenario as a flag.
type smfField struct {
	flag, path, about string
	text              bool // never a number
	words             []string
	initial           string // of a switch: true or false
	is                string // what a switch stands for, if not for what was typed
}

var smfTemplateFields = []smfField{
	{flag: "sessions", path: "sessions", about: "`name` of the group of sessions (default ue)", text: true},
	{flag: "count", path: "count", about: "`number` of sessions (default 1)"},
	{flag: "role", path: "role", about: "`role` of the UPF: anchor or intermediate", words: []string{string(smf.Anchor), string(smf.Intermediate)}},
	{flag: "ue4", path: "ue4", about: "`prefix` with the first UE's IPv4 address"},
	{flag: "ue6", path: "ue6", about: "`prefix` with the first UE's IPv6 address, a /64 for each"},
	{flag: "choose-ue", path: "choose_ue", about: "`types` of UE addresses that the UPF chooses: ipv4, ipv6 or ipv4v6", words: []string{"ipv4", "ipv6", "ipv4v6"}},
	{flag: "pdn-type", path: "pdn_type", about: "PDN `type`: ipv4, ipv6, ipv4v6, unstructured or ethernet (default: by the addresses)", words: []string{"ipv4", "ipv6", "ipv4v6", "unstructured", "ethernet"}},
	{flag: "network-instance", path: "network_instance", about: "network instance (`name`) of the rules", text: true},
	{flag: "dnn", path: "dnn", about: "DNN (`name`) of the session", text: true},
	{flag: "sst", path: "snssai.sst", about: "slice/service `type` of the S-NSSAI"},
	{flag: "sd", path: "snssai.sd", about: "slice differentiator of the S-NSSAI: six hexadecimal `digits`", text: true},
	{flag: "access", path: "access.address", about: "`address` of the gNB, or of the previous UPF"},
	{flag: "access-addresses", path: "access.addresses", about: "`number` of gNBs, at consecutive addresses"},
	{flag: "access-teid", path: "access.teid", about: "the gNB's `TEID` of session 0"},
	{flag: "access-interface", path: "access.interface", about: "`interface` of these tunnels: n3 or n9 (default n3)", words: []string{"n3", "n9"}},
	{flag: "core", path: "core.address", about: "`address` of the next UPF, for an intermediate one"},
	{flag: "core-teid", path: "core.teid", about: "the next UPF's `TEID` of session 0"},
	{flag: "local-address", path: "local.address", about: "`address` of the UPF's F-TEIDs, where the SMF chooses them"},
	{flag: "local-access-teid", path: "local.access_teid", about: "the UPF's `TEID` of session 0 on the access side"},
	{flag: "local-core-teid", path: "local.core_teid", about: "the UPF's `TEID` of session 0 on the core side"},
	{flag: "qfi", path: "qfi", about: "`QFI` of the session's QoS flow"},
	{flag: "mbr-uplink", path: "mbr.uplink", about: "MBR in `kbit/s`"},
	{flag: "mbr-downlink", path: "mbr.downlink", about: "MBR in `kbit/s`"},
	{flag: "volume-threshold", path: "urr.volume_threshold.total", about: "`octets` after which the UPF reports usage"},
	{flag: "volume-quota", path: "urr.volume_quota.total", about: "`octets` after which the UPF drops packets"},
	{flag: "time-threshold", path: "urr.time_threshold", about: "`duration` of use after which the UPF reports it", text: true},
	{flag: "period", path: "urr.period", about: "`duration` between usage reports", text: true},
	{flag: "cp-function", path: "cp_function", about: "`address` to which the UPF sends router solicitations of UEs, in GTP-U"},
}

var smfSelectFields = []smfField{
	{flag: "sessions", path: "sessions", about: "`name` of a group of sessions (default: all)", text: true},
	{flag: "first", path: "first", about: "`number` of the first session of the group"},
	{flag: "count", path: "count", about: "`number` of sessions (default: all from --first on)"},
}

var smfTunnelFields = []smfField{
	{flag: "access", path: "access.address", about: "`address` of the new gNB"},
	{flag: "access-teid", path: "access.teid", about: "the new gNB's `TEID` of session 0"},
	{flag: "access-addresses", path: "access.addresses", about: "`number` of gNBs, at consecutive addresses"},
}

var smfPaceFields = []smfField{
	{flag: "rate", path: "rate", about: "`requests` per second (default: as fast as the UPF answers)"},
	{flag: "window", path: "window", about: "`number` of requests in flight (default 64)"},
}

var smfChangeFields = []smfField{
	{flag: "mbr-uplink", path: "change.mbr.uplink", about: "MBR in `kbit/s`"},
	{flag: "mbr-downlink", path: "change.mbr.downlink", about: "MBR in `kbit/s`"},
	{flag: "uplink", path: "change.uplink", about: "`action` for uplink packets: forward or drop", words: []string{"forward", "drop"}},
	{flag: "downlink", path: "change.downlink", about: "`action` for downlink packets: forward or drop", words: []string{"forward", "drop"}},
	{flag: "core", path: "change.core.address", about: "`address` of the next UPF"},
	{flag: "core-teid", path: "change.core.teid", about: "the next UPF's `TEID` of session 0"},
	{flag: "gates-open", path: "change.gates", about: "open both gates", initial: "false", is: "{}"},
	{flag: "gate-uplink-closed", path: "change.gates.uplink_closed", about: "close the uplink gate", initial: "false", is: "true"},
	{flag: "gate-downlink-closed", path: "change.gates.downlink_closed", about: "close the downlink gate", initial: "false", is: "true"},
	{flag: "drop-buffered", path: "change.drop_buffered", about: "drop buffered packets", initial: "false", is: "true"},
}

func (a *app) smfVerb(v smfVerb) *cobra.Command {
	var f smfFlags
	c := &cobra.Command{Use: v.name, Short: v.short, Long: v.long, Example: v.example, Args: cmdline.NoArgs}
	f.add(c)
	f.addDialect(c)
	c.Flags().StringVar(&f.state, "state", "", "`file` for the sessions (default: one for each UPF, in the user's cache directory)")
	fields := v.fields
	if v.template {
		c.Flags().StringArray("filter", nil, "SDF filter with PDRs of its own: an `IPFilterRule`; may be repeated")
		fields = slices.Concat(smfTemplateFields, fields)
	}
	for _, field := range fields {
		if field.initial != "" {
			c.Flags().Bool(field.flag, field.initial == "true", field.about)
			continue
		}
		c.Flags().String(field.flag, "", field.about)
		if field.words != nil {
			cmdline.Complete(c, field.flag, field.words)
		}
	}
	cmdline.OutputFlag(c, &a.format)
	c.RunE = func(c *cobra.Command, _ []string) error { return a.doVerb(c, v, &f) }
	return c
}

// doVerb makes a scenario of the flags and does its one step.
func (a *app) doVerb(c *cobra.Command, v smfVerb, f *smfFlags) error {
	if f.upf == "" {
		return cmdline.Usagef("--upf is missing: give the UPF's address")
	}
	upf, err := smf.ParseAddr(f.upf)
	if err != nil {
		return cmdline.Usagef("--upf: %w", err)
	}
	if _, err := smf.ParseAddr(f.local); f.local != "" && err != nil {
		return cmdline.Usagef("--local: %w", err)
	}
	if f.state == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("find a directory for the state file: %w: give --state", err)
		}
		name := strings.NewReplacer(":", "_", "[", "", "]", "").Replace(upf.String())
		f.state = filepath.Join(dir, "culvert", "smf-"+name+".json")
	}
	var saved *smf.Saved
	if !v.fresh {
		if saved, err = loadState(f.state); err != nil {
			return err
		}
	}
	scenario, err := v.scenario(c.Flags(), f, saved)
	if err != nil {
		return cmdline.Usage(err)
	}
	return a.oneStep(c, v, f, saved, scenario)
}

// oneStep does the scenario's step. It first sets up the association unless one
// exists.
func (a *app) oneStep(c *cobra.Command, v smfVerb, f *smfFlags, saved *smf.Saved, scenario *smf.Scenario) error {
	client, runner, err := startSMF(c, scenario, saved)
	if err != nil {
		return err
	}
	defer client.Close()
	var result smf.StepResult
	associated := !v.template || saved != nil && !saved.UPFStarted.IsZero()
	if !associated {
		result = runner.Do(c.Context(), smf.Step{Do: "associate"})
		associated = result.OK
	}
	if associated {
		result = runner.Do(c.Context(), scenario.Steps[0])
	}
	if !result.OK {
		err = stepError(c.Context(), &result)
	}
	if v.name != "load" && v.name != "show" {
		err = errors.Join(err, saveState(f.state, client.Save()))
	}
	if associated {
		err = errors.Join(a.format.Print(c.OutOrStdout(), result, func(g *printer.Grid) { stepDetails(g, &result) }), err)
	}
	return err
}

// scenario is what the flags say, read by the decoder of scenario files, so that
// no value has a second meaning here.
func (v smfVerb) scenario(flags *pflag.FlagSet, f *smfFlags, saved *smf.Saved) (*smf.Scenario, error) {
	scenario := map[string]any{}
	if saved != nil {
		scenario["local"], scenario["node_id"], scenario["dialect"] = saved.Local.String(), saved.NodeID, string(saved.Dialect)
		if f.dialect != "" && f.dialect != string(saved.Dialect) || f.local != "" || f.nodeID != "" {
			return nil, errors.New("--dialect, --local and --node-id belong to the association in the state file: run culvert smf associate to start a new one")
		}
	}
	for flag, value := range map[string]string{"upf": f.upf, "local": f.local, "node_id": f.nodeID, "dialect": f.dialect} {
		if value != "" {
			scenario[flag] = value
		}
	}
	step := map[string]any{"do": v.name}
	if err := setFields(step, flags, v.fields); err != nil {
		return nil, err
	}
	if v.template {
		template := map[string]any{}
		if err := setFields(template, flags, smfTemplateFields); err != nil {
			return nil, err
		}
		step["sessions"] = nameTemplate(template, flags, saved)
		scenario["sessions"] = []any{template}
	} else if saved != nil && len(saved.Groups) > 0 {
		var specs []smf.Spec
		for _, g := range saved.Groups {
			specs = append(specs, g.Spec)
		}
		scenario["sessions"] = specs
	} else if v.isAboutSessions() {
		return nil, fmt.Errorf("%s: no sessions in %s: culvert smf establish makes some", v.name, f.state)
	}
	scenario["steps"] = []any{step}
	s, err := smf.ScenarioOf(scenario)
	if err != nil {
		return nil, flagErrors(err, v.flagOf)
	}
	s.Timeout, s.Attempts = f.timeout, f.attempts
	return s, nil
}

// flagErrors names flags in place of the fields that they set.
func flagErrors(err error, flagOf func(field string) string) error {
	list, ok := errors.AsType[config.Errors](err)
	if !ok {
		return err
	}
	for i := range list {
		list[i].Field, list[i].Resource = flagOf(list[i].Field), ""
	}
	return list
}

// flagOf is the flag that sets a field, or the field of what is not from a flag.
func (v smfVerb) flagOf(field string) string {
	fields, path, ok := v.fields, "", false
	if path, ok = strings.CutPrefix(field, "steps[0]."); !ok && v.template {
		fields = smfTemplateFields
		path, ok = strings.CutPrefix(field, "sessions[0].")
	}
	switch {
	case !ok && slices.Contains([]string{"upf", "local", "node_id", "dialect"}, field):
		return "--" + strings.ReplaceAll(field, "_", "-")
	case !ok:
		return field
	case strings.HasPrefix(path, "filters["):
		return "--filter"
	}
	for _, f := range fields {
		if f.path == path || strings.HasPrefix(f.path, path+".") {
			return "--" + f.flag
		}
	}
	return field
}

// nameTemplate gives the group a name that no other has, and its filters.
func nameTemplate(template map[string]any, flags *pflag.FlagSet, saved *smf.Saved) string {
	name, _ := template["sessions"].(string)
	delete(template, "sessions")
	for n := 1; name == "" || flags.Lookup("sessions").Value.String() == "" && saved.Has(name); n++ {
		name = "ue"
		if n > 1 {
			name = fmt.Sprintf("ue%d", n)
		}
	}
	template["name"] = name
	filters, _ := flags.GetStringArray("filter") // it is one
	list := make([]any, len(filters))
	for i, flow := range filters {
		list[i] = map[string]any{"flow": flow}
	}
	template["filters"] = list
	return name
}

// setFields puts the flags that are set to their places.
func setFields(to map[string]any, flags *pflag.FlagSet, fields []smfField) error {
	for _, f := range fields {
		if !flags.Changed(f.flag) {
			continue
		}
		text := cmp.Or(f.is, flags.Lookup(f.flag).Value.String())
		var value any = text
		if !f.text {
			if err := yaml.Unmarshal([]byte(text), &value); err != nil {
				return fmt.Errorf("--%s: %q cannot be read", f.flag, text)
			}
		}
		at, keys := to, strings.Split(f.path, ".")
		for _, key := range keys[:len(keys)-1] {
			next, ok := at[key].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[key] = next
			}
			at = next
		}
		at[keys[len(keys)-1]] = value
	}
	return nil
}

// loadState returns nil if the file does not exist.
func loadState(path string) (*smf.Saved, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	saved := &smf.Saved{}
	if err := json.Unmarshal(text, saved); err != nil {
		return nil, fmt.Errorf("state file %s: %w: remove it and run culvert smf associate", path, err)
	}
	return saved, nil
}

func saveState(path string, saved *smf.Saved) error {
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	return os.Rename(path+".new", path)
}
