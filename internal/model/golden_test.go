package model_test

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/testutil/golden"
)

// files are the golden files of behaviours and of sessions.
func files(t *testing.T) []*golden.File {
	t.Helper()
	var all []*golden.File
	for _, directory := range []string{"behavior", "session"} {
		files, err := golden.LoadAll("../dataplane/testdata/" + directory)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

var update = flag.Bool("update", false, "write what the model does into the golden files")

// run takes a file's rows through a model of its own, in order: meters
// remember.
func run(t *testing.T, f *golden.File) []model.Result {
	t.Helper()
	m, err := model.New(f.Network)
	if err != nil {
		t.Fatalf("%s: %v", f.Path, err)
	}
	results := make([]model.Result, len(f.Rows))
	for i := range f.Rows {
		frame, ifindex := f.Rows[i].Input()
		m.Advance(f.Rows[i].Wait().Nanoseconds())
		results[i] = m.Run(frame, ifindex)
	}
	return results
}

func TestGolden(t *testing.T) {
	for _, f := range files(t) {
		t.Run(f.Name(), func(t *testing.T) {
			results := run(t, f)
			wants := make([]golden.Want, len(results))
			for i := range results {
				wants[i] = f.Wanted(&f.Rows[i], results[i])
				if *update {
					continue
				}
				if d := cmp.Diff(text(t, f.Rows[i].Want), text(t, wants[i])); d != "" {
					t.Errorf("%s: (-golden +model)\n%s", f.Rows[i].Name, d)
				}
			}
			if *update {
				if err := golden.Update(f.Path, wants); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// text makes wants comparable however they came to be.
func text(t *testing.T, w golden.Want) string {
	t.Helper()
	b, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
