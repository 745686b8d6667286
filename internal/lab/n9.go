package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// allN9 chooses every transport, one after another.
const allN9 = "all"

func (t *Topology) validateN9() error {
	for i, n := range t.Nodes {
		if err := t.wantN9(sortedKeys(n.N9)); err != nil {
			return fmt.Errorf("nodes[%d]: %w", i, err)
		}
	}
	return nil
}

// wantN9 wants the lab to have transports of these names.
func (t *Topology) wantN9(names []string) error {
	for _, name := range names {
		if !slices.Contains(t.N9, name) {
			return fmt.Errorf("n9: %q: the lab has %s", name, wordOr(strings.Join(t.N9, ", "), "none"))
		}
	}
	return nil
}

// concerns says whether what names is about the transport; no names are about all.
func concerns(n9 string, names []string) bool { return len(names) == 0 || slices.Contains(names, n9) }

// chosenN9 are the transports that a flag chooses; one without a name where the
// lab has none.
func (t *Topology) chosenN9(flag string) ([]string, error) {
	switch {
	case flag == "" || flag == allN9 && len(t.N9) > 0:
		if len(t.N9) == 0 {
			return []string{""}, nil
		}
		return t.N9, nil
	case len(t.N9) == 0:
		return nil, fmt.Errorf("--n9: lab %s has no transports to choose from", t.Name)
	case slices.Contains(t.N9, flag):
		return []string{flag}, nil
	}
	return nil, fmt.Errorf("--n9: %q: use %s or %s", flag, strings.Join(t.N9, ", "), allN9)
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

// config is a node's configuration in a transport, with an overlay or none.
func (n *Node) config(n9, overlay string) map[string]any {
	config := any(n.Config)
	for _, over := range []map[string]any{n.N9[n9], n.Overlays[overlay]} {
		if over != nil {
			config = merge(config, over)
		}
	}
	return config.(map[string]any) // merging mappings makes a mapping
}

// setN9 goes over to a transport, on one node after another.
func (in *instance) setN9(ctx context.Context, name string) error {
	in.state.N9 = name
	if err := in.save(); err != nil {
		return err
	}
	for _, n := range in.Nodes {
		if n.Kind != Culvert || len(n.N9) == 0 {
			continue
		}
		if err := in.applyCulvert(ctx, n, ""); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// nextN9 goes over to the lab's next transport, and back unless that one's turn
// is next anyway.
func (r *runner) nextN9(ctx context.Context, _ *Event, o *outcome) error {
	from := r.state.N9
	to := r.N9[(slices.Index(r.N9, from)+1)%len(r.N9)]
	o.say("%s to %s", from, to)
	if err := r.setN9(ctx, to); err != nil {
		return err
	}
	if !r.back {
		return nil
	}
	time.Sleep(200 * time.Millisecond)
	o.say("and back")
	return r.setN9(ctx, from)
}
