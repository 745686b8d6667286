package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Load reads the file at path, as Parse does.
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

// Parse reads a whole configuration, YAML or JSON, sets the defaults and
// validates it. Whatever there is to say about the file is in the Errors that
// it returns.
func Parse(data []byte) (*Config, error) {
	c, _, err := ParseLines(data)
	return c, err
}

// ParseLines is Parse for who has more to say about the configuration and
// wants to say in which line.
func ParseLines(data []byte) (*Config, Lines, error) {
	c, lines, problems := decode(data)
	if len(problems.list) > 0 {
		// What could not be read cannot be judged: a reference to it would
		// only seem to dangle.
		return nil, lines, problems.err()
	}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		return nil, lines, lines.Of(err)
	}
	return c, lines, nil
}

// Decode reads a configuration, or a part of one, YAML or JSON: strictly, but
// without defaults and without asking whether it makes sense.
func Decode(data []byte) (*Config, error) {
	c, _, problems := decode(data)
	if err := problems.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Unmarshal reads YAML or JSON into any struct whose fields have JSON names, as
// strictly as a configuration: all that is wrong is in the Errors. A field of
// interface type must hold a pointer to what it is read into.
func Unmarshal(data []byte, into any) (Lines, error) {
	lines, problems := decodeInto(data, into)
	return lines, problems.err()
}

// Lines are where the fields of a file stand, by their paths.
type Lines map[string]int

// Of says for each of err's Errors in what line its field stands, or the
// nearest that it is in where the field is missing. A resource that is not in
// the file at all has no line.
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

// parent is the path that path is in: sids[3] of sids[3].next_hop, and sids of
// sids[3].
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
