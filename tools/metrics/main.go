// Metrics writes docs/reference/metrics.md: each metric that a program of Culvert has. It
// runs in its own folder.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/culvert-net/culvert/internal/agent/metrics"
	"github.com/culvert-net/culvert/internal/engine/monitor"
	"github.com/culvert-net/culvert/internal/metricdoc"
)

//go:generate go run .

func main() {
	log.SetFlags(0)
	var b bytes.Buffer
	if err := write(&b); err != nil {
		log.Fatalf("metrics: %v", err)
	}
	if err := os.WriteFile("../../docs/reference/metrics.md", b.Bytes(), 0o644); err != nil {
		log.Fatalf("metrics: %v", err)
	}
}

func write(w io.Writer) error {
	fmt.Fprint(w, `# Metrics

`+"`make generate`"+` writes this page from the programs. Counters only grow, and start at 0 when the data path is
loaded anew. Prometheus adds `+"`instance` and `job`"+`. Both programs also have the metrics `+"`go_*` and `process_*`"+` of
their process.

[Dashboards and alerts](../how-to/monitor.md) use these metrics.

## The daemon

At `+"`metrics.listen`, path `/metrics`: `http://127.0.0.1:9418/metrics`"+` by default. With more than 10,000 SIDs, policies or
tunnels, they have no series of their own; the management API has single ones.

`)
	if err := table(w, metrics.Describe); err != nil {
		return err
	}
	fmt.Fprint(w, `
## The traffic engineering engine

`+"`culvert te run`, at `engine.listen`, path `/metrics`"+`.

`)
	return table(w, monitor.Describe)
}

// table has a row for each metric.
func table(w io.Writer, describe func(chan<- *prometheus.Desc)) error {
	list, err := metricdoc.Read(describe)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "| metric | type | labels | what it shows |\n|---|---|---|---|")
	for _, m := range list {
		kind, labels := "gauge", ""
		if m.IsCounter() {
			kind = "counter"
		}
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", m.Name, kind, labels, strings.ReplaceAll(m.Help, "|", `\|`))
	}
	return nil
}
