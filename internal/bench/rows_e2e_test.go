//go:build e2e

package bench

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/functions"
)

// Every row of `culvert bench functions` and `culvert bench upf` is set up as there, and its frames
// are checked: a run ends at the first that comes out otherwise than the row says.
func TestEveryRow(t *testing.T) {
	needRoot(t)
	for _, size := range []int{catalog.ShortSize, catalog.LongSize} {
		all := (&functions.Experiment{}).All(size)
		if size == catalog.LongSize { // whose variants are not measured
			all = slices.DeleteFunc(all, catalog.Function.IsVariant)
		}
		plain, sessions := apart(all)
		everyRow(t, plain)
		everyRow(t, sessions)
	}
	everyRow(t, catalog.UPFFunctions(catalog.ShortSize))
	nothingLeft(t)
}

// apart are the functions without sessions, and those with some, which are on a node of their own.
func apart(list []catalog.Function) (plain, sessions []catalog.Function) {
	for _, f := range list {
		if f.Sessions == nil {
			plain = append(plain, f)
		} else {
			sessions = append(sessions, f)
		}
	}
	return plain, sessions
}

// everyRow names all rows whose frames are not as they should be.
func everyRow(t *testing.T, list []catalog.Function) {
	t.Helper()
	p := cost.Plan{Binary: culvert, BPFFS: "/sys/fs/bpf", Functions: list, Entries: []uint32{100}, Packets: 1024, CPU: -1}
	b, err := cost.SetUp(t.Context(), p, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.SetUpKernel(); err != nil {
		t.Fatal(err)
	}
	wrong := map[string]string{}
	for _, r := range cost.RowsOf(p.Functions, p.Entries) {
		if _, err := b.Round(t.Context(), r); err != nil {
			wrong[r.Name] = err.Error()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		t.Errorf("%s, %d octets: %s", name, list[0].Size, strings.TrimSpace(wrong[name]))
	}
}
