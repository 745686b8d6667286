package topology

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// KubeMode is the mode that needs a Kubernetes API.
const KubeMode = "kube"

// AllVariants chooses every variant, one after another.
const AllVariants = "all"

// Variants are what a lab may have several of: transports of N9, or modes of an
// overlay's control plane. Its checks are made in each of them.
type Variants struct {
	N9    []string `json:"n9,omitempty"`
	Modes []string `json:"modes,omitempty"`
}

// VariantNames of the variants, of whatever they are.
func (v Variants) VariantNames() []string { return slices.Concat(v.N9, v.Modes) }

// VariantWord is what they are called in a flag and in messages.
func (v Variants) VariantWord() string {
	if len(v.Modes) > 0 {
		return "mode"
	}
	return "n9"
}

// Concern says whether what names them is about the variant; no names are about
// all.
func (v Variants) Concern(variant string) bool {
	return len(v.VariantNames()) == 0 || slices.Contains(v.VariantNames(), variant)
}

// hasVariants is an error unless the lab has all of them.
func (t *Topology) hasVariants(v Variants) error {
	return cmp.Or(allOf("n9", v.N9, t.N9), allOf("modes", v.Modes, t.Modes))
}

// keys of a map, sorted.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// WantVariant wants the lab to have the one.
func (t *Topology) WantVariant(name string) error {
	return allOf(t.VariantWord(), []string{name}, t.VariantNames())
}

// allOf is an error unless the lab has all of the names.
func allOf(word string, names, has []string) error {
	for _, name := range names {
		if !slices.Contains(has, name) {
			return fmt.Errorf("%s: %q: the lab has %s", word, name, cmp.Or(strings.Join(has, ", "), "none"))
		}
	}
	return nil
}

// ChosenVariants are those that the flag word chooses with a value; one without
// a name where the lab has none.
func (t *Topology) ChosenVariants(word, value string) ([]string, error) {
	names := t.VariantNames()
	switch {
	case value != "" && (len(names) == 0 || word != t.VariantWord()):
		return nil, fmt.Errorf("--%s: lab %s has nothing of it to choose from", word, t.Name)
	case len(names) == 0:
		return []string{""}, nil
	case value == "" || value == AllVariants:
		return names, nil
	case slices.Contains(names, value):
		return []string{value}, nil
	}
	return nil, fmt.Errorf("--%s: %q: use %s or %s", word, value, strings.Join(names, ", "), AllVariants)
}

// Merge lays one configuration over another: mappings are merged, and so are
// lists of mappings that have names; everything else is replaced. Neither is
// changed.
func Merge(base, over any) any {
	switch over := over.(type) {
	case map[string]any:
		under, ok := base.(map[string]any)
		if !ok {
			return over
		}
		merged := maps.Clone(under)
		for key, value := range over {
			merged[key] = Merge(under[key], value)
		}
		return merged
	case []any:
		under, ok := base.([]any)
		if !ok || !named(under) || !named(over) {
			return over
		}
		merged := slices.Clone(under)
		for _, item := range over {
			i := slices.IndexFunc(merged, func(m any) bool { return NameOf(m) == NameOf(item) })
			if i < 0 {
				merged = append(merged, item)
			} else {
				merged[i] = Merge(merged[i], item)
			}
		}
		return merged
	}
	return over
}

func named(list []any) bool {
	return !slices.ContainsFunc(list, func(item any) bool { return NameOf(item) == "" })
}

// NameOf is the name of an item of a list, "" if it has none.
func NameOf(item any) string {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

// ConfigIn is a node's configuration in a variant, with an overlay or none.
func (n *Node) ConfigIn(variant, overlay string) map[string]any {
	config := any(n.Config)
	for _, over := range []map[string]any{n.N9[variant], n.Modes[variant], n.Overlays[overlay]} {
		if over != nil {
			config = Merge(config, over)
		}
	}
	return config.(map[string]any) // merging mappings makes a mapping
}

// Planned is a check in one of the lab's variants, or in none.
type Planned struct {
	*Check
	Variant string
	Family  string // of the addresses that names in it stand for
}

// Title is the name of the check with its variant and family.
func (p Planned) Title() string {
	name := p.Name
	if p.Family != "" {
		name += map[string]string{IPv4: ", IPv4", IPv6: ", IPv6"}[p.Family]
	}
	if p.Variant == "" {
		return name
	}
	return p.Variant + ": " + name
}

// Plan is all checks that match only (nil: any), in order.
func (t *Topology) Plan(variants []string, only *regexp.Regexp) (list []Planned) {
	for _, name := range variants {
		for i := range t.Checks {
			families := t.Checks[i].Families
			if t.Checks[i].ToName == "" { // it names nobody
				families = []string{""}
			} else if families == nil {
				families = []string{IPv4, IPv6}
			}
			for _, family := range families {
				if (name == IPv4 || name == IPv6) && family != "" && family != name {
					continue // a cluster of one family has no other
				}
				p := Planned{&t.Checks[i], name, family}
				if p.Concern(name) && (only == nil || only.MatchString(p.Title())) {
					list = append(list, p)
				}
			}
		}
	}
	return list
}
