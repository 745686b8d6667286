package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// allVariants chooses every variant, one after another.
const allVariants = "all"

// Variants are what a lab may have several of: transports of N9, or modes of an
// overlay's control plane. Its checks are made in each of them.
type Variants struct {
	N9    []string `json:"n9,omitempty"`
	Modes []string `json:"modes,omitempty"`
}

// names of the variants, of whatever they are.
func (v Variants) names() []string { return slices.Concat(v.N9, v.Modes) }

// word is what they are called in a flag and in messages.
func (v Variants) word() string {
	if len(v.Modes) > 0 {
		return "mode"
	}
	return "n9"
}

// concern says whether what names them is about the variant; no names are about
// all.
func (v Variants) concern(variant string) bool {
	return len(v.names()) == 0 || slices.Contains(v.names(), variant)
}

func (t *Topology) validateVariants() error {
	if len(t.N9) > 0 && len(t.Modes) > 0 {
		return errors.New("n9, modes: a lab has variants of one of them")
	}
	for i, n := range t.Nodes {
		if err := t.wantVariants(Variants{N9: slices.Sorted(maps.Keys(n.N9)), Modes: slices.Sorted(maps.Keys(n.Modes))}); err != nil {
			return fmt.Errorf("nodes[%d]: %w", i, err)
		}
	}
	return nil
}

// wantVariants wants the lab to have all of them.
func (t *Topology) wantVariants(v Variants) error {
	for word, lists := range map[string][2][]string{"n9": {v.N9, t.N9}, "modes": {v.Modes, t.Modes}} {
		for _, name := range lists[0] {
			if !slices.Contains(lists[1], name) {
				return fmt.Errorf("%s: %q: the lab has %s", word, name, cmp.Or(strings.Join(lists[1], ", "), "none"))
			}
		}
	}
	return nil
}

// wantVariant wants the lab to have the one.
func (t *Topology) wantVariant(name string) error {
	if !slices.Contains(t.names(), name) {
		return fmt.Errorf("%s: %q: the lab has %s", t.word(), name, cmp.Or(strings.Join(t.names(), ", "), "none"))
	}
	return nil
}

// chosenVariants are those that the flag word chooses with a value; one without
// a name where the lab has none.
func (t *Topology) chosenVariants(word, value string) ([]string, error) {
	names := t.names()
	switch {
	case value != "" && (len(names) == 0 || word != t.word()):
		return nil, fmt.Errorf("--%s: lab %s has nothing of it to choose from", word, t.Name)
	case len(names) == 0:
		return []string{""}, nil
	case value == "" || value == allVariants:
		return names, nil
	case slices.Contains(names, value):
		return []string{value}, nil
	}
	return nil, fmt.Errorf("--%s: %q: use %s or %s", word, value, strings.Join(names, ", "), allVariants)
}

// merge lays one configuration over another: mappings are merged, and so are
// lists of mappings that have names; everything else is replaced. Neither is
// changed.
func merge(base, over any) any {
	switch over := over.(type) {
	case map[string]any:
		under, ok := base.(map[string]any)
		if !ok {
			return over
		}
		merged := maps.Clone(under)
		for key, value := range over {
			merged[key] = merge(under[key], value)
		}
		return merged
	case []any:
		under, ok := base.([]any)
		if !ok || !named(under) || !named(over) {
			return over
		}
		merged := slices.Clone(under)
		for _, item := range over {
			i := slices.IndexFunc(merged, func(m any) bool { return nameOf(m) == nameOf(item) })
			if i < 0 {
				merged = append(merged, item)
			} else {
				merged[i] = merge(merged[i], item)
			}
		}
		return merged
	}
	return over
}

func named(list []any) bool {
	return !slices.ContainsFunc(list, func(item any) bool { return nameOf(item) == "" })
}

func nameOf(item any) string {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

// config is a node's configuration in a variant, with an overlay or none.
func (n *Node) config(variant, overlay string) map[string]any {
	config := any(n.Config)
	for _, over := range []map[string]any{n.N9[variant], n.Modes[variant], n.Overlays[overlay]} {
		if over != nil {
			config = merge(config, over)
		}
	}
	return config.(map[string]any) // merging mappings makes a mapping
}

// goOver goes over to a variant, if it is another one. Nodes that are kubelets
// are made anew for it: it is what their pods run in.
func (in *instance) goOver(ctx context.Context, variant string, progress *progress) error {
	switch {
	case in.state.Variant == variant:
		return nil
	case len(in.kubelets()) > 0:
		return in.upAnew(ctx, variant, progress)
	}
	return in.setVariant(ctx, variant)
}

// setVariant goes over to a variant, on one node after another.
func (in *instance) setVariant(ctx context.Context, name string) error {
	if name == kubeMode {
		if err := in.startAPIServer(ctx); err != nil {
			return err
		}
	}
	in.state.Variant = name
	if err := in.save(); err != nil {
		return err
	}
	for _, n := range in.Nodes {
		if !n.daemon() || len(n.N9)+len(n.Modes) == 0 {
			continue
		}
		if err := in.applyCulvert(ctx, n, ""); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	for _, n := range in.Nodes {
		if err := in.serve(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// nextVariant goes over to the lab's next variant, and back unless that one's
// turn is next anyway.
func (r *runner) nextVariant(ctx context.Context, _ *Event, o *outcome) error {
	from, all := r.state.Variant, r.names()
	to := all[(slices.Index(all, from)+1)%len(all)]
	o.say("%s to %s", from, to)
	if err := r.setVariant(ctx, to); err != nil {
		return err
	}
	if !r.back {
		return nil
	}
	time.Sleep(200 * time.Millisecond)
	o.say("and back")
	return r.setVariant(ctx, from)
}
