package config

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Set gives the field of c at path, such as "sids[0].next_hop", the value of a
// text that a user typed; a list has commas between its entries. It makes the
// entries and structs that the path leads through; a path that ends at one only
// makes it. Its error is Errors, like that of a file.
func Set(c *Config, path, text string) error {
	d := &decoder{lines: Lines{}}
	v, isHost := reflect.ValueOf(c).Elem(), false
	for step := range strings.SplitSeq(path, ".") {
		name, index, isEntry := strings.Cut(strings.TrimSuffix(step, "]"), "[")
		field, ok := fieldByName(v, name)
		if !ok {
			return Errors{{Field: path, Problem: "unknown field", Fix: suggest(name, fieldNames(v.Type()))}}
		}
		isHost = hostPrefix[[2]string{v.Type().Name(), name}]
		d.in, d.name = v.Type(), name
		if v = field; isEntry {
			n, err := strconv.Atoi(index)
			if err != nil {
				return Errors{{Field: path, Problem: "has an index that is not a number"}}
			}
			for v.Len() <= n {
				v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			}
			v = v.Index(n)
		}
		if v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
	}
	isText := v.Addr().Type().Implements(textUnmarshaler)
	if v.Kind() == reflect.Struct && !isText {
		return nil
	}
	n := typed(text, v)
	if isHost {
		n = asPrefix(n)
	}
	d.value(n, v, path)
	return d.problems.err()
}

var wholeNumber = regexp.MustCompile(`^-?(0x[0-9a-fA-F]+|[0-9]+)$`)

// typed is text as a value for v: the type of v decides what it is, which in a
// file the text itself does.
func typed(text string, v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch {
	case v.Addr().Type().Implements(textUnmarshaler), v.Kind() == reflect.String:
	case v.Kind() == reflect.Slice:
		n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				n.Content = append(n.Content, typed(part, reflect.New(v.Type().Elem()).Elem()))
			}
		}
	case v.Kind() == reflect.Bool:
		n.Tag = "!!bool"
	case wholeNumber.MatchString(text):
		n.Tag = "!!int"
	}
	return n
}
