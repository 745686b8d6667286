package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// process is what only the start of the process reads. It comes from the file
// alone.
type process struct {
	Limits  config.Limits  `json:"limits,omitzero"`
	API     config.API     `json:"api,omitzero"`
	Metrics config.Metrics `json:"metrics,omitzero"`
	Log     config.Log     `json:"log,omitzero"`
	UPF     config.UPF     `json:"upf,omitzero"`
	BGP     config.BGP     `json:"bgp,omitzero"`
	Overlay config.Overlay `json:"overlay,omitzero"`
}

func processOf(c *config.Config) process {
	return process{Limits: c.Limits, API: c.API, Metrics: c.Metrics, Log: c.Log, UPF: c.UPF, BGP: c.BGP, Overlay: c.Overlay}
}

// desired is all that was asked for, by all origins. Its values are never
// changed in place: a change makes a new one.
type desired struct {
	file    []resource // in the order of the file
	api     []resource // in the order of kinds, then of keys
	process process
	// self is this node as a member of its cluster; the zero value: it is none, or
	// not yet.
	self overlay.Self
	told told
	// learned are the resources that these two come to beside the others, wanted
	// what else they come to, named the policies that are known by color and
	// endpoint, and problems what of it cannot be.
	learned  []resource
	wanted   *overlay.Wanted // a new one each time that it is made
	named    map[overlay.Color]string
	problems []string
}

// list is every resource, the file's first.
func (d *desired) list() []resource { return slices.Concat(d.file, d.api, d.learned) }

