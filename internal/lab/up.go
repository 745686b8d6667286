package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// up builds the instance. One that is whole already is left as it is; one
// that is not (a process died, an up was killed) is taken down first. What a
// failing up has made is taken down again. variant is the one to begin with, or
// empty.
func up(ctx context.Context, in *instance.Instance, variant string, progress *report.Progress) error {
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
		if err := haveCluster(variant); err != nil {
			return err
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
	steps := []struct {
		text string
		each func(*topology.Node) error
	}{
		{"namespaces", func(n *topology.Node) error { return in.MakeNamespace(n) }},
		{"links", nil},
		{"GTP-U endpoints", func(n *topology.Node) error { return startEndpoint(in, n) }},
		{"addresses and routes", func(n *topology.Node) error { return in.Configure(n) }},
		{"FRR", func(n *topology.Node) error { return startFRR(in, n) }},
		{"kube-apiserver", func(n *topology.Node) error { return startFor(ctx, in, n) }},
		{"kubelets", func(n *topology.Node) error { return startKubelet(in, n) }},
		{"the nodes of the cluster", func(n *topology.Node) error { return joinCluster(ctx, in, n) }},
		{"culvert, by its manifest", func(n *topology.Node) error { return install(ctx, in, n) }},
		{"culvert", func(n *topology.Node) error { return startCulvert(ctx, in, n, in.Culvert) }},
		{"pods", func(n *topology.Node) error { return attach(ctx, in, n) }},
		{"Services", func(n *topology.Node) error { return serve(ctx, in, n) }},
		{"SMF", func(n *topology.Node) error { return startSMFs(ctx, in, n) }},
	}
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress.Say("%s: %s", in.Name, s.text)
		if s.each == nil {
			if err := in.MakeLinks(in.Topology.Links); err != nil {
				return err
			}
			continue
		}
		for _, n := range in.Nodes {
			if err := s.each(n); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
	}
	if err := (&runner{Instance: in, progress: progress}).eventsOf(ctx, in.Topology.Setup, new(report.Outcome)); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

// startEndpoint starts the node's GTP-U endpoint: this program again.
func startEndpoint(in *instance.Instance, n *topology.Node) error {
	if len(n.GTPU) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(n.GTPU, "", "  ")
	if err != nil {
		return err
	}
	file := in.File(n, "gtpu.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := in.Start(n, endpointProcess, self, "lab", "endpoint", "--links", file, "--control", control(in, n)); err != nil {
		return err
	}
	p, _ := in.Process(n, endpointProcess)
	ready := instance.WaitFor(5*time.Second, func() bool {
		_, err := gtpulink.Ask(control(in, n), gtpulink.Request{Op: "stats"})
		return err == nil || !p.Alive()
	})
	if !ready || !p.Alive() {
		return fmt.Errorf("the GTP-U endpoint did not start: %s", in.LogTail(n, endpointProcess))
	}
	return nil
}

const endpointProcess = "endpoint"

// control is the path of the node's endpoint's control socket.
func control(in *instance.Instance, n *topology.Node) string { return in.File(n, "endpoint.sock") }
