package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func policyCommand(a *app) *cobra.Command {
	c := noun[agent.PolicyStatus]{
		kind: agent.KindPolicy, aliases: []string{"policies"}, keyName: "NAME",
		short:  "SR policies, their segment lists, and the active candidate path",
		fetch:  (*api.Client).Policies,
		key:    func(s agent.PolicyStatus) string { return s.Name },
		header: []any{"NAME", "BEHAVIOR", "SEGMENT LISTS", "BINDING SID", "ORIGIN", "ACTIVE PATH", "PACKETS", "BYTES"},
		row: func(s agent.PolicyStatus) []any {
			return []any{s.Name, s.Behavior, segmentLists(s.SegmentLists), valid(s.BindingSID), s.Origin, activePath(s.Paths), s.Counter.Packets, s.Counter.Bytes}
		},
		add: &adder{
			section: "policies", keyName: "NAME", key: "name",
			fields: []field{
				{name: "behavior", about: "H.Encaps, H.Encaps.Red (the default), H.Encaps.L2 or H.Encaps.L2.Red", words: namesOf(srpolicy.Behaviors())},
				{name: "segments", about: "segment `LIST`, first segment first; repeat the flag for a second list", list: true, other: true},
				{name: "weight", about: "`WEIGHT` of each --segments, in their order (default 1)", list: true, other: true},
				preferenceField,
				{name: "source", about: "outer IPv6 source (default: the node's)"},
				{name: "color", about: "the policy's color"},
				{name: "endpoint", about: "the policy's endpoint"},
				{name: "binding_sid", about: "SID that stands for the policy"},
			},
			finish: policyLists("policies[0]"),
			example: `  culvert policy add gold --segments 2001:db8:11:1::,2001:db8:2:d46::
  culvert policy add gold --segments 2001:db8:11:1::,2001:db8:2:d46:: --weight 3 --segments 2001:db8:12:1::,2001:db8:2:d46:: --weight 1`,
		},
	}.command(a)
	c.AddCommand(injectCommand(a))
	return c
}

var preferenceField = field{name: "preference", about: "preference of this candidate path: the valid path with the highest is active (default 100)"}

func candidatePathCommand(a *app) *cobra.Command {
	return noun[agent.CandidatePathStatus]{
		kind: agent.KindCandidatePath, aliases: []string{"candidate-paths"}, keyName: "NAME",
		short:  "Candidate paths of SR policies, besides the policies' own segment lists",
		fetch:  (*api.Client).CandidatePaths,
		key:    func(s agent.CandidatePathStatus) string { return s.Name },
		header: []any{"NAME", "POLICY", "PREFERENCE", "SEGMENT LISTS", "ORIGIN", "STATE", "WHY"},
		row: func(s agent.CandidatePathStatus) []any {
			return []any{s.Name, s.Policy, s.Verdict.Preference, segmentLists(s.SegmentLists), s.Origin, pathState(s.Verdict), s.Verdict.Why}
		},
		add: &adder{
			section: "candidate_paths", keyName: "NAME", key: "name",
			fields: []field{
				{name: "policy", about: "name of the policy that the path belongs to"},
				{name: "segments", about: "segment `LIST`, first segment first; repeat the flag for a second list", list: true, other: true},
				{name: "weight", about: "`WEIGHT` of each --segments, in their order (default 1)", list: true, other: true},
				preferenceField,
			},
			finish:  policyLists("candidate_paths[0]"),
			example: `  culvert candidate-path add gold-south --policy gold --preference 50 --segments 2001:db8:13:1::,2001:db8:2:d46::`,
		},
	}.command(a)
}

func pathState(v srpolicy.Verdict) string {
	switch {
	case v.Active && v.Valid:
		return "active"
	case v.Active:
		return "active, not valid"
	case v.Valid:
		return "valid"
	}
	return "not valid"
}

// activePath names the first of the verdicts, if there is a choice or something
// to say of it.
func activePath(paths []srpolicy.Verdict) string {
	switch {
	case len(paths) == 0:
		return "none"
	case len(paths) == 1 && paths[0].Valid:
		return ""
	}
	best := paths[0]
	name := cmp.Or(best.Path, "own")
	if !best.Valid {
		return name + " (not valid)"
	}
	return fmt.Sprintf("%s (%d)", name, best.Preference)
}

// policyLists makes a segment list of the resource from each --segments and its
// --weight.
func policyLists(resource string) func(*config.Config, *pflag.FlagSet) error {
	return func(c *config.Config, flags *pflag.FlagSet) error {
		lists, err := flags.GetStringArray("segments")
		if err != nil {
			return err
		}
		weights, err := flags.GetStringArray("weight")
		if err != nil {
			return err
		}
		if len(lists) == 0 {
			return cmdline.Usagef("--segments is missing: give the SIDs to visit, the first one first")
		}
		if len(weights) > 0 && len(weights) != len(lists) {
			return cmdline.Usagef("--weight is given %d times for %d --segments: give one for each", len(weights), len(lists))
		}
		for i, list := range lists {
			at := fmt.Sprintf("%s.segment_lists[%d]", resource, i)
			err := config.Set(c, at+".segments", list)
			if err == nil && len(weights) > 0 {
				err = config.Set(c, at+".weight", weights[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func segmentLists(lists []srpolicy.SegmentList) string {
	var out []string
	for _, l := range lists {
		text := strings.Join(namesOf(l.Segments), ",")
		if len(lists) > 1 {
			text = fmt.Sprintf("%d: %s", max(1, l.Weight), text)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// valid shows an address or prefix that is given, and else nothing.
func valid[T interface {
	fmt.Stringer
	IsValid() bool
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}
