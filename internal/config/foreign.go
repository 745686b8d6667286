package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// otherFields are fields that other programs' files have, or that newcomers look for, and what Culvert
// has in their place.
var otherFields = map[[2]string]string{
	of[Config]("pfcp"):               "write upf: {n4: [192.0.2.10]} with the addresses for PFCP",
	of[Config]("pfcp_address"):       "write upf: {n4: [192.0.2.10]} with the addresses for PFCP",
	of[Config]("n3_address"):         "write gtpu: {addresses: [192.0.2.1]} with where this node receives GTP-U",
	of[Config]("interface_name"):     "list each under interfaces, with its roles, such as {name: n6, roles: [n6]}",
	of[Config]("xdp_attach_mode"):    "remove it, or set mode of an entry of interfaces",
	of[Config]("api_address"):        "write api: {listen: \"127.0.0.1:8080\"}",
	of[Config]("metrics_address"):    "write metrics: {listen: \"127.0.0.1:9418\"}",
	of[Config]("logger"):             "write log: {level: info}",
	of[Config]("logging_level"):      "write log: {level: info}",
	of[Config]("dnnList"):            "write upf: {ue_pools: [{network_instance: internet, prefixes: [10.45.0.0/16]}]}",
	of[Config]("version"):            "remove it: the file has no version",
	of[Config]("description"):        "write it as a comment, behind #",
	of[BGP]("neighbors"):             "did you mean \"peers\"?",
	of[BGP]("neighbours"):            "did you mean \"peers\"?",
	of[BGP]("local_as"):              "did you mean \"asn\"?",
	of[BGPPeer]("remote_as"):         "did you mean \"asn\"?",
	of[BGPPeer]("peer_as"):           "did you mean \"asn\"?",
	of[BGPPeer]("ip"):                "did you mean \"address\"?",
	of[slice.Slice]("sst"):           "write snssai: {sst: 1, sd: \"000001\"}",
	of[slice.Slice]("sd"):            "write snssai: {sst: 1, sd: \"000001\"}",
	of[UPF]("pfcp"):                  "write n4: [192.0.2.10] with the addresses for PFCP",
	of[UPF]("gtpu"):                  "write gtpu: {addresses: [192.0.2.1]} at the first level, beside upf",
	of[UPF]("session"):               "write ue_pools: [{network_instance: internet, prefixes: [10.45.0.0/16]}]",
	of[UPF]("subnet"):                "write ue_pools: [{network_instance: internet, prefixes: [10.45.0.0/16]}]",
	of[GTPU]("ifList"):               "write addresses: [192.0.2.1] with where this node receives GTP-U",
	of[GTPU]("server"):               "write addresses: [192.0.2.1] with where this node receives GTP-U",
	of[GTPU]("forwarder"):            "remove it: eBPF forwards",
	of[GTPU]("port"):                 "remove it: GTP-U has port 2152",
	of[UEPool]("dnn"):                "did you mean \"network_instance\"?",
	of[UEPool]("apn"):                "did you mean \"network_instance\"?",
	of[UEPool]("cidr"):               "did you mean \"prefixes\"?",
	of[UEPool]("subnet"):             "did you mean \"prefixes\"?",
	of[UEPool]("gateway"):            "remove it: UEs need none",
	of[Interface]("vlan"):            "remove it, and name the kernel's VLAN interface (ip link add link eth1 name eth1.100 type vlan id 100)",
	of[Interface]("address"):         "remove it: the interface has its addresses from the kernel (ip address add)",
	of[Interface]("addresses"):       "remove it: the interface has its addresses from the kernel (ip address add)",
	of[Interface]("mtu"):             "remove it: the interface has its MTU from the kernel (ip link set mtu)",
	of[Interface]("type"):            "write roles: [n3], or what may enter by it",
	of[API]("port"):                  "write listen: \"127.0.0.1:8080\"",
	of[API]("address"):               "write listen: \"127.0.0.1:8080\"",
	of[Metrics]("port"):              "write listen: \"127.0.0.1:9418\"",
	of[Metrics]("enabled"):           "write listen: off for none, or an address such as 127.0.0.1:9418",
	of[srpolicy.Policy]("segments"):  "write segment_lists: [{segments: [\"2001:db8:1::\"]}]",
	of[srpolicy.Steering]("dst"):     "did you mean \"prefix\"?",
	of[srpolicy.Steering]("network"): "did you mean \"prefix\"?",
}

// unknown is the fix for a field that a mapping has and its struct t has not.
func unknown(mapping, key, item *yaml.Node, t reflect.Type) string {
	names := fieldNames(t)
	if fix := otherFields[[2]string{t.Name(), key.Value}]; fix != "" {
		return fix
	}
	if key.Value == "<<" {
		return "write the fields out: nothing is merged"
	}
	if mapping.Style&yaml.FlowStyle != 0 && item.Tag == "!!null" && item.Value == "" {
		return "write a list in brackets, as in [a, b]"
	}
	if item.Kind == yaml.MappingNode && len(item.Content) > 0 && slices.Contains(names, item.Content[0].Value) {
		return "remove this line, and indent what is below it less"
	}
	if fix := elsewhere(key.Value, t); fix != "" {
		return fix
	}
	return suggestOf(key.Value, names)
}

