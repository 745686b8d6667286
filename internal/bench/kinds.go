package bench

import (
	"embed"
	"io/fs"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/n9"
	"github.com/culvert-net/culvert/internal/bench/overlay"
	reports "github.com/culvert-net/culvert/internal/bench/report"
)

//go:embed experiments/*.yaml
var files embed.FS

// library are the experiments that there are.
func library() *experiment.Library {
	below, err := fs.Sub(files, "experiments")
	must(err)
	return &experiment.Library{
		Kinds:       []experiment.Kind{functionsKind(), n9.Kind(), scaleKind(), deviceKind(), disruptKind(), overlay.Kind(), scalingKind(), upfKind()},
		Names:       []string{"functions", "slices", "scale", "device", "disrupt", "overlay", "scaling", "upf"},
		Suite:       []string{"functions", "slices", "scale", "device", "disrupt"},
		Files:       below,
		Environment: machine,
		Draw: func(dir string) error {
			_, err := reports.Draw([]string{dir}, reports.Options{})
			return err
		},
	}
}
