// Package metricdoc reads what Prometheus metrics say of themselves: for the page that lists
// them, and for tests that ask for each.
package metricdoc

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is a metric's description.
type Metric struct {
	Name, Help string
	Labels     []string
}

// IsCounter says whether it only grows: promtool demands of all counters that their names end so.
func (m Metric) IsCounter() bool { return strings.HasSuffix(m.Name, "_total") }

// The library shows a description by String only.
var text = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// Read returns the descriptions that describe sends, in their order.
func Read(describe func(chan<- *prometheus.Desc)) (list []Metric, err error) {
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		describe(ch)
	}()
	for d := range ch {
		m, failed := read(d)
		if failed != nil && err == nil {
			err = failed
		}
		list = append(list, m)
	}
	return list, err
}

func read(d *prometheus.Desc) (m Metric, err error) {
	parts := text.FindStringSubmatch(d.String())
	if parts == nil {
		return m, fmt.Errorf("cannot read %s", d)
	}
	if m.Name, err = strconv.Unquote(parts[1]); err != nil {
		return m, err
	}
	if m.Help, err = strconv.Unquote(parts[2]); err != nil {
		return m, err
	}
	if parts[3] != "" {
		m.Labels = strings.Split(parts[3], ",")
	}
	return m, nil
}