// elsewhere is the fix for a field that t does not have, nor one with a similar name, and the first level or one
// section has.
func elsewhere(name string, t reflect.Type) string {
	lower := strings.ToLower(name)
	if best := strings.ToLower(nearest(name, fieldNames(t))); best != "" && (strings.HasPrefix(best, lower) || editDistance(best, lower) <= 1) {
		return ""
	}
	if slices.Contains(fieldNames(reflect.TypeFor[Config]()), name) {
		return "write it at the first level, not indented"
	}
	if section := sectionWith(name); section != "" {
		return "write it below " + section + ":"
	}
	return ""
}

// meant is the field that an unknown one probably stands for, or "".
func meant(name string, t reflect.Type) string {
	fix, isOther := otherFields[[2]string{t.Name(), name}]
	if !isOther && elsewhere(name, t) == "" {
		return nearest(name, fieldNames(t))
	}
	if other, is := strings.CutPrefix(fix, "did you mean \""); is {
		return strings.TrimSuffix(other, "\"?")
	}
	return ""
}

// sectionWith is the one section that has a field of this name, or "".
func sectionWith(name string) string {
	found := ""
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if f.Type.Kind() == reflect.Struct && slices.Contains(fieldNames(f.Type), name) {
			if found != "" {
				return ""
			}
			found = fieldName(f)
		}
	}
	return found
}

// shorthand is the fix for a single value, or a list of them, where fields have to be: in braces with
// the name of the one field that takes it, or "".
func shorthand(n *yaml.Node, t reflect.Type) string {
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return ""
	}
	if m := snssai.FindStringSubmatch(n.Value); m != nil && t == reflect.TypeFor[slice.SNSSAI]() {
		return fmt.Sprintf("write {sst: %s, sd: %q}", m[1], m[2])
	}
	for _, takes := range []func(*yaml.Node, reflect.StructField) bool{readsAs, isTextOf} {
		var fits []string
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous && fieldName(f) != noField && takes(n, f) {
				fits = append(fits, fieldName(f)+": "+inline(n, f.Type.Kind() == reflect.Slice))
			}
		}
		if len(fits) == 1 {
			return "write {" + fits[0] + "}"
		}
		if len(fits) > 1 {
			return ""
		}
	}
	return ""
}

// snssai is an S-NSSAI in short.
var snssai = regexp.MustCompile(`^([0-9]+)-([0-9A-Fa-f]{6})$`)

// readsAs says whether a field of addresses, prefixes or numbers takes a node.
func readsAs(n *yaml.Node, f reflect.StructField) bool {
	d := &decoder{lines: Lines{}, in: f.Type}
	t := f.Type
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if k := t.Kind(); k == reflect.String || k == reflect.Bool || k == reflect.Struct && !reflect.PointerTo(t).Implements(textUnmarshaler) {
		return false
	}
	d.value(asList(n, f.Type), reflect.New(f.Type).Elem(), "")
	return len(d.list) == 0
}

// isTextOf says whether a field of text takes a node: one that has this value among few, or that stands
// for the whole.
func isTextOf(n *yaml.Node, f reflect.StructField) bool {
	isWhole := fieldName(f) == "name" || fieldName(f) == "listen"
	return f.Type.Kind() == reflect.String && n.Kind == yaml.ScalarNode && n.Tag == "!!str" && (isWhole || slices.Contains(enum(f), n.Value))
}

// valuesOf are the values that a field may have, if these are few.
func valuesOf(t reflect.Type, name string) []string {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && fieldName(f) == name {
			return enum(f)
		}
	}
	return nil
}

// enum are the values that a field may have, if these are few.
func enum(f reflect.StructField) (values []string) {
	for part := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		if value, is := strings.CutPrefix(part, "enum="); is {
			values = append(values, value)
		}
	}
	return values
}

// asList returns a single value as a list where t is one.
func asList(n *yaml.Node, t reflect.Type) *yaml.Node {
	if t.Kind() == reflect.Slice && n.Kind == yaml.ScalarNode {
		return &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}}
	}
	return n
}

// byName says whether a mapping has an entry of a list by each of its fields: n3: {roles: [n3]}.
func byName(n *yaml.Node, entry reflect.Type) bool {
	names := fieldNames(entry)
	return len(n.Content) > 1 && slices.Contains(names, "name") && !slices.Contains(names, n.Content[0].Value) && n.Content[1].Kind == yaml.MappingNode
}

// inline writes a single value or a list in one line. A text with commas is a list.
func inline(n *yaml.Node, list bool) string {
	if n.Kind == yaml.ScalarNode && !list {
		return quoted(n.Value)
	}
	var values []string
	if n.Kind == yaml.ScalarNode {
		for value := range strings.FieldsFuncSeq(n.Value, func(r rune) bool { return r == ',' || r == ';' || r == ' ' }) {
			values = append(values, quoted(value))
		}
		return "[" + strings.Join(values, ", ") + "]"
	}
	for _, c := range n.Content {
		values = append(values, quoted(c.Value))
	}
	return "[" + strings.Join(values, ", ") + "]"
}