// all is the same without a copy.
func (d *desired) all() iter.Seq[resource] {
	return func(yield func(resource) bool) {
		for _, list := range [][]resource{d.file, d.api, d.learned} {
			for _, r := range list {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// index finds resources by name. A key that the file and the API both ask for
// differently is a conflict.
func (d *desired) index() (map[Ref]resource, error) {
	out := make(map[Ref]resource, len(d.file)+len(d.api)+len(d.learned))
	var errs []error
	for r := range d.all() {
		before, twice := out[r.Ref]
		switch {
		case !twice:
			out[r.Ref] = r
		case before.origin == r.origin:
			errs = append(errs, fmt.Errorf("%w: %s is there twice: keep one", ErrInvalid, r.Ref))
		default:
			errs = append(errs, fmt.Errorf("%w: %s is in the configuration file and was also added through the API with other values: "+
				"delete the one (culvert %s delete %s) or take the other out of the file", ErrConflict, r.Ref, r.Kind, r.Key))
		}
	}
	return out, errors.Join(errs...)
}

// asked is without what peers told: what Apply would take to get here.
func (d *desired) asked() *config.Config {
	return (&desired{file: d.file, api: d.api, process: d.process}).config()
}

// config is all of it.
func (d *desired) config() *config.Config {
	c := unflatten(d.all())
	c.Limits, c.API, c.Metrics, c.Log = d.process.Limits, d.process.API, d.process.Metrics, d.process.Log
	c.UPF, c.BGP, c.Overlay = d.process.UPF, d.process.BGP, d.process.Overlay
	return c
}

// alone is without what others told.
func (d *desired) alone() *desired {
	next := *d
	next.told = told{}.clone()
	return next.learn()
}

// standsAlone: what was asked for holds together without what peers told, which
// may be gone at any time.
func (d *desired) standsAlone() error {
	if len(d.learned) == 0 {
		return nil
	}
	c := d.asked()
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: without what others told: %w", ErrInvalid, err)
	}
	return nil
}

// completed is the same with the defaults filled in.
func (d *desired) completed() *config.Config {
	c := d.config()
	c.SetDefaults()
	return c
}

// withFile replaces what the file asks for. What the API had added with the
// very same values is the file's from now on.
func (d *desired) withFile(c *config.Config) *desired {
	next := &desired{file: flatten(c, OriginFile), process: processOf(c), self: d.self, told: d.told.whatIsOn(c).succeeds(d, c)}
	inFile := make(map[Ref]resource, len(next.file))
	for _, r := range next.file {
		inFile[r.Ref] = r
	}
	for _, r := range d.api {
		if f, both := inFile[r.Ref]; both && same(f.value, r.value) {
			continue
		}
		next.api = append(next.api, r)
	}
	return next
}

// withAPI adds resources through the API, or updates those that it added.
// It says what it touched.
func (d *desired) withAPI(fragment *config.Config) (*desired, []Ref, error) {
	var unset config.Config
	unset.SetDefaults()
	if !same(processOf(fragment), processOf(&unset)) {
		return nil, nil, fmt.Errorf("%w: limits, api, metrics, log, upf, bgp and overlay are read from the configuration file only: change them there", ErrInvalid)
	}
	fromFile := make(map[Ref]bool, len(d.file))
	for _, r := range d.file {
		fromFile[r.Ref] = true
	}
	added := flatten(fragment, OriginAPI)
	if len(added) == 0 {
		return nil, nil, fmt.Errorf("%w: there is nothing to add", ErrInvalid)
	}
	api := make(map[Ref]resource, len(d.api)+len(added))
	for _, r := range d.api {
		api[r.Ref] = r
	}
	once := make(map[Ref]bool, len(added))
	touched := make([]Ref, 0, len(added))
	for _, r := range added {
		if fromFile[r.Ref] {
			return nil, nil, fmt.Errorf("%w: %s is in the configuration file: change it there and apply the file", ErrConflict, r.Ref)
		}
		if once[r.Ref] {
			return nil, nil, fmt.Errorf("%w: %s is there twice: keep one", ErrInvalid, r.Ref)
		}
		once[r.Ref] = true
		api[r.Ref] = r
		touched = append(touched, r.Ref)
	}
	return d.withAdded(api), touched, nil
}

// withAdded replaces what came through the API.
func (d *desired) withAdded(api map[Ref]resource) *desired {
	return &desired{file: d.file, api: inOrder(api), process: d.process, self: d.self, told: d.told}
}

// without deletes resources that the API added.
func (d *desired) without(refs []Ref) (*desired, error) {
	if len(refs) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to delete", ErrInvalid)
	}
	fromFile := make(map[Ref]bool, len(d.file))
	for _, r := range d.file {
		fromFile[r.Ref] = true
	}
	api := make(map[Ref]resource, len(d.api))
	for _, r := range d.api {
		api[r.Ref] = r
	}
	for _, r := range refs {
		r = r.normalize()
		if _, there := api[r]; there {
			delete(api, r)
			continue
		}
		if fromFile[r] {
			return nil, fmt.Errorf("%w: %s is in the configuration file: take it out there and apply the file", ErrConflict, r)
		}
		return nil, fmt.Errorf("%w: %s", ErrNotFound, r)
	}
	return d.withAdded(api), nil
}

// dangling names what still refers to something that is to be deleted.
func (d *desired) dangling(deleted []Ref) error {
	if len(deleted) == 0 {
		return nil
	}
	gone := make(map[Ref]bool, len(deleted))
	for _, r := range deleted {
		gone[r.normalize()] = true
	}
	var errs []error
	for r := range d.all() {
		for _, used := range uses(r.value) {
			if gone[used] {
				errs = append(errs, fmt.Errorf("%w: %s is used by %s: delete or change that first", ErrConflict, used, r.Ref))
			}
		}
	}
	return errors.Join(errs...)
}

// uses are the resources that a value refers to.
func uses(value any) []Ref {
	var out []Ref
	add := func(kind Kind, name string) {
		if name != "" {
			out = append(out, Ref{kind, name})
		}
	}
	switch v := value.(type) {
	case srv6.LocalSID:
		add(KindPolicy, v.Policy)
	case gtpu.Tunnel:
		add(KindTunnel, v.SwitchTo)
		add(KindPolicy, v.Policy)
	case srpolicy.CandidatePath:
		add(KindPolicy, v.Policy)
	case srpolicy.Steering:
		add(KindPolicy, v.Policy)
		add(KindTunnel, v.Tunnel)
		if v.GTP4D != nil {
			add(KindPolicy, v.GTP4D.Policy)
		}
	case slice.Slice:
		if v.N9 != nil {
			add(KindPolicy, v.N9.UplinkPolicy)
			add(KindPolicy, v.N9.DownlinkPolicy)
		}
	}
	return out
}

func inOrder(m map[Ref]resource) []resource {
	out := slices.AppendSeq(make([]resource, 0, len(m)), maps.Values(m))
	slices.SortFunc(out, func(a, b resource) int {
		if k := slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind); k != 0 {
			return k
		}
		return strings.Compare(a.Key, b.Key)
	})
	return out
}

// diff says what changes between two desired states: additions and updates in
// the order of the new one, then deletions in the reverse order of the old.
func diff(from, to *desired) ([]Change, error) {
	if sameList(from.file, to.file) {
		// One that came through the API: what the file asks for is not looked
		// at, there may be much of it.
		from = &desired{api: from.api, learned: from.learned, process: from.process}
		to = &desired{api: to.api, learned: to.learned, process: to.process}
	}
	before, err := from.index()
	if err != nil {
		return nil, err
	}
	after, err := to.index()
	if err != nil {
		return nil, err
	}
	var out []Change
	for r := range to.all() {
		old, there := before[r.Ref]
		switch {
		case !there:
			out = append(out, Change{OpAdd, r.Kind, r.Key, summary(r.value)})
		case !same(old.value, r.value):
			out = append(out, Change{OpUpdate, r.Kind, r.Key, difference(old.value, r.value)})
		case old.origin != r.origin:
			out = append(out, Change{OpUpdate, r.Kind, r.Key, "kept by the configuration file from now on"})
		}
	}
	out = append(out, from.process.diff(to.process)...)
	for _, r := range slices.Backward(from.list()) {
		if _, stays := after[r.Ref]; !stays {
			out = append(out, Change{OpDelete, r.Kind, r.Key, ""})
		}
	}
	return out, nil
}

// sameList says that it is one list, not only an equal one.
func sameList(a, b []resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// diff names the sections that change, and when that takes effect.
func (p process) diff(to process) []Change {
	var out []Change
	section := func(key string, from, to any, when string) {
		if !same(from, to) {
			out = append(out, Change{OpUpdate, KindSettings, key, difference(from, to) + when})
		}
	}
	section("limits", p.Limits, to.Limits, " (from the next start on, which takes `culvert unpin` before)")
	section("api", p.API, to.API, " (from the next start on)")
	section("bgp", p.BGP, to.BGP, "")
	section("overlay", p.Overlay, to.Overlay, "")
	section("metrics", p.Metrics, to.Metrics, " (from the next start on)")
	section("upf", p.UPF, to.UPF, "")
	when := ""
	if p.Log.Format != to.Log.Format {
		when = " (the format from the next start on)"
	}
	section("log", p.Log, to.Log, when)
	return out
}

// summary says in a few words what a new resource does.
func summary(value any) string {
	switch v := value.(type) {
	case srv6.LocalSID:
		return text(v.Behavior)
	case srpolicy.Policy:
		return fmt.Sprintf("%d segment lists", len(v.SegmentLists))
	case srpolicy.CandidatePath:
		return fmt.Sprintf("of policy %s, preference %d", v.Policy, v.Preference)
	case srpolicy.Steering:
		switch {
		case v.Policy != "":
			return "to policy " + v.Policy
		case v.Tunnel != "":
			return "to tunnel " + v.Tunnel
		default:
			return text(srv6.HMGTP4D)
		}
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

// text is a value as the configuration writes it.
func text(v any) string {
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

// fields are a value's fields as JSON; what is not an object is its own.
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
