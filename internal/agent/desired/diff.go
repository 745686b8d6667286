package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// RefError is an error about one resource.
type RefError struct {
	error
	Ref Ref
}

// Errorf is fmt.Errorf for an error about a resource.
func (r Ref) Errorf(format string, args ...any) RefError {
	return RefError{fmt.Errorf(format, args...), r}
}

// Unwrap is the error without its resource.
func (e RefError) Unwrap() error { return e.error }

// Index finds resources by name. A key that the file and the API both ask for
// differently is an ErrConflict.
func Index(list []Resource) (map[Ref]Resource, error) {
	out := make(map[Ref]Resource, len(list))
	var errs []error
	for _, r := range list {
		before, twice := out[r.Ref]
		switch {
		case !twice:
			out[r.Ref] = r
		case before.Origin == r.Origin:
			errs = append(errs, r.Ref.Errorf("%w: %s is there twice: keep one", ErrInvalid, r.Ref))
		default:
			errs = append(errs, r.Ref.Errorf("%w: %s is in the configuration file and was also added through the API with other values: "+
				"delete the one (culvert %s delete %s) or take the other out of the file", ErrConflict, r.Ref, r.Kind, r.Key))
		}
	}
	return out, errors.Join(errs...)
}

// Diff lists the changes from one list of resources to another: additions and
// updates in the order of the new one, then deletions in the reverse order of
// the old. Changes of the process's settings stand between them.
func Diff(from, to []Resource, before, after Process) ([]Change, error) {
	was, err := Index(from)
	if err != nil {
		return nil, err
	}
	is, err := Index(to)
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, r := range to {
		old, there := was[r.Ref]
		switch {
		case !there:
			out = append(out, Change{OpAdd, r.Kind, r.Key, summary(r.Value)})
		case !Same(old.Value, r.Value):
			out = append(out, Change{OpUpdate, r.Kind, r.Key, difference(old.Value, r.Value)})
		case old.Origin != r.Origin:
			out = append(out, Change{OpUpdate, r.Kind, r.Key, "kept by the configuration file from now on"})
		}
	}
	// Sections of the settings that change, and when that takes effect.
	logWhen := ""
	if before.Log.Format != after.Log.Format {
		logWhen = " (the format from the next start on)"
	}
	for _, s := range []struct {
		key      string
		from, to any
		when     string
	}{
		{"limits", before.Limits, after.Limits, limitsWhen(before.Limits, after.Limits)},
		{"api", before.API, after.API, atRestart},
		{"bgp", before.BGP, after.BGP, ""},
		{"overlay", before.Overlay, after.Overlay, ""},
		{"liveness", before.Liveness, after.Liveness, ""},
		{"metrics", before.Metrics, after.Metrics, atRestart},
		{"upf", before.UPF, after.UPF, ""},
		{"log", before.Log, after.Log, logWhen},
	} {
		if !Same(s.from, s.to) {
			out = append(out, Change{OpUpdate, KindSettings, s.key, difference(s.from, s.to) + s.when})
		}
	}
	for _, r := range slices.Backward(from) {
		if _, stays := is[r.Ref]; !stays {
			out = append(out, Change{OpDelete, r.Kind, r.Key, ""})
		}
	}
	return out, nil
}

// atRestart ends the details of a change that only a start reads.
const atRestart = " (from the next start on: restart the service, nothing is lost)"

// limitsWhen says when a change of limits takes effect, and what it costs.
func limitsWhen(before, after config.Limits) string {
	if before.PodFlows != after.PodFlows {
		return " (from the next start on: restart the service; it forgets the connections of pods that NetworkPolicies isolate)"
	}
	return atRestart
}

// Waiting are the sections of the settings whose change waits for the next start.
func Waiting(changes []Change) (sections []string) {
	for _, c := range changes {
		if c.Kind == KindSettings && slices.Contains([]string{"limits", "api", "metrics"}, c.Key) {
			sections = append(sections, c.Key)
		}
	}
	return sections
}

