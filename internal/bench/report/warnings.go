package report

import (
	"fmt"
	"strings"
)

// Warnings are those of the first page: of a comparison all of them, otherwise at most three. Those
// of single points stand with their experiments.
func (r report) Warnings() (list []string) {
	if r.Parts[0].comparison == nil && r.Many() {
		return r.plainWarnings()
	}
	for _, text := range r.left {
		list = append(list, text+": it is not compared.")
	}
	var later []string
	for _, p := range r.Parts {
		for i, w := range p.Warnings() {
			if w = r.whose(p) + w; i == 0 {
				list = append(list, w)
			} else {
				later = append(later, w)
			}
		}
	}
	return append(list, later...)
}

// plainWarnings say which experiments are not whole, which are too noisy, and which have remarks
// on some of their points.
func (r report) plainWarnings() (list []string) {
	var stopped, noisy, remarks []string
	for _, p := range r.Parts {
		run := p.Run()
		if !run.Complete {
			stopped = append(stopped, p.name)
		}
		noise := run.Environment.Noise
		if run.NoiseLimit > 0 && noise > run.NoiseLimit {
			noisy = append(noisy, fmt.Sprintf("%s (others took %.0f %% of a CPU's time, %.0f %% is the limit)", p.name, 100*noise, 100*run.NoiseLimit))
		}
		if n := len(run.Warnings); n > 0 {
			remarks = append(remarks, fmt.Sprintf("%s (%d)", p.name, n))
		}
	}
	for _, w := range []struct {
		says string
		of   []string
	}{
		{"Stopped before the end, so that something is missing: %s.", stopped},
		{"Too noisy to claim anything: %s.", noisy},
		{"Some points have remarks, which stand with their experiments: %s.", remarks},
	} {
		if len(w.of) > 0 {
			list = append(list, fmt.Sprintf(w.says, strings.Join(w.of, ", ")))
		}
	}
	return list
}
