package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Load parses the file at path, as Parse does.
func Load(path string) (*Config, error) {
	c, _, err := LoadLines(path)
	return c, err
}

// LoadLines parses the file at path, as ParseLines does.
func LoadLines(path string) (*Config, Lines, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("configuration %s does not exist", path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	return ParseLines(data)
}

// Parse parses a whole configuration, YAML or JSON, sets the defaults and validates it.
// Its error is an Errors.
func Parse(data []byte) (*Config, error) {
	c, _, err := ParseLines(data)
	return c, err
}

// ParseLines is Parse for callers that check more, and want to report lines.
func ParseLines(data []byte) (*Config, Lines, error) {
	c := &Config{}
	lines, err := c.parse(data, (*Config).Validate)
	if err != nil {
		return nil, lines, err
	}
	return c, lines, nil
}

// Check returns all that is wrong with a configuration, as Errors; with onMachine also what
// the machine lacks that the process runs on.
func Check(data []byte, onMachine bool) error {
	checks := []func(*Config) error{(*Config).Validate}
	if onMachine {
		checks = append(checks, (*Config).CheckMachine)
	}
	_, err := (&Config{}).parse(data, checks...)
	return err
}

// parse fills in c from data, and checks what could be read. It stops at a check that cannot
// be made.
func (c *Config) parse(data []byte, checks ...func(*Config) error) (Lines, error) {
	d := decode(data, c)
	if d.isEmpty {
		return d.lines, Errors{{Line: 1, Problem: "the file is empty", Fix: "list interfaces and what the node does, as in docs/reference/configuration.md, or write {} for nothing"}}
	}
	if d.isBroken {
		return d.lines, d.err()
	}
	c.SetDefaults()
	list := append(d.list, replaced(d.zeros, c)...)
	for _, check := range checks {
		err := check(c)
		invalid, ok := errors.AsType[Errors](err)
		if err != nil && !ok {
			return d.lines, err
		}
		list = append(list, independent(invalid, d.list)...)
	}
	if len(list) == 0 {
		return d.lines, nil
	}
	return d.lines, d.lines.Of(list)
}

// replaced returns the fields with the number 0 for which the configuration has a default: who writes
// 0 means something else.
func replaced(zeros Errors, c *Config) (list Errors) {
	for _, e := range zeros {
		if now := valueAt(reflect.ValueOf(c).Elem(), e.Field); now.IsValid() && now.CanUint() && now.Uint() != 0 {
			e.Problem = "must not be 0"
			e.Fix = fmt.Sprintf("a larger number, or remove the field for the default, %d", now.Uint())
			list = append(list, e)
		}
	}
	return list
}

// valueAt returns the value of a field by its path.
func valueAt(v reflect.Value, path string) reflect.Value {
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		switch i, err := strconv.Atoi(part); {
		case v.Kind() == reflect.Struct:
			v, _ = fieldByName(v, part)
		case v.Kind() == reflect.Slice && err == nil && i < v.Len():
			v = v.Index(i)
		default:
			return reflect.Value{}
		}
	}
	return v
}

// independent returns the errors that are not about fields that could not be read, and do
// not follow from them.
func independent(list, unread Errors) Errors {
	if len(unread) == 0 {
		return list
	}
	at := map[string]bool{}     // fields that could not be read
	around := map[string]bool{} // the resources that they are in
	// unnamed are the lists of which not all resources' names could be read.
	unnamed := map[string]bool{}
	for _, u := range unread {
		at[u.Field] = true
		if of := resourceName.FindStringSubmatch(u.Field); of != nil {
			unnamed[of[1]] = true
		}
		for field := u.Field; field != ""; field = parent(field) {
			around[field] = true
		}
	}
	isIn := func(field string) bool {
		for ; field != ""; field = parent(field) {
			if at[field] {
				return true
			}
		}
		return false
	}
	return slices.DeleteFunc(slices.Clone(list), func(e Error) bool {
		isOfResource := strings.Contains(e.Field, "[") && around[e.Field]
		return isIn(e.Field) || isIn(e.rival) || isOfResource || unnamed[e.refers]
	})
}

// resourceName matches the path of a list of resources, of one of them, or of its name.
var resourceName = regexp.MustCompile(`^([a-z_]+)(\[[0-9]+\](\.name)?)?$`)

// Decode parses a configuration or a part of one, YAML or JSON, strictly. It sets no
// defaults and does not validate.
func Decode(data []byte) (*Config, error) {
	c := &Config{}
	if _, err := Unmarshal(data, c); err != nil {
		return nil, err
	}
	return c, nil
}

// Lines has the lines of a file's fields, by their paths.
type Lines map[string]int

// Of adds to each of err's Errors the line of its field or, if the field is missing,
// that of the nearest field around it. A resource that is not in the file has no line.
func (lines Lines) Of(err error) error {
	list, ok := errors.AsType[Errors](err)
	if !ok {
		return err
	}
	list = slices.Clone(list)
	for i := range list {
		for field := list[i].Field; field != "" && list[i].Line == 0; field = parent(field) {
			if list[i].Line = lines[field]; strings.HasSuffix(field, "]") && lines[field] == 0 {
				break
			}
		}
		if list[i].Line == 0 && list[i].cause != "" {
			list[i].Line = lines[list[i].cause]
		}
	}
	slices.SortStableFunc(list, func(a, b Error) int { return a.Line - b.Line })
	return list
}

// parent returns the path around a path: sids[3] for sids[3].next_hop, and sids for
// sids[3].
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