// SameList says whether two lists are one list, not only equal ones.
func SameList(a, b []Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// summary says in a few words what a new resource does.
func summary(value any) string {
	switch v := value.(type) {
	case srv6.LocalSID:
		return Text(v.Behavior)
	case srpolicy.Policy:
		return plural.Of(len(v.SegmentLists), "segment list")
	case srpolicy.CandidatePath:
		return fmt.Sprintf("of policy %s, preference %d", v.Policy, v.Preference)
	case srpolicy.Steering:
		switch {
		case v.Policy != "":
			return "to policy " + v.Policy
		case v.Tunnel != "":
			return "to tunnel " + v.Tunnel
		default:
			return Text(srv6.HMGTP4D)
		}
	case class.Class:
		return fmt.Sprintf("color %d", v.Color)
	case gtpu.Tunnel:
		if v.LocalTEID == 0 {
			return fmt.Sprintf("to %s", v.Remote)
		}
		return fmt.Sprintf("local TEID %d", v.LocalTEID)
	case slice.Slice:
		if v.N9 != nil {
			return strings.TrimSpace(fmt.Sprintf("N9 over %s %s", v.N9.Transport, v.N9.Mode))
		}
	case config.Locator:
		return v.Prefix.String()
	}
	return ""
}

// Text is a value as the configuration writes it.
func Text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(b), `"`)
}

// difference names the fields that differ: "table: 10 -> 20".
func difference(from, to any) string {
	a, b := fields(from), fields(to)
	names := maps.Clone(a)
	maps.Copy(names, b)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(a[name], b[name]) {
			parts = append(parts, fmt.Sprintf("%s: %s -> %s", name, shown(a[name]), shown(b[name])))
		}
	}
	return strings.Join(parts, ", ")
}

// fields are a value's fields as JSON; a value that is no object is its own
// field.
func fields(v any) map[string]json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	out := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &out) != nil {
		out = map[string]json.RawMessage{"value": raw}
	}
	return out
}

func shown(v json.RawMessage) string {
	const most = 120
	switch {
	case v == nil:
		return "unset"
	case len(v) > most:
		return string(v[:most]) + "..."
	}
	return string(v)
}

// Same says whether two values ask for the same. Nil and empty lists do, so
// where the values differ, it compares what the configuration would print.
func Same(a, b any) bool {
	switch p := a.(type) { // of these there are thousands
	case srpolicy.Policy:
		if q, ok := b.(srpolicy.Policy); ok && EqualPolicies(&p, &q) {
			return true
		}
	case srpolicy.CandidatePath:
		if q, ok := b.(srpolicy.CandidatePath); ok && p.Name == q.Name && p.Policy == q.Policy && p.Preference == q.Preference && p.DelayConstraint == q.DelayConstraint && equalLists(p.SegmentLists, q.SegmentLists) {
			return true
		}
	case srpolicy.Steering:
		if q, ok := b.(srpolicy.Steering); ok && EqualSteering(&p, &q) {
			return true
		}
	}
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// EqualPolicies is reflect.DeepEqual, and quicker: most policies have the very
// lists that they had.
func EqualPolicies(p, q *srpolicy.Policy) bool {
	return p.Name == q.Name && p.Behavior == q.Behavior && p.Source == q.Source && p.Color == q.Color && p.Endpoint == q.Endpoint &&
		p.BindingSID == q.BindingSID && p.Preference == q.Preference && p.DelayConstraint == q.DelayConstraint && equalLists(p.SegmentLists, q.SegmentLists) &&
		equalLists(p.Protection, q.Protection) && slices.Equal(p.Down, q.Down) && slices.Equal(p.Slow, q.Slow)
}

func equalLists(a, b []srpolicy.SegmentList) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, func(x, y srpolicy.SegmentList) bool {
		return x.Weight == y.Weight && slices.Equal(x.Segments, y.Segments)
	}))
}

// EqualSteering is reflect.DeepEqual, and quicker.
func EqualSteering(p, q *srpolicy.Steering) bool {
	return p.Prefix == q.Prefix && p.Interface == q.Interface && p.Policy == q.Policy && p.Tunnel == q.Tunnel &&
		p.Tenant == q.Tenant && slices.Equal(p.VLANs, q.VLANs) && (p.GTP4D == q.GTP4D || p.GTP4D != nil && q.GTP4D != nil && *p.GTP4D == *q.GTP4D)
}
