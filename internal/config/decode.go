package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"reflect"
	"regexp"
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
	lines    Lines // of each field that is there
	isBroken bool  // no YAML: nothing is known about what it holds
	isEmpty  bool
	zeros    Errors // fields with the number 0
	// in and name are the field that is being read.
	in   reflect.Type
	name string
}

// Unmarshal parses one document of YAML or JSON into any struct whose fields have JSON
// names, as strictly as a configuration. Its error is an Errors. A field of interface
// type must hold a pointer to the value to fill in.
func Unmarshal(data []byte, into any) (Lines, error) {
	d := decode(data, into)
	return d.lines, d.err()
}

// decode is Unmarshal for callers that go on after an error. What cannot be read has the
// value that was probably meant, so that other fields do not seem to lack it.
func decode(data []byte, into any) *decoder {
	d := &decoder{lines: Lines{}, in: reflect.TypeOf(into).Elem()}
	if e, is := unreadable(data); is {
		d.isBroken, d.list = true, Errors{e}
		return d
	}
	var document, second yaml.Node
	parser := yaml.NewDecoder(bytes.NewReader(data))
	if err := parser.Decode(&document); err != nil {
		d.isEmpty = len(bytes.TrimSpace(data)) == 0 || errors.Is(err, io.EOF)
		if !d.isEmpty {
			d.salvage(data, into, err)
		}
		return d
	}
	if err := parser.Decode(&second); err == nil {
		d.fail(&second, "", "keep one, and remove the line ---", "a second YAML document")
		d.isBroken = true
	} else if !errors.Is(err, io.EOF) {
		d.salvage(data, into, err)
		return d
	}
	d.isEmpty = !d.isBroken && document.Content[0].Tag == "!!null"
	d.value(document.Content[0], reflect.ValueOf(into).Elem(), "")
	return d
}

