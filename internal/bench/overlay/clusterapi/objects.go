package clusterapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Object is one as the API has it.
type Object = map[string]any

// place is where objects are: a collection, all of its namespaces together, and one in it.
type place struct {
	collection      string // as nodes, or networking.k8s.io/networkpolicies
	namespace, name string
}

// placeOf reads the path of a request.
func placeOf(path string) (p place, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1]+"/", parts[3:]
	default:
		return p, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.collection = group + parts[0]
	if len(parts) > 1 {
		p.name = parts[1]
	}
	return p, true
}

// holds says whether an object is at the place.
func (p place) holds(e event) bool {
	return e.at.collection == p.collection && (p.namespace == "" || e.at.namespace == p.namespace) && (p.name == "" || e.at.name == p.name)
}

// selector are the conditions of a request's fieldSelector or labelSelector: values by path, or by
// label.
type selector map[string]string

func selectorOf(text string) selector {
	s := selector{}
	for condition := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(condition, "="); ok {
			s[name] = strings.TrimPrefix(value, "=")
		}
	}
	return s
}

// matches says whether an object has what fields, by path, and labels ask for.
func matches(o Object, fields, labels selector) bool {
	for path, want := range fields {
		if text(o, strings.Split(path, ".")...) != want {
			return false
		}
	}
	has, _ := field(o, "metadata", "labels").(map[string]any)
	for name, want := range labels {
		if value, there := has[name]; !there || value != want {
			return false
		}
	}
	return true
}

func field(o Object, path ...string) (value any) {
	value = o
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

func text(o Object, path ...string) string {
	s, _ := field(o, path...).(string)
	return s
}

// merged is an object with a merge patch (RFC 7396) of fields, neither of which changes.
func merged(o, patch Object) Object {
	out := maps.Clone(o)
	if out == nil {
		out = Object{}
	}
	for name, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(out, name)
		case isMap:
			before, _ := out[name].(map[string]any)
			out[name] = merged(before, inner)
		default:
			out[name] = value
		}
	}
	return out
}

// versioned is the object with a version, and its version as its UID unless it has one.
func versioned(o Object, version int) Object {
	n := strconv.Itoa(version)
	meta := Object{"resourceVersion": n}
	if text(o, "metadata", "uid") == "" {
		meta["uid"] = fmt.Sprintf("00000000-0000-0000-0000-%012d", version)
	}
	return merged(o, Object{"metadata": meta})
}

// sorted are the objects of a map, by key.
func sorted(m map[place]Object) (list []Object) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b place) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	for _, k := range keys {
		list = append(list, m[k])
	}
	return list
}
