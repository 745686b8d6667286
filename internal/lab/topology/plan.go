package topology

import (
	"regexp"
)

// Planned is a check in one of the lab's variants, or in none.
type Planned struct {
	*Check
	Variant string
	Family  string // of the addresses that names in it stand for
}

// Title tells checks of several variants and families apart.
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

// families in which the check is made, one without a name where it names nobody.
func (c *Check) families() []string {
	switch {
	case c.ToName == "":
		return []string{""}
	case len(c.Families) == 0:
		return []string{IPv4, IPv6}
	}
	return c.Families
}

// Plan is all checks that match only (nil: any), in order.
func (t *Topology) Plan(variants []string, only *regexp.Regexp) (list []Planned) {
	for _, name := range variants {
		for i := range t.Checks {
			for _, family := range t.Checks[i].families() {
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
