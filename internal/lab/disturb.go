package lab

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// signalAPIServer has kube-apiserver stand still, with all of its connections, or
// go on.
func (r *runner) signalAPIServer(_ context.Context, e *topology.Event, _ *report.Outcome) error {
	p, ok := r.Process(r.Node(e.Node), topology.ApiServerProcess)
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
func (r *runner) stop(_ context.Context, e *topology.Event, _ *report.Outcome) error {
	n, name := r.Node(e.Node), topology.ApiServerProcess
	if n.Daemon() {
		name = culvertProcess
	}
	p, ok := r.Process(n, name)
	if !ok {
		return fmt.Errorf("%s does not run", name)
	}
	return p.Stop(unix.SIGKILL, instance.ReadyTime)
}

// startAgain starts it with what it knew.
func (r *runner) startAgain(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	if n := r.Node(e.Node); n.Daemon() {
		return runCulvert(ctx, r.Instance, n, r.Culvert)
	}
	return runAPIServer(ctx, r.Instance, r.Node(e.Node))
}

// setRoute adds a route in a node or pod, or deletes it.
func (r *runner) setRoute(_ context.Context, e *topology.Event, _ *report.Outcome) error {
	verb, family := "add", "-4"
	if e.Do == "no_route" {
		verb = "del"
	}
	if instance.RouteIsIPv6(e.Route) {
		family = "-6"
	}
	return r.Namespace(r.Node(e.Node)).Batch([]string{"route " + verb + " " + e.Route}, family)
}

// mtu waits until what a pod sends is no longer than that, in each family.
func (r *runner) mtu(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return eventually(ctx, func() error {
		got, err := podMTU(r.Instance, r.Node(e.Node))
		if err != nil {
			return err
		}
		for _, mtu := range got {
			if mtu != e.MTU {
				return fmt.Errorf("the routes of %s have the MTU %v: want %d", e.Node, got, e.MTU)
			}
		}
		return nil
	})
}

// podMTU are the MTU of a pod's default routes.
func podMTU(r *instance.Instance, p *topology.Node) (list []int, err error) {
	var link []struct {
		MTU int `json:"mtu"`
	}
	if err := r.IPJSON(p, &link, "link", "show", "dev", topology.PodInterface); err != nil || len(link) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%s has %d links %s", p.Name, len(link), topology.PodInterface))
	}
	for _, family := range []string{"-4", "-6"} {
		var routes []struct {
			Metrics []struct {
				MTU int `json:"mtu"`
			} `json:"metrics"`
		}
		if err := r.IPJSON(p, &routes, family, "route", "show", "default"); err != nil {
			return nil, err
		}
		for _, route := range routes {
			mtu := link[0].MTU
			for _, m := range route.Metrics {
				mtu = m.MTU
			}
			list = append(list, mtu)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no default route", p.Name)
	}
	return list, nil
}
