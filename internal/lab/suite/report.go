package suite

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// spec is a test in a report of Ginkgo's (github.com/onsi/ginkgo/v2/types, SpecReport).
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Text       string   `json:"LeafNodeText"`
	Type       string   `json:"LeafNodeType"`
	Serial     bool     `json:"IsSerial"`
	State      string   `json:"State"`
	Failure    struct{ Message string }
}

// name is the full one, as Ginkgo's expressions see it.
func (t spec) name() string { return strings.Join(append(slices.Clone(t.Containers), t.Text), " ") }

// read reads a report. What is before and after all tests counts where it failed: then none of
// them says anything.
func read(file string) (list []spec, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []struct {
		Specs []spec `json:"SpecReports"`
	}
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, r := range reports {
		for _, t := range r.Specs {
			if t.Type == "It" {
				list = append(list, t)
			} else if t.State != "passed" && t.State != "skipped" {
				return nil, fmt.Errorf("%s %s: %s", t.Type, t.State, t.Failure.Message)
			}
		}
	}
	return list, nil
}
