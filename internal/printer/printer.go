// Package printer prints what commands read: as a table for people, or as JSON or
// YAML for programs.
package printer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Format is how something is printed. As a flag it refuses what it does not know.
type Format string

// Formats there are.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats are the names of all.
var Formats = []string{string(Table), string(JSON), string(YAML)}

// String is a flag's.
func (f *Format) String() string { return string(*f) }

// Type is a flag's.
func (f *Format) Type() string { return "format" }

// Set is a flag's.
func (f *Format) Set(s string) error {
	if !slices.Contains(Formats, s) {
		return fmt.Errorf("give one of %s", strings.Join(Formats, ", "))
	}
	*f = Format(s)
	return nil
}

// Write writes v as JSON or YAML, or what table writes of it.
func (f Format) Write(w io.Writer, v any, table func(io.Writer) error) error {
	switch f {
	case JSON:
		return WriteJSON(w, v)
	case YAML:
		return WriteYAML(w, v)
	}
	return table(w)
}

// WriteJSON writes indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteLine writes JSON in one line.
func WriteLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteYAML writes what WriteJSON would, in the same order: JSON is YAML, in
// another style.
func WriteYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return err
	}
	blockStyle(&n)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return errors.Join(e.Encode(&n), e.Close())
}

// blockStyle lets the encoder choose quotes, and lines in place of braces.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}
