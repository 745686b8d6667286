package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
)

func (x *CounterExpect) validate() error {
	if !slices.Contains([]string{"", "sent", "received", "some", "none"}, x.Packets) {
		return fmt.Errorf("packets: %q: use sent, received, some or none", x.Packets)
	}
	if x.Slice != "" && x.Direction != "uplink" && x.Direction != "downlink" {
		return fmt.Errorf("direction: %q: use uplink or downlink, of a slice", x.Direction)
	}
	return nil
}

// checkNames are the kinds of checks.
var checkNames = []string{
	"adjacency", "cni_status", "culvert", "echo", "end_marker", "kubectl", "leftovers", "n4", "one_family",
	"ospf", "ping", "pods", "route", "shows", "spread", "tcp", "udp",
}

// reportNames are the kinds of reports that an SMF gets.
var reportNames = []string{"downlink_data", "error_indication", "hosts", "path_failed", "path_lost", "restarted", "usage"}

func (t *Topology) validateCheck(c *Check) error {
	if c.Name == "" {
		return fmt.Errorf("name: missing")
	}
	if !slices.Contains(checkNames, c.Kind) {
		return fmt.Errorf("kind: %q: use one of %s", c.Kind, strings.Join(checkNames, ", "))
	}
	if err := t.validateNodes(c); err != nil {
		return err
	}
	if c.Kind == "kubectl" {
		if err := t.validateCommand(c.Kubectl); err != nil {
			return err
		}
	}
	if c.Kind == "leftovers" && len(t.Kubelets()) == 0 {
		return fmt.Errorf("leftovers: the lab has no node of kind kubelet")
	}
	if c.Kind == "one_family" && len(c.Families) != 1 {
		return fmt.Errorf("families: one_family is about one of them")
	}
	if n := t.Node(c.From); c.Kind == "ospf" && (n.FRR == nil || !slices.Contains(n.FRR.Daemons, "ospf6d")) {
		return fmt.Errorf("from: %q does not run ospf6d", c.From)
	}
	if err := t.wantVariants(c.Variants); err != nil {
		return err
	}
	for _, x := range c.Counters {
		if err := t.wantVariants(x.Variants); err != nil {
			return fmt.Errorf("counters: %w", err)
		}
	}
	if err := t.validateExpect(c); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	for field, list := range map[string][]Event{"event": c.AllEvents(), "before": c.Before, "after": c.After} {
		for i := range list {
			if err := t.validateEvent(&list[i]); err != nil {
				return fmt.Errorf("%s: %w", field, err)
			}
		}
	}
	return nil
}

// validateNodes wants the nodes that a check names to be there, and to be what
// it takes them for.
func (t *Topology) validateNodes(c *Check) error {
	var nodes []string
	switch c.Kind {
	case "n4": // it is about the SMFs that its events name
	case "kubectl", "culvert", "leftovers": // about the whole cluster
	default:
		nodes = append(nodes, c.From)
	}
	if c.At != "" {
		nodes = append(nodes, c.At)
	}
	for _, w := range c.Also {
		nodes = append(nodes, w.From, w.At)
	}
	culverts := slices.Clone(c.Accounts)
	for _, x := range c.Counters {
		if n := t.Node(x.Node); n == nil || !n.Counts() {
			culverts = append(culverts, x.Node)
		}
		if err := x.validate(); err != nil {
			return fmt.Errorf("counters: %w", err)
		}
	}
	for _, name := range nodes {
		if t.Node(name) == nil {
			return fmt.Errorf("no node is called %q", name)
		}
	}
	for _, name := range culverts {
		if err := t.wantCulvert(name); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topology) wantCulvert(name string) error {
	if n := t.Node(name); n == nil || !n.Culvert() {
		return fmt.Errorf("%q is no node of kind culvert, cluster or kubelet", name)
	}
	return nil
}

// wantEndpoint wants a node to have GTP-U links of these names.
func (t *Topology) wantEndpoint(name string, devices ...string) error {
	n := t.Node(name)
	if n == nil {
		return fmt.Errorf("no node is called %q", name)
	}
	for _, device := range devices {
		if !slices.ContainsFunc(n.GTPU, func(l gtpulink.Link) bool { return l.Device == device }) {
			return fmt.Errorf("%s has no GTP-U link %q", name, device)
		}
	}
	return nil
}

func (t *Topology) validateExpect(c *Check) error {
	if x := c.Expect.Rate; x != nil && (c.Kind != "udp" || x.Kbits <= 0 || x.Tolerance <= 0) {
		return fmt.Errorf("rate: give kbit_s and tolerance, of a check of kind udp")
	}
	if h := c.Expect.Handover; h != nil {
		if err := t.wantEndpoint(h.Node, h.From, h.To); err != nil {
			return fmt.Errorf("handover: %w", err)
		}
	}
	if u := c.Expect.Usage; u != nil {
		if _, err := t.group(u.SMF, u.Sessions); err != nil {
			return fmt.Errorf("usage: %w", err)
		}
		if c.Kind != "udp" || len(c.Also) > 0 || len(t.Node(c.From).GTPU) == 0 {
			return fmt.Errorf("usage: it is compared with one stream (udp) from a node with GTP-U links")
		}
	}
	for _, x := range c.Expect.Reports {
		if t.SMF(x.SMF) == nil {
			return fmt.Errorf("reports: no SMF is called %q", x.SMF)
		}
		if !slices.Contains(reportNames, x.Kind) {
			return fmt.Errorf("reports: kind: %q: use one of %s", x.Kind, strings.Join(reportNames, ", "))
		}
	}
	return nil
}