// sectionStart is a line with a field of the file's first level.
var sectionStart = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*:(\s|$)`)

// salvage reads the sections of a document that as a whole is no YAML, one by one. Those that are
// none either are reported, and of the others what is wrong with them by itself.
func (d *decoder) salvage(data []byte, into any, whole error) {
	d.isBroken = true
	lines := slices.Collect(bytes.Lines(data))
	var starts []int
	for i, line := range lines {
		if sectionStart.Match(line) {
			starts = append(starts, i)
		}
	}
	found := false
	for i, start := range starts {
		end := len(lines)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		// Empty lines in place of what is above keep the numbers of lines.
		part := append(bytes.Repeat([]byte("\n"), start), bytes.Join(lines[start:end], nil)...)
		var document yaml.Node
		switch err := yaml.Unmarshal(part, &document); {
		case err == nil:
			d.value(document.Content[0], reflect.ValueOf(into).Elem(), "")
		case !strings.Contains(err.Error(), "unknown anchor"): // another section may have it
			found = true
			name, _, _ := strings.Cut(string(lines[start]), ":")
			d.syntax(err, name, lines[start:end], start+1)
		}
	}
	if !found {
		d.syntax(whole, "", lines, 1)
	}
}

// syntax parses an error of the YAML library, "yaml: line 3: ...", about a section that has these
// lines, the first of which is line first of the file.
func (d *decoder) syntax(err error, section string, lines [][]byte, first int) {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	line := first
	if n, _ := fmt.Sscanf(problem, "line %d:", &line); n == 1 {
		_, problem, _ = strings.Cut(problem, ": ")
		if slices.ContainsFunc(countedFromZero, func(end string) bool { return strings.HasSuffix(problem, end) }) {
			line++
		}
	}
	unchecked := "the rest of the file"
	if section != "" {
		unchecked = "the rest of " + section + ", and what other sections say of it,"
	}
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = string(l)
	}
	line, fix := hint(texts, first, line, problem)
	if fix == "" {
		fix = "check the indentation and the quotes at this line and above it"
	}
	d.list = append(d.list, Error{Line: line, Field: section, Problem: "not YAML: " + problem, Fix: fix + "; " + unchecked + " was not checked"})
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
	n = d.typed(n, path)
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n, path, "write the value out", "aliases (*%s) are not supported", n.Value)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
	case v.Type() == reflect.TypeFor[Senders]() && isAny(n):
		v.Set(reflect.ValueOf(Anyone()))
	case v.Type() == reflect.TypeFor[HostList]() && isAny(n):
		v.Set(reflect.ValueOf(HostList{hostAny}))
	case v.Type() == reflect.TypeFor[Switch]() && n.Kind == yaml.ScalarNode && n.Tag == "!!bool":
		v.Set(reflect.ValueOf(switchOf(n.Value)))
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

// typed returns a value without what a keyboard does not have.
func (d *decoder) typed(n *yaml.Node, path string) *yaml.Node {
	text, strange := plain(n.Value)
	if n.Kind != yaml.ScalarNode || strange == 0 {
		return n
	}
	d.fail(n, path, keyboardFix(quoted(text), strange), "%q has %s", n.Value, strangeName(strange))
	out := *n
	out.Value, out.Tag = text, ""
	out.Tag = out.ShortTag() // a number may be among the quotes
	return &out
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		isEntry := v.Type().Elem().Kind() == reflect.Struct && !reflect.PointerTo(v.Type().Elem()).Implements(textUnmarshaler)
		fix := "write each entry in a line that starts with -"
		switch {
		case n.Kind == yaml.ScalarNode && !isEntry:
			fix = "write " + inline(n, true)
		case n.Kind == yaml.MappingNode && isEntry && byName(n, v.Type().Elem()):
			fix = "write - {name: " + quoted(n.Content[0].Value) + ", ...} in place of " + n.Content[0].Value + ":, and so each"
		}
		d.fail(n, path, fix, "must be a list, is %s", describe(n))
		if n.Kind != yaml.MappingNode && isEntry {
			return
		}
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}}
		defer func(known int) { d.list = d.list[:known] }(len(d.list)) // one error is enough
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

// labels decodes a map, whose keys are text or have a text.
func (d *decoder) labels(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "write each as key: value", "must hold labels, is %s", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at, known := join(path, key.Value), len(d.list)
		index := reflect.New(v.Type().Key()).Elem()
		if d.value(key, index, at); len(d.list) > known {
			continue
		}
		if v.MapIndex(index).IsValid() {
			d.fail(key, at, "keep one of the two", "appears twice")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(item, value, at)
		v.SetMapIndex(index, value)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		fix := shorthand(n, v.Type())
		if fix == "" {
			fix = "fields are: " + strings.Join(fieldNames(v.Type()), ", ")
		}
		d.fail(n, path, fix, "must hold fields, is %s", describe(n))
		return
	}
	seen := map[string]int{}
	var strangers []*yaml.Node // key and value of each
	content := d.joinThousands(n.Content, path)
	for i := 0; i+1 < len(content); i += 2 {
		key, item := d.key(content[i], content[i+1], v, path)
		at := join(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			d.fail(key, at, "keep one of the two", "appears twice, first in line %d", line)
			continue
		}
		seen[key.Value] = key.Line
		if fix, former := formerFields[[2]string{v.Type().Name(), key.Value}]; former {
			d.fail(key, at, fix, "this field is no more")
			continue
		}
		if _, ok := fieldByName(v, key.Value); !ok {
			d.fail(key, at, unknown(n, key, item, v.Type()), "unknown field")
			strangers = append(strangers, key, item)
			continue
		}
		d.field(key, item, v, path, key.Value)
	}
	for i := 0; i < len(strangers); i += 2 {
		name := meant(strangers[i].Value, v.Type())
		if _, isThere := seen[name]; name != "" && !isThere {
			seen[name] = strangers[i].Line
			d.field(strangers[i], strangers[i+1], v, path, name)
		}
	}
}

// key returns a field of v and its value as they were meant: without typographic quotes, and apart where
// the space behind the colon is missing.
func (d *decoder) key(key, item *yaml.Node, v reflect.Value, path string) (_, _ *yaml.Node) {
	if text, strange := plain(key.Value); strange != 0 {
		d.fail(key, join(path, text), keyboardFix(text, strange), "%q has %s", key.Value, strangeName(strange))
		typed := *key
		typed.Value = text
		key = &typed
	}
	name, rest, cut := strings.Cut(key.Value, ":")
	if _, isField := fieldByName(v, name); cut && isField && item.Tag == "!!null" {
		d.fail(key, join(path, name), "write "+name+": "+rest, "a space is missing behind the colon")
		name := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: key.Line}
		value := yaml.Node{Kind: yaml.ScalarNode, Value: rest, Line: key.Line}
		value.Tag = value.ShortTag()
		return &name, &value
	}
	return key, item
}

// field decodes the value of a struct's field.
func (d *decoder) field(key, item *yaml.Node, v reflect.Value, path, name string) {
	field, _ := fieldByName(v, name)
	d.in, d.name = v.Type(), name
	if hostPrefix[[2]string{v.Type().Name(), name}] {
		item = asPrefix(item)
	}
	at := join(path, name)
	d.value(item, field, at)
	d.lines[at] = key.Line
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
	if n.Kind != yaml.ScalarNode {
		_, fix := refusedText(v, "")
		if n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode { // {{ ... }}
			fix = template
		}
		d.fail(n, path, fix, "must be a single value, is %s", describe(n))
		guess(v, "")
		return
	}
	err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value))
	if err == nil && n.Value == "" {
		err = errors.New("is empty")
	}
	if err == nil {
		return
	}
	problem, fix := refusedText(v, n.Value)
	if problem == "" { // a type whose error names the valid values
		problem = err.Error()
	}
	d.fail(n, path, fix, "%s", problem)
	guess(v, n.Value)
}

// refusedText says what is wrong with the text of an address, a prefix or a name of a
// standard, and the fix.
func refusedText(v reflect.Value, text string) (problem, fix string) {
	switch v.Interface().(type) {
	case netip.Addr:
		problem, fix = fmt.Sprintf("%q is not an IP address", text), "an address such as 2001:db8::1 or 192.0.2.1"
		if a := addressIn(text); a.IsValid() {
			fix = "write " + quoted(a.String())
		}
		return problem, fix
	case netip.Prefix:
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			return fmt.Sprintf("%q is not a prefix: its length is missing", text), fmt.Sprintf("write %s/%d for this one address, or a prefix such as 2001:db8:1::/48 or 192.0.2.0/24", a, a.BitLen())
		}
		problem, fix = fmt.Sprintf("%q is not a prefix", text), "a prefix with its length, such as 2001:db8:1::/48 or 192.0.2.0/24"
		if p := prefixIn(text); p.IsValid() {
			fix = "write " + quoted(p.String())
		}
		return problem, fix
	case srv6.Behavior:
		if other := otherNames[strings.ToLower(text)]; other != "" {
			return fmt.Sprintf("%q is not a name of RFC 8986", text), "write behavior: " + other
		}
		return fmt.Sprintf("%q is not a behaviour", text), suggestOf(text, namesOf(srv6.Behaviors()))
	case srv6.Flavor:
		return fmt.Sprintf("%q is not a flavor", text), suggestOf(text, namesOf(srv6.Flavors()))
	case srv6.PDUType:
		return fmt.Sprintf("%q is not a PDU type", text), suggestOf(text, namesOf(srv6.PDUTypes()))
	case CPUs:
		return fmt.Sprintf("%q are not numbers of CPUs", text), "numbers such as 2-7 or \"0,2-3\"; leave cpus out for all"
	case srv6.ContainerType:
		return fmt.Sprintf("%q is not a type of PDU Session Container", text), suggestOf(text, namesOf(srv6.ContainerTypes()))
	}
	return "", ""
}

// otherNames are names of behaviours that other documents and programs use, in lower case:
// those of NEXT-C-SIDs (RFC 9800), and those of drafts before RFC 8986 and RFC 9433.
var otherNames = map[string]string{
	"un": "End, flavors: [NEXT-C-SID]", "ua": "End.X, flavors: [NEXT-C-SID]",
	"udt4": "End.DT4", "udt6": "End.DT6", "udt46": "End.DT46", "udx4": "End.DX4", "udx6": "End.DX6", "udx2": "End.DX2",
	"t.encaps": "H.Encaps", "t.encaps.red": "H.Encaps.Red", "t.encaps.l2": "H.Encaps.L2", "t.encaps.l2.red": "H.Encaps.L2.Red",
	"m.gtp4.e": "End.M.GTP4.E", "m.gtp6.d": "End.M.GTP6.D", "m.gtp6.e": "End.M.GTP6.E",
	"t.m.gtp4.d": "H.M.GTP4.D", "end.m.gtp4.d": "H.M.GTP4.D", "t.m.tmap": "H.M.GTP4.D",
}

// guess gives v the value that a text which cannot be read probably means.
func guess(v reflect.Value, text string) {
	isIPv6 := strings.Contains(text, ":")
	switch into := v.Addr().Interface().(type) {
	case *netip.Addr:
		*into = netip.AddrFrom4([4]byte{192, 0, 2, 1})
		if isIPv6 {
			*into = netip.MustParseAddr("2001:db8::1")
		}
	case *netip.Prefix:
		*into = netip.MustParsePrefix("192.0.2.0/24")
		if isIPv6 {
			*into = netip.MustParsePrefix("2001:db8:1::/48")
		}
		if a, err := netip.ParseAddr(text); err == nil {
			*into = host(a.WithZone(""))
		}
	case *srv6.Behavior:
		name, _, _ := strings.Cut(otherNames[strings.ToLower(text)], ",")
		if name == "" {
			name = nearest(text, namesOf(srv6.Behaviors()))
		}
		*into, _ = srv6.ParseBehavior(name)
	}
}

// addressIn is the address in a text that also has a port or a length.
func addressIn(text string) netip.Addr {
	if p, err := netip.ParseAddrPort(text); err == nil {
		return p.Addr()
	}
	p, _ := netip.ParsePrefix(text)
	return p.Addr()
}

// prefixIn is the prefix in a text that has a mask in place of a length, or an address with a port.
func prefixIn(text string) netip.Prefix {
	if p, err := netip.ParseAddrPort(text); err == nil {
		return netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
	}
	address, mask, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	m, notMask := netip.ParseAddr(mask)
	if err != nil || notMask != nil || !a.Is4() || !m.Is4() {
		return netip.Prefix{}
	}
	length, _ := net.IPMask(m.AsSlice()).Size() // 0 for one with holes, which only /0 is like
	if length == 0 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, length)
}

func namesOf[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}

// quoted returns text as a value of YAML.
func quoted(text string) string {
	if strings.ContainsAny(text, ":#{}[],&*!|>'\"%@`") {
		return strconv.Quote(text)
	}
	return text
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
