package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// decoder walks a YAML tree and the Go types side by side. The decoders of libraries
// stop at the first error, do not know lines, or accept input that is nearly right.
// An operator wants all errors at once.
type decoder struct {
	problems
	lines Lines // of each field that is there
}

// Unmarshal parses one document of YAML or JSON into any struct whose fields have JSON
// names, as strictly as a configuration. Its error is an Errors. A field of interface
// type must hold a pointer to the value to fill in.
func Unmarshal(data []byte, into any) (Lines, error) {
	d := &decoder{lines: Lines{}}
	var document, second yaml.Node
	parser := yaml.NewDecoder(bytes.NewReader(data))
	if err := parser.Decode(&document); err != nil {
		if len(bytes.TrimSpace(data)) > 0 && !errors.Is(err, io.EOF) {
			d.syntax(err)
		}
		return d.lines, d.err()
	}
	if err := parser.Decode(&second); err == nil {
		d.fail(&second, "", "keep one, and remove the line ---", "a second YAML document")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	d.value(document.Content[0], reflect.ValueOf(into).Elem(), "")
	return d.lines, d.err()
}

// syntax parses an error of the YAML library, "yaml: line 3: ...".
func (d *decoder) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	e := Error{Problem: "not YAML: " + text, Fix: "check the indentation and the quotes at this line and above it"}
	var line int
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		e.Line = line
		_, rest, _ := strings.Cut(text, ": ")
		e.Problem = "not YAML: " + rest
		if slices.ContainsFunc(countedFromZero, func(end string) bool { return strings.HasSuffix(rest, end) }) {
			e.Line++
		}
	}
	d.list = append(d.list, e)
}

// countedFromZero has the endings of errors from the YAML library's parser, which
// counts lines from 0. Its scanner counts them from 1.
var countedFromZero = []string{
	"expected key", "expected '-' indicator", "expected node content",
	"expected ',' or ']'", "expected ',' or '}'", "expected <document start>",
}

func (d *decoder) fail(n *yaml.Node, path, fix, format string, args ...any) {
	d.list = append(d.list, Error{Line: n.Line, Field: path, Problem: fmt.Sprintf(format, args...), Fix: fix})
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// value decodes n into v. A null leaves v unchanged, as if the field were missing.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if path != "" {
		d.lines[path] = n.Line
	}
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n, path, "write the value out", "aliases (*%s) are not supported", n.Value)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
	case v.Type() == reflect.TypeFor[Senders]() && isAny(n):
		v.Set(reflect.ValueOf(Anyone()))
	case v.Type() == reflect.TypeFor[HostList]() && isAny(n):
		v.Set(reflect.ValueOf(HostList{hostAny}))
	case v.Kind() == reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), path)
		v.Set(p)
	case v.Kind() == reflect.Interface && !v.IsNil(): // a pointer to what it may be
		d.value(n, v.Elem().Elem(), path)
	case v.Addr().Type().Implements(textUnmarshaler):
		d.text(n, v, path)
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Slice:
		d.sequence(n, v, path)
	case v.Kind() == reflect.Map:
		d.labels(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, "write each entry in a line that starts with -", "must be a list, is %s", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.Tag == "!!null" {
			d.fail(item, at, "remove the line, or complete it", "the entry is empty")
			continue
		}
		d.value(item, v.Index(i), at)
	}
}

