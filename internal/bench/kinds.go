package bench

import (
	"embed"
	"io/fs"

	"github.com/culvert-net/culvert/internal/bench/ambr"
	"github.com/culvert-net/culvert/internal/bench/designs"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/disrupt"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/functions"
	"github.com/culvert-net/culvert/internal/bench/n9"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/overlay"
	reports "github.com/culvert-net/culvert/internal/bench/report"
	"github.com/culvert-net/culvert/internal/bench/restart"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/scale"
	"github.com/culvert-net/culvert/internal/bench/sourcesink"
	"github.com/culvert-net/culvert/internal/bench/te"
)

//go:embed experiments/*.yaml
var files embed.FS

// papers are those that experiments repeat; each is defined beside its experiment.
func papers() []result.Paper {
	slices := n9.Paper()
	slices.Findings = append(slices.Findings, sourcesink.Findings()...)
	return []result.Paper{slices, functions.Paper(), overlay.Paper(), designs.Paper()}
}

// library are the experiments that there are.
func library() *experiment.Library {
	below, err := fs.Sub(files, "experiments")
	must(err)
	return &experiment.Library{
		Kinds:       []experiment.Kind{functions.Kind, n9.Kind, scale.Kind, device.Kind, designs.Kind, disrupt.Kind, overlay.Kind, overlay.KNBKind, scale.ScalingKind, scale.UPFKind, te.Kind, ambr.Kind, sourcesink.Kind, restart.Kind},
		Names:       []string{"functions", "slices", "scale", "device", "designs", "designs-short", "disrupt", "overlay", "overlay-short", "overlay-used", "knb", "scaling", "upf", "te", "ambr", "source-sink", "restart", "ci"},
		Suite:       []string{"slices", "source-sink", "functions", "overlay-short", "overlay-used", "designs-short", "scale", "device", "disrupt", "te"},
		Files:       below,
		Environment: node.Machine,
		Draw: func(dir string) error {
			_, err := reports.Draw([]string{dir}, reports.Options{Papers: papers()})
			return err
		},
	}
}
