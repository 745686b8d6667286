package result

import (
	"strings"
	"testing"
)

func TestFiguresThatCannotBeDrawn(t *testing.T) {
	good := Figure{ID: "fig5", Kind: Bars, Metric: "ns", X: "function"}
	for name, tt := range map[string]struct {
		change func(*Figure)
		want   string
	}{
		"a path":          {func(f *Figure) { f.ID = "../fig5" }, "it names files"},
		"no id":           {func(f *Figure) { f.ID = "" }, "are needed"},
		"no metric":       {func(f *Figure) { f.Metric = "" }, "are needed"},
		"bars without x":  {func(f *Figure) { f.X = "" }, "wants x"},
		"an unknown kind": {func(f *Figure) { f.Kind = "pie" }, "there are bars"},
		"another's value": {func(f *Figure) { f.Value = "mean" }, "there are plain"},
	} {
		f := good
		tt.change(&f)
		if err := f.check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	twice := Run{Version: Version, Figures: []Figure{good, good}}
	if err := twice.Check(); err == nil || !strings.Contains(err.Error(), "there are two") {
		t.Errorf("two figures of one name: %v", err)
	}
}

func TestHistogramsThatAreNone(t *testing.T) {
	for want, h := range map[string]Histogram{
		"2, 1 and 1 columns":            {Lower: []uint64{1, 2}, Upper: []uint64{2}, Count: []uint64{1}},
		"bucket 0 is from 5 to 5":       {Lower: []uint64{5}, Upper: []uint64{5}, Count: []uint64{1}},
		"bucket 1 is from 4 to 8: buck": {Lower: []uint64{1, 4}, Upper: []uint64{5, 8}, Count: []uint64{1, 1}},
	} {
		r := Run{Version: Version, Measurements: []Measurement{{Metric: "latency", Histogram: &h}}}
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
