package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
)

func checkTrafficClasses(v *validator) {
	names, valid := v.unique(), true
	for i, c := range v.TrafficClasses {
		at := fmt.Sprintf("traffic_classes[%d]", i)
		errs := c.Validate()
		valid = valid && len(errs) == 0
		v.fields(at, errs)
		if v.Overlay.IsSet() {
			carries := overlay.ReservedFor(c.Color, v.Overlay.Tenants)
			v.refuse(carries != "", at+".color", overlay.ReservedFix, "%d is reserved: policies of this color carry %s", c.Color, carries)
		}
		names.check(at+".name", c.Name, "give each class its own name")
		v.refuse(c.Match.Host && !v.Overlay.IsSet(), at+".match.host", "configure overlay, or leave host out",
			"this node is in no cluster: its own packets take the kernel's routes, not policies")
		for j, name := range c.Match.Interfaces {
			if v.interfaces[name] == nil {
				missing(&v.problems, fmt.Sprintf("%s.match.interfaces[%d]", at, j), name, "interfaces", slices.Collect(maps.Keys(v.interfaces)),
					"%q is not among the interfaces", name)
			}
		}
		checkSlicesOfClass(v, at+".match.slices", c.Match.Slices)
	}
	for _, c := range class.Conflicts(v.TrafficClasses) {
		v.add(fmt.Sprintf("traffic_classes[%d].priority", c.Second), "give one of the two a higher priority",
			"%s are in class %q too, which has the same priority", c.Example, v.TrafficClasses[c.First].Name)
		v.list[len(v.list)-1].rival = fmt.Sprintf("traffic_classes[%d]", c.First)
		valid = false
	}
	if !valid {
		return
	}
	table, err := class.Compile(v.TrafficClasses, nil)
	if err != nil {
		v.add("traffic_classes", "write fewer classes", "%s", err)
		return
	}
	origins := 0
	for name := range v.interfaces {
		origins += table.CountOrigins(name)
	}
	v.refuse(origins > class.MaxOrigins, "traffic_classes", "write fewer or shorter lists of vlans and sources, or name the interfaces",
		"their vlans and sources combine in up to %d ways on the interfaces, at most %d", origins, class.MaxOrigins)
}

// checkSlicesOfClass checks that sessions of slices take policies, which a class can replace.
func checkSlicesOfClass(v *validator, at string, names []string) {
	known := map[string]*slice.Slice{}
	for i := range v.Slices {
		known[v.Slices[i].Name] = &v.Slices[i]
	}
	for i, name := range names {
		at, of := fmt.Sprintf("%s[%d]", at, i), known[name]
		if of == nil {
			missing(&v.problems, at, name, "slices", slices.Collect(maps.Keys(known)), "slice %q does not exist", name)
			continue
		}
		v.refuse(len(of.Policies()) == 0, at, "set uplink_policy or downlink_policy of its n9", "packets of slice %q take no policy", name)
	}
}
