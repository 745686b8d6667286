package metricdoc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestRead(t *testing.T) {
	got, err := Read(func(ch chan<- *prometheus.Desc) {
		ch <- prometheus.NewDesc("drops_total", `Packets, "dropped".`, []string{"reason", "port"}, nil)
		ch <- prometheus.NewDesc("sessions", "Sessions.", nil, nil)
	})
	want := []Metric{{Name: "drops_total", Help: `Packets, "dropped".`, Labels: []string{"reason", "port"}}, {Name: "sessions", Help: "Sessions."}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if !got[0].IsCounter() || got[1].IsCounter() {
		t.Error("counters are taken for gauges, or the other way round")
	}
	if _, err := Read(func(ch chan<- *prometheus.Desc) {
		ch <- prometheus.NewDesc("a", "b", nil, prometheus.Labels{"of": "one"})
	}); err == nil {
		t.Error("a label with one value for all is left out")
	}
}
