package functions

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// Every function's packets can be made and recognized, short and long.
func TestTrafficOfEverySize(t *testing.T) {
	for name, pair := range trafficOf(trafficTunnels) {
		for _, size := range []int{catalog.ShortSize, catalog.LongSize} {
			for what, template := range map[string]traffic.Template{"sent": pair.send, "expected": pair.expect} {
				template = ofSize(template, size)
				if err := template.Check(); err != nil {
					t.Errorf("%s, %d octets, %s: %v", name, size, what, err)
				}
			}
		}
	}
}

func TestTitles(t *testing.T) {
	seen := map[string]string{}
	for _, f := range (&Experiment{}).All(catalog.ShortSize) {
		title := catalog.TitleOf(f.Name)
		if title.Name == "" || title.Meaning == "" || seen[title.Name] != "" {
			t.Errorf("%s has the title %+v, as has %q", f.Name, title, seen[title.Name])
		}
		seen[title.Name] = f.Name
	}
}

// Unless functions are named, each is measured in all the shapes that it can have. GTP-U of gNBs enters
// by ports with the roles n3 and edge, what is for UEs or steered by edge. H.Encaps.L2.Red takes frames as
// they are.
func TestShapesInDefaultList(t *testing.T) {
	fromGNB := []string{"gtpu_decap", "gtpu_switch", "h_m_gtp4_d", "end_m_gtp6_d", "end_m_gtp6_d_di", "uplink"}
	toEdge := []string{"h_encaps", "h_encaps_red", "gtpu_encap", "downlink"}
	all := slices.Concat(fromGNB, toEdge, []string{
		"end", "end_x", "end_t", "end_dt4", "end_dt6", "end_dt46", "end_dx2", "end_dx4", "end_dx6", "end_b6_encaps_red", "end_map", "usid",
		"end_m_gtp4_e", "end_m_gtp6_e",
	})
	names := catalog.Names(Kind.New().(*Experiment).chosen(catalog.ShortSize))
	for suffix, of := range map[string][]string{
		"": append(all, "h_encaps_l2_red"), "@n3": fromGNB, "@edge": slices.Concat(fromGNB, toEdge), "@vlan": all, "@9000": all, "@routes10k": {"end_dt4"},
	} {
		for _, name := range of {
			if !slices.Contains(names, name+suffix) {
				t.Errorf("there is no %s", name+suffix)
			}
		}
	}
}

// A table of a million does not hide what is usual.
func TestRowsOfFunctions(t *testing.T) {
	e := Experiment{Entries: []uint{100_000, 1, 1000}, Sizes: []int{catalog.ShortSize, catalog.LongSize}, Functions: []string{"gtpu_decap", "end", "h_encaps", "uplink"}}
	got := map[string][]string{}
	for _, p := range e.costs() {
		l := p.labels()
		got[p.Name+" "+l["packet"]] = append(got[p.Name+" "+l["packet"]], l["entries"]+" "+l["table"])
	}
	for name, want := range map[string][]string{
		"gtpu_decap short": {"1 few", "1000 usual", "100000 many"}, "gtpu_decap long": {"1000 usual"},
		"end short": {"1 few", "1000 usual"}, "end long": {"1000 usual"}, "h_encaps short": {"1 usual"}, "h_encaps long": {"1 usual"},
		"uplink short": {"1 few", "1000 usual"}, "uplink long": {"1000 usual"},
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// The light load is that of paper 001's table II.
func TestLightRate(t *testing.T) {
	for size, want := range map[int]float64{catalog.ShortSize: 100_806, catalog.LongSize: 8_127} {
		if got := lightRate(size); got != want {
			t.Errorf("%d octets: %v packets/s, want %v", size, got, want)
		}
	}
}

func TestMedianOf(t *testing.T) {
	h := &result.Histogram{Lower: []uint64{100, 200, 400}, Upper: []uint64{200, 400, 800}, Count: []uint64{1, 2, 1}}
	if got := medianOf(h); got != 300 {
		t.Errorf("%v, want 300: half of the second bucket", got)
	}
}
