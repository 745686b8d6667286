package bench

import (
	"cmp"
	"embed"
	"io/fs"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/n9"
	"github.com/culvert-net/culvert/internal/bench/overlay"
	reports "github.com/culvert-net/culvert/internal/bench/report"
	"github.com/culvert-net/culvert/internal/bench/result"
)

//go:embed experiments/*.yaml
var files embed.FS

// library are the experiments that there are.
func library() *experiment.Library {
	below, err := fs.Sub(files, "experiments")
	must(err)
	return &experiment.Library{
		Kinds:       []experiment.Kind{functionsKind(), n9.Kind(), scaleKind(), deviceKind(), disruptKind(), overlay.Kind()},
		Names:       []string{"functions", "slices", "scale", "device", "disrupt", "overlay"},
		Suite:       []string{"functions", "slices", "scale", "device", "disrupt"},
		Files:       below,
		Environment: machine,
		Draw: func(dir string) error {
			_, err := reports.Draw([]string{dir}, reports.Options{})
			return err
		},
	}
}

// machine is what a run says of where it was.
func machine() (result.Environment, error) {
	e, err := surroundings()
	if err != nil {
		return result.Environment{}, err
	}
	memory, err := totalMemory("/proc/meminfo")
	return result.Environment{
		Kernel: e.Kernel, CPU: e.CPU, CPUs: e.CPUs, MemoryMB: int(memory >> 20), Load: e.Load,
		Commit: e.Commit, Version: cmp.Or(e.Version, e.Commit),
	}, err
}

// What others may take of a CPU's time before figures say nothing
// (docs/how-to/measure.md): of CPU time beside a baseline, and of rates, losses and
// latencies.
const (
	noiseOfRatios = 0.5
	noiseOfRates  = 0.1
)
