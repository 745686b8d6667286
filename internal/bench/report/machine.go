package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Machine is where one of the compared runs was measured.
type Machine struct {
	Run         string             `json:"run"`
	Measured    string             `json:"measured"`
	Environment result.Environment `json:"environment"`
}

// compared are the machines of a comparison's runs.
func (r report) compared() (list []Machine) {
	for _, s := range r.Parts[0].sources {
		list = append(list, Machine{s.label, s.run.Begun.UTC().Format("2006-01-02 15:04 UTC"), s.run.Environment})
	}
	return list
}

// MachineTable sets the machines of a comparison side by side; it has no rows where nothing is
// compared.
func (r report) MachineTable() table {
	if r.Parts[0].comparison == nil {
		return table{}
	}
	return machineTable(r.compared())
}

// machineTable has a column for each machine. What none of them says has no row.
func machineTable(list []Machine) table {
	t := table{Head: []string{"machine"}, Numbers: len(list) + 1}
	for _, m := range list {
		t.Head = append(t.Head, m.Run)
	}
	for _, fact := range []struct {
		name string
		of   func(m Machine) string
	}{
		{"CPU", func(m Machine) string { return m.Environment.CPU }},
		{"CPUs", func(m Machine) string { return fmt.Sprint(m.Environment.CPUs) }},
		{"memory", func(m Machine) string { return fmt.Sprintf("%d MB", m.Environment.MemoryMB) }},
		{"kernel", func(m Machine) string { return "Linux " + m.Environment.Kernel }},
		{"culvert", func(m Machine) string { return strings.TrimSpace(m.Environment.Version + " " + m.Environment.Commit) }},
		{"data path", func(m Machine) string { return m.Environment.DataPath }},
		{"load", func(m Machine) string { return m.Environment.Load }},
		{"noise", func(m Machine) string { return fmt.Sprintf("%.0f %%", 100*m.Environment.Noise) }},
		{"measured", func(m Machine) string { return m.Measured }},
	} {
		row := []string{fact.name}
		for _, m := range list {
			row = append(row, fact.of(m))
		}
		if slices.ContainsFunc(row[1:], func(text string) bool { return text != "" }) {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
