package config

import (
	"fmt"
	"maps"
	"slices"
)

// CheckInterfaces says which interfaces of c are not among those that the
// machine has. It is apart from Validate since a file may be checked elsewhere
// than where it is for.
func (c *Config) CheckInterfaces(have []string) error {
	var p problems
	exists := map[string]bool{}
	for _, name := range have {
		exists[name] = true
	}
	known := slices.Collect(maps.Keys(exists))
	check := func(field, name string) {
		if name != "" && !exists[name] {
			p.add(field, suggest(name, known), "there is no interface %q on this machine", name)
		}
	}
	for i, in := range c.Interfaces {
		check(fmt.Sprintf("interfaces[%d].name", i), in.Name)
	}
	for i, s := range c.SIDs {
		check(fmt.Sprintf("sids[%d].interface", i), s.Interface)
	}
	return p.err()
}
