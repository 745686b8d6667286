package disturb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// signalAPIServer has kube-apiserver stand still, with all of its connections, or
// go on.
func signalAPIServer(_ context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	p, ok := r.Process(r.Node(e.Node), cluster.APIServerProcess)
	if !ok || !p.Alive() {
		return errors.New("kube-apiserver does not run")
	}
	signal := unix.SIGSTOP
	if e.Do == "resume" {
		signal = unix.SIGCONT
	}
	return unix.Kill(p.PID, signal)
}

// stop kills kube-apiserver, or culvert.
func stop(_ context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	n, name := r.Node(e.Node), cluster.APIServerProcess
	if n.Daemon() {
		name = daemon.CulvertProcess
	}
	p, ok := r.Process(n, name)
	if !ok {
		return fmt.Errorf("%s does not run", name)
	}
	return p.Stop(unix.SIGKILL, instance.ReadyTime)
}

// startAgain starts it with what it knew.
func startAgain(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	if n := r.Node(e.Node); n.Daemon() {
		return daemon.RunCulvert(ctx, r.Instance, n, r.Culvert)
	}
	return cluster.RunAPIServer(ctx, r.Instance, r.Node(e.Node))
}

// setRoute adds a route in a node or pod, or deletes it.
func setRoute(_ context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	verb, family := "add", "-4"
	if e.Do == "no_route" {
		verb = "del"
	}
	if network.RouteIsIPv6(e.Route) {
		family = "-6"
	}
	return r.Namespace(r.Node(e.Node)).Batch([]string{"route " + verb + " " + e.Route}, family)
}

// kill leaves a while without a daemon: the data path must go on by itself.
func kill(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	if n := r.Node(e.Node); n.Kind == topology.Kubelet {
		return killProgram(ctx, r, n, e.Program)
	}
	return daemon.RestartCulvert(ctx, r.Instance, r.Node(e.Node), unix.SIGKILL, 500*time.Millisecond, r.Culvert)
}

func restart(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return daemon.RestartCulvert(ctx, r.Instance, r.Node(e.Node), unix.SIGTERM, 0, r.Culvert)
}

func apply(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return daemon.ApplyCulvert(ctx, r.Instance, r.Node(e.Node), e.Overlay, nil)
}

func setLink(_ context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return r.Namespace(r.Node(e.Node)).Batch([]string{"link set dev " + e.Device + " " + strings.TrimPrefix(e.Do, "link_")})
}

func wait(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(e.For)):
		return nil
	}
}

func kubectlEvent(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	_, err := cluster.RunKubectl(ctx, r.Instance, e.Kubectl)
	return err
}

func smfEvent(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	_, err := daemon.Step(ctx, r.Instance, r.SMF(e.SMF), e.Step)
	return err
}

// moveTunnel tells a GTP-U endpoint a tunnel's other end.
func moveTunnel(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	address, teid, err := daemon.FTEID(ctx, r.Instance, e.FTEID, e.IPv6)
	if err != nil {
		return err
	}
	_, err = gtpulink.Ask(daemon.Control(r.Instance, r.Node(e.Node)), gtpulink.Request{Op: "tunnel", Device: e.Device, To: address, TEID: teid})
	return err
}