// labels decodes a map of text to text.
func (d *decoder) labels(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "write each as key: value", "must hold labels, is %s", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		if v.MapIndex(reflect.ValueOf(key.Value)).IsValid() {
			d.fail(key, at, "keep one of the two", "appears twice")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(item, value, at)
		v.SetMapIndex(reflect.ValueOf(key.Value), value)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "fields are: "+strings.Join(fieldNames(v.Type()), ", "), "must hold fields, is %s", describe(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			d.fail(key, at, "keep one of the two", "appears twice, first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		field, ok := fieldByName(v, key.Value)
		if fix, former := formerFields[[2]string{v.Type().Name(), key.Value}]; former {
			d.fail(key, at, fix, "this field is no more")
			continue
		}
		if !ok {
			d.fail(key, at, suggest(key.Value, fieldNames(v.Type())), "unknown field")
			continue
		}
		if hostPrefix[[2]string{v.Type().Name(), key.Value}] {
			item = asPrefix(item)
		}
		d.value(item, field, at)
		d.lines[at] = key.Line
	}
}

// formerFields has what takes the place of fields that earlier versions had.
var formerFields = map[[2]string]string{
	{reflect.TypeFor[Interface]().Name(), "external"}: "say roles: [edge]",
}

// hostPrefix lists the prefixes that may be written as an address: they can mean only
// that address.
var hostPrefix = map[[2]string]bool{
	{reflect.TypeFor[srv6.LocalSID]().Name(), "sid"}:        true,
	{reflect.TypeFor[srpolicy.Steering]().Name(), "prefix"}: true,
}

func asPrefix(n *yaml.Node) *yaml.Node {
	addr, err := netip.ParseAddr(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || addr.Zone() != "" {
		return n
	}
	prefix := *n
	prefix.Value = netip.PrefixFrom(addr, addr.BitLen()).String()
	return &prefix
}

// text decodes addresses, prefixes, and the standards' names.
func (d *decoder) text(n *yaml.Node, v reflect.Value, path string) {
	fix, wanted := "", ""
	switch v.Interface().(type) {
	case netip.Addr:
		fix, wanted = "an address such as 2001:db8::1 or 192.0.2.1", "an IP address"
	case netip.Prefix:
		fix, wanted = "a prefix with its length, such as 2001:db8:1::/48 or 192.0.2.0/24", "a prefix"
	}
	if n.Kind != yaml.ScalarNode {
		d.fail(n, path, fix, "must be a single value, is %s", describe(n))
		return
	}
	err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value))
	if err == nil && n.Value == "" {
		err = errors.New("is empty")
	}
	switch {
	case err != nil && wanted != "":
		d.fail(n, path, fix, "%q is not %s", n.Value, wanted)
	case err != nil: // it names the valid values
		d.fail(n, path, "", "%v", err)
	}
}

// scalar decodes strings, truth values and numbers. Config has no other kinds, which
// a test checks.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	into := v.Addr().Interface()
	switch v.Kind() {
	case reflect.String:
		switch {
		case n.Kind != yaml.ScalarNode:
			d.fail(n, path, "write one value", "must be text, is %s", describe(n))
		case n.Tag != "!!str":
			d.fail(n, path, fmt.Sprintf("quote it: %q", n.Value), "must be text, is %s", describe(n))
		default:
			v.SetString(n.Value)
		}
	case reflect.Bool:
		if n.Tag != "!!bool" || n.Decode(into) != nil {
			d.fail(n, path, "true or false", "must be true or false, is %s", describe(n))
		}
	case reflect.Float64:
		if n.Tag != "!!float" && n.Tag != "!!int" || n.Decode(into) != nil || math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			d.fail(n, path, "a number such as 0.5", "must be a number, is %s", describe(n))
		}
	case reflect.Int:
		if n.Tag != "!!int" || n.Decode(into) != nil {
			d.fail(n, path, "a whole number", "must be a whole number, is %s", describe(n))
		}
	default: // an unsigned number
		most := uint64(1)<<v.Type().Bits() - 1
		fix := fmt.Sprintf("a whole number from 0 to %d", most)
		value, err := strconv.ParseUint(n.Value, 0, 64)
		switch {
		case n.Kind != yaml.ScalarNode || n.Tag != "!!int":
			d.fail(n, path, fix, "must be a number, is %s", describe(n))
		case err != nil || value > most:
			d.fail(n, path, fix, "%s is out of range", n.Value)
		default:
			v.SetUint(value)
		}
	}
}

// describe says what a node is, for errors like "must be X, is Y".
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a set of fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!str":
		return fmt.Sprintf("the text %q", n.Value)
	case n.Tag == "!!bool":
		return "the truth value " + n.Value
	case n.Tag == "!!int", n.Tag == "!!float":
		return "the number " + n.Value
	}
	return n.Value
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// fieldName returns the name of a struct field in files: its JSON name.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// noField is the tag of what a struct holds besides its fields, as in encoding/json.
const noField = "-"

// fieldNames returns the names of a struct's fields, and of those of embedded structs.
func fieldNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && fieldName(f) != noField {
			names = append(names, fieldName(f))
		}
	}
	return names
}

func fieldByName(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.Anonymous && fieldName(f) == name && name != noField {
			return v.Field(i), true
		}
		if f.Anonymous {
			if inner, ok := fieldByName(v.Field(i), name); ok {
				return inner, true
			}
		}
	}
	return reflect.Value{}, false
}
