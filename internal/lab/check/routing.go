package check

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// ospf wants OSPFv3 of a node to know the links between all routers. That the
// best path is there does not say so: a router's second LSA of a second is
// discarded (MinLSArrival), and sent again after the retransmit interval.
func ospf(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	dir := r.File(r.Node(c.From), "frr")
	out, err := namespace.Output(exec.CommandContext(ctx, "vtysh", "--vty_socket", dir, "-d", "ospf6d", "-c", "show ipv6 ospf6 database router detail json"))
	if err != nil {
		return err
	}
	var database struct {
		Areas []struct {
			LSAs []struct {
				Links []struct{} `json:"lsaDescription"`
			} `json:"lsa"`
		} `json:"areaScopedLinkStateDb"`
	}
	if err := json.Unmarshal(out, &database); err != nil {
		return fmt.Errorf("vtysh shows %q: %w", out, err)
	}
	ends := 0
	for _, area := range database.Areas {
		for _, lsa := range area.LSAs {
			ends += len(lsa.Links)
		}
	}
	o.Say("%d ends of links", ends)
	if ends != c.Expect.Links {
		o.Fail("%s knows %d ends of links between routers: want %d", c.From, ends, c.Expect.Links)
	}
	return nil
}

// routeCheck wants the kernel of a node to send what is for an address by an
// interface.
func routeCheck(_ context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	var found []struct {
		Device string `json:"dev"`
	}
	if err := network.JSON(r.Instance, r.Node(c.From), &found, "route", "get", c.To.String()); err != nil || len(found) != 1 {
		o.Fail("%s has no route to %v: %v", c.From, c.To, err)
		return nil
	}
	o.Say("by %s", found[0].Device)
	if found[0].Device != c.Expect.Interface {
		o.Fail("%s sends it by %s: want %s", c.From, found[0].Device, c.Expect.Interface)
	}
	return nil
}

// adjacency wants a next hop of a culvert node to leave by an interface.
func adjacency(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	n := r.Node(c.From)
	var list []struct {
		Key       string `json:"key"`
		State     string `json:"state"`
		Interface string `json:"interface"`
	}
	if err := daemon.AskJSON(ctx, r.Instance, n, &list, "adjacency"); err != nil {
		return err
	}
	for _, a := range list {
		if !strings.Contains(a.Key, c.To.String()) {
			continue
		}
		o.Say("%s: %s by %s", a.Key, a.State, a.Interface)
		if a.Interface != c.Expect.Interface || a.State != "ready" {
			o.Fail("%s leaves by %q (%s): want %s", a.Key, a.Interface, a.State, c.Expect.Interface)
		}
		return nil
	}
	o.Fail("%s has no adjacency to %v", n.Name, c.To)
	return nil
}
