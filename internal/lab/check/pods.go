package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// podView is what `culvert pod` shows, as far as labs look.
type podView struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

// podsOf wants a node to have the pods that are attached, and nothing of those that
// are not: no address and no interface, and so no route.
func podsOf(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	n := r.Node(c.From)
	var list []podView
	if err := daemon.AskJSON(ctx, r.Instance, n, &list, "pod"); err != nil {
		return err
	}
	var there, attached []string
	for _, p := range list {
		there = append(there, p.Name)
	}
	for _, p := range r.Pods(n) {
		if r.State.Pods[p.Name] != nil {
			attached = append(attached, p.Name)
		}
	}
	if slices.Sort(there); !slices.Equal(there, slices.Sorted(slices.Values(attached))) {
		o.Fail("%s has the pods %q: want %q", n.Name, there, attached)
	}
	links, err := podLinks(r, n)
	if err != nil {
		return err
	}
	if len(links) != len(attached) {
		o.Fail("%s has the interfaces %q for %d pods", n.Name, links, len(attached))
	}
	o.Say("%d pods", len(attached))
	return nil
}

// podLinks are a node's ends of its pods' interfaces.
func podLinks(r *disturb.Runner, n *topology.Node) (names []string, err error) {
	links, err := r.Namespace(n).Output("ip", "-br", "link", "show", "type", "veth")
	if err != nil {
		return nil, err
	}
	own := append(r.Devices(n), "culvert0", "culvert1")
	for line := range strings.Lines(string(links)) {
		if name, _, _ := strings.Cut(strings.Fields(line)[0], "@"); !slices.Contains(own, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// statusOf wants the plugins of a node to answer CNI's STATUS with a code, or with
// success.
func statusOf(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	err := cluster.CNIStatus(ctx, r.Instance, r.Node(c.From))
	if refused, ok := errors.AsType[*types.Error](err); ok {
		o.Say("code %d: %s", refused.Code, refused.Msg)
		if c.Expect.Code == refused.Code {
			return nil
		}
	}
	if err != nil {
		return err
	}
	if c.Expect.Code != 0 {
		o.Fail("STATUS succeeds: want code %d", c.Expect.Code)
	}
	return nil
}

// oneFamily wants the pods of a node to have addresses and routes of one family, and
// nothing of the other; so CNI's results, and the node's routes to them.
func oneFamily(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	n, is4 := r.Node(c.From), c.Families[0] == topology.IPv4
	var list []podView
	if err := daemon.AskJSON(ctx, r.Instance, n, &list, "pod"); err != nil {
		return err
	}
	if len(list) == 0 {
		o.Fail("%s has no pods", n.Name)
	}
	for _, p := range list {
		wantFamily(o, is4, "pod "+p.Name, p.Addresses, 1)
	}
	results, err := cniResults(r, n)
	if err != nil {
		return err
	}
	if len(results) != len(list) {
		o.Fail("CNI has %d results for %d pods", len(results), len(list))
	}
	for _, result := range results { // addresses, and where the routes lead
		var list []string
		for _, ip := range result.IPs {
			list = append(list, ip.Address.String())
		}
		for _, route := range result.Routes {
			list = append(list, route.Dst.String())
		}
		wantFamily(o, is4, "CNI's result", list, 3)
	}
	for _, p := range r.Pods(n) {
		if err := podOfFamily(r, p, is4, o); err != nil {
			return err
		}
	}
	o.Say("%d pods", len(list))
	// The node's routes to its pods; where all of the cluster is of one family, to
	// those of other nodes, too.
	links, err := podLinks(r, n)
	if err != nil {
		return err
	}
	if len(cluster.Families(r.Instance)) == 1 {
		links = append(links, "culvert0")
	}
	if len(links) == 0 {
		o.Fail("%s has no interfaces of pods", n.Name)
	}
	for _, name := range links {
		if err := noRoutes(r, n, is4, name); err != nil {
			return err
		}
	}
	return nil
}

// wantFamily wants so many addresses, all of one family.
func wantFamily(o *report.Outcome, is4 bool, whose string, list []string, count int) {
	other := slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, ":") == is4 })
	if other || len(list) != count {
		o.Fail("%s has %q: want %d of one family", whose, list, count)
	}
}

// cniResults are what a runtime keeps of ADDs to our network.
func cniResults(r *disturb.Runner, n *topology.Node) (list []types100.Result, err error) {
	dir := filepath.Join(r.File(n, "cni"), "results")
	if n.Kind == topology.Kubelet {
		dir = r.Inside(n, "var/lib/cni/results")
	}
	files, err := filesBelow(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		var one struct {
			Network string          `json:"networkName"`
			Result  types100.Result `json:"result"`
		}
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if one.Network == cluster.PodNetwork {
			list = append(list, one.Result)
		}
	}
	return list, nil
}

// podOfFamily looks into a pod.
func podOfFamily(r *disturb.Runner, p *topology.Node, is4 bool, o *report.Outcome) error {
	var links []struct {
		Addresses []struct {
			Local netip.Addr `json:"local"`
			Scope string     `json:"scope"`
		} `json:"addr_info"`
	}
	if err := network.JSON(r.Instance, p, &links, "address", "show", "dev", topology.PodInterface); err != nil {
		return err
	}
	for _, l := range links {
		for _, a := range l.Addresses {
			if a.Scope == "global" && a.Local.Is4() != is4 {
				o.Fail("%s has the address %v", p.Name, a.Local)
			}
		}
	}
	return noRoutes(r, p, is4, topology.PodInterface)
}

// noRoutes wants a device to have no route of the other family.
func noRoutes(r *disturb.Runner, n *topology.Node, is4 bool, device string) error {
	family := "-4"
	if is4 {
		family = "-6"
	}
	var routes []struct {
		To string `json:"dst"`
	}
	if err := network.JSON(r.Instance, n, &routes, family, "route", "show", "dev", device); err != nil {
		return err
	}
	for _, route := range routes {
		if route.To != "fe80::/64" { // which the kernel gives each interface of IPv6
			return fmt.Errorf("%s has the route %s dev %s", n.Name, route.To, device)
		}
	}
	return nil
}
