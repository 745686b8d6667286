package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/check"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
)

// runChecks runs the checks that match only (nil: all), in order, in each of the
// variants. An error is one of the lab itself; a check that fails is in the report.
func runChecks(ctx context.Context, r *disturb.Runner, variants []string, only *regexp.Regexp, progress *report.Progress) (*report.Report, error) {
	start := time.Now()
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return nil, err
	}
	summary := &report.Report{Lab: r.Topology.Name, Pass: true, Culvert: r.Culvert, Kernel: unix.ByteSliceToString(system.Release[:])}
	r.Back = len(variants) == 1
	checks := check.New(r)
	list := r.Plan(variants, only)
	if len(list) == 0 {
		return nil, fmt.Errorf("--checks: no check of lab %s matches %q", r.Topology.Name, only)
	}
	for i, p := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := goOver(ctx, r.Instance, p.Variant, progress); err != nil {
			return nil, err
		}
		progress.Begin(i+1, len(list), p.Title())
		result := checks.Run(ctx, p)
		result.Name = p.Title()
		progress.End(result)
		summary.Checks = append(summary.Checks, result)
		summary.Pass = summary.Pass && result.Pass
	}
	summary.Seconds = time.Since(start).Seconds()
	return summary, nil
}

// runLab is up, checks and down.
func runLab(ctx context.Context, in *instance.Instance, variants []string, o *options, p *report.Progress) (*report.Report, error) {
	if err := up(ctx, in, variants[0], p); err != nil {
		return nil, err
	}
	summary, err := runChecks(ctx, &disturb.Runner{Instance: in, UpgradeTo: o.upgradeTo}, variants, o.only, p)
	if o.keep {
		p.Say("%s is kept: `culvert lab down %s` takes it down", in.Name, in.Topology.Name)
		return summary, err
	}
	return summary, errors.Join(err, in.Down(p))
}
