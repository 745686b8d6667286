package lab

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/check"
	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/machine"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// up builds the instance. One that is whole already is left as it is; one
// that is not (a process died, an up was killed) is taken down first. What a
// failing up has made is taken down again. variant is the one to begin with, or
// empty.
func up(ctx context.Context, in *instance.Instance, variant string, progress *report.Progress) error {
	if err := daemon.HavePrograms(in.Topology, in.Core); err != nil {
		return err
	}
	if err := haveMachines(in); err != nil {
		return err
	}
	if in.State.Ready && in.Whole() {
		progress.Say("%s is up already", in.Name)
		return goOver(ctx, in, variant, progress)
	}
	return upAnew(ctx, in, variant, progress)
}

// upAnew builds the instance, of which nothing is left before.
func upAnew(ctx context.Context, in *instance.Instance, variant string, progress *report.Progress) error {
	if err := in.Down(progress); err != nil {
		return err
	}
	if len(in.Kubelets()) > 0 {
		if err := cluster.HaveCluster(variant, in.Chart != nil); err != nil {
			return err
		}
		if topology.HasSuites(in.Topology) {
			if err := cluster.HaveSuites(); err != nil {
				return err
			}
		}
	}
	in.State.Variant = variant
	if err := in.Begin(); err != nil {
		return err
	}
	if err := build(ctx, in, progress); err != nil {
		return errors.Join(fmt.Errorf("lab %s: %w", in.Name, err), in.Down(progress))
	}
	in.State.Ready = true
	return in.Save()
}

func build(ctx context.Context, in *instance.Instance, progress *report.Progress) error {
	type kinds []topology.Kind // none are all
	for _, s := range []struct {
		text string
		of   kinds
		each func(*topology.Node) error
		has  func(*topology.Node) bool // whether a node has something of it; nil: each has
	}{
		{"namespaces", nil, func(n *topology.Node) error { return network.MakeNamespace(in, n) }, nil},
		{"links", nil, nil, nil},
		{"GTP-U endpoints", nil, func(n *topology.Node) error { return daemon.StartEndpoint(ctx, in, n) },
			func(n *topology.Node) bool { return len(n.GTPU) > 0 }},
		{"addresses and routes", nil, func(n *topology.Node) error { return network.Configure(in, n) }, nil},
		{"FRR", nil, func(n *topology.Node) error { return daemon.StartFRR(ctx, in, n) }, func(n *topology.Node) bool { return n.FRR != nil }},
		{"kube-apiserver", kinds{topology.APIServer}, func(*topology.Node) error {
			if variant := in.State.Variant; variant != topology.KubeMode && len(in.Kubelets()) == 0 {
				return nil // the variant needs none
			}
			return cluster.StartAPIServer(ctx, in)
		}, nil},
		{"kubelets", kinds{topology.Kubelet}, func(n *topology.Node) error { return cluster.StartKubelet(ctx, in, n) }, nil},
		{"the nodes of the cluster", kinds{topology.Kubelet}, func(n *topology.Node) error { return cluster.JoinCluster(ctx, in, n) }, nil},
		{"culvert, by its manifest", kinds{topology.Kubelet}, func(n *topology.Node) error { return cluster.Install(ctx, in, n) }, nil},
		{"machines", kinds{topology.Machine}, func(n *topology.Node) error {
			return machine.Start(ctx, in, n, packagesOf(in), progress.Say)
		}, nil},
		{"culvert", kinds{topology.Culvert, topology.Cluster}, func(n *topology.Node) error { return daemon.StartCulvert(ctx, in, n) }, nil},
		{"pods", kinds{topology.Pod}, func(n *topology.Node) error { return cluster.Start(ctx, in, n) }, nil},
		{"Services", nil, func(n *topology.Node) error { return cluster.Serve(ctx, in, n) }, func(*topology.Node) bool { return len(in.Services) > 0 }},
		{"programs of others", nil, func(n *topology.Node) error { return daemon.StartPrograms(ctx, in, n) },
			func(n *topology.Node) bool { return len(n.Files)+len(n.Programs) > 0 || n.Subscribers != nil }},
		{"SMF", nil, func(n *topology.Node) error { return daemon.StartSMFs(ctx, in, n) }, func(n *topology.Node) bool { return len(n.SMFs) > 0 }},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		nodes := in.Select(func(n *topology.Node) bool {
			return (s.of == nil || slices.Contains(s.of, n.Kind)) && (s.has == nil || s.has(n))
		})
		if len(nodes) == 0 {
			continue
		}
		progress.Say("%s: %s", in.Name, s.text)
		if s.each == nil {
			if err := network.MakeLinks(in, in.Topology.Links); err != nil {
				return err
			}
			continue
		}
		for _, n := range nodes {
			if err := s.each(n); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
	}
	if err := disturb.Do(ctx, (&disturb.Runner{Instance: in}), in.Topology.Setup, new(report.Outcome)); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

// goOver goes over to a variant, if it is another one. Nodes that are kubelets
// are made anew for it: it is what their pods run in.
func goOver(ctx context.Context, in *instance.Instance, variant string, progress *report.Progress) error {
	switch {
	case in.State.Variant == variant:
		return nil
	case len(in.Kubelets()) > 0:
		return upAnew(ctx, in, variant, progress)
	}
	return disturb.SetVariant(ctx, in, variant)
}

// runChecks runs the checks that match only (nil: all), in order, in each of the
// variants. An error is one of the lab itself; a check that fails is in the report.
func runChecks(ctx context.Context, r *disturb.Runner, variants []string, only *regexp.Regexp, progress *report.Progress) (*report.Report, error) {
	start := time.Now()
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil {
		return nil, err
	}
	summary := &report.Report{Lab: r.Topology.Name, Pass: true, Culvert: r.Culvert, Kernel: unix.ByteSliceToString(system.Release[:])}
	r.Back, r.Tell = len(variants) == 1, progress.Say
	checks := check.New(r)
	list := r.Plan(variants, only)
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

// haveMachines wants to be there what nodes of kind machine are made of, if there are some.
func haveMachines(in *instance.Instance) error {
	if len(in.Select(func(n *topology.Node) bool { return n.Kind == topology.Machine })) == 0 {
		if in.Packages != "" || in.PackagesBefore != "" {
			return fmt.Errorf("--packages: lab %s installs no packages", in.Topology.Name)
		}
		return nil
	}
	if in.Packages == "" {
		var err error
		if in.Packages, err = machine.Default(); err != nil {
			return err
		}
	}
	return errors.Join(machine.HavePrograms(), packagesOf(in).Check())
}

func packagesOf(in *instance.Instance) machine.Packages {
	return machine.Packages{After: in.Packages, Before: in.PackagesBefore, Rebuild: disturb.Rebuild}
}
