package lab

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/printer"
)

// listing is a lab in `culvert lab list`.
type listing struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	Nodes   int    `json:"nodes"`
	Links   int    `json:"links"`
	Checks  int    `json:"checks"`
}

func writeList(w io.Writer, labs []*topology.Topology, format printer.Format) error {
	var list []listing
	for _, t := range labs {
		list = append(list, listing{t.Name, t.Summary, len(t.Nodes), len(t.Links), len(t.Checks)})
	}
	return format.Write(w, list, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tNODES\tCHECKS\tSUMMARY")
		for _, l := range list {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", l.Name, l.Nodes, l.Checks, l.Summary)
		}
		return t.Flush()
	})
}
