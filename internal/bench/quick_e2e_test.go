//go:build e2e

package bench

import (
	"testing"

	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func TestDeviceAgainst(t *testing.T) {
	needTwoCPUs(t)
	r, err := execute(t.Context(), t.TempDir(), "device", "--quick", "--against", "kernel/vxlan,culvert/h_encaps_red", "--sizes", "imix", "--rounds", "1")
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"kernel vxlan", "culvert h_encaps_red"} {
		of := result.Labels{"what": what}
		if len(r.Select("pdr", of))+len(r.Select("pdr_at_least", of)) != 1 || len(r.Select("generator_limit", of)) != 1 {
			t.Errorf("%s: %v", what, r.Measurements)
		}
	}
	if r.Environment.DataPath == "" {
		t.Error("nobody says what build of Culvert it was")
	}
	nothingOf(t, device.KernelDevice, device.CulvertDevice, device.Veth)
}

func TestQuickScaleOfAll(t *testing.T) {
	quickScale(t, map[string]int{"sessions": 4, "rules": 4, "policies": 2, "segments": 2, "routes": 2})
}
