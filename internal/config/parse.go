package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Load parses the file at path, as Parse does.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration %s does not exist", path)
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(data)
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
	lines, err := Unmarshal(data, c)
	if err != nil {
		// References to resources that could not be read would only seem to
		// dangle.
		return nil, lines, err
	}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, lines, lines.Of(err)
	}
	return c, lines, nil
}

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
	}
	slices.SortStableFunc(list, func(a, b Error) int { return a.Line - b.Line })
	return list
}

// parent returns the path around a path: sids[3] for sids[3].next_hop, and sids for
// sids[3].
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
