package lab

import (
	"context"
	"strings"
)

// podView is what `culvert pod` shows, as far as labs look.
type podView struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

// noPods wants a node of which all pods are detached to have nothing of them left:
// no address and no interface, and so no route.
func (r *runner) noPods(ctx context.Context, c *Check, o *outcome) error {
	n := r.node(c.From)
	var list []podView
	if err := r.askJSON(ctx, n, &list, "pod"); err != nil {
		return err
	}
	if len(list) > 0 {
		o.fail("%s still has pods %v", n.Name, list)
	}
	links, err := r.namespace(n).output("ip", "-br", "link", "show", "type", "veth")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(links)) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], "@")
		if !ownDevice(r.Topology, n, name) {
			o.fail("%s still has the interface %s", n.Name, name)
		}
	}
	return nil
}

// ownDevice says whether an interface is the node's own, and no pod's.
func ownDevice(t *Topology, n *Node, name string) bool {
	if name == "culvert0" || name == "culvert1" {
		return true
	}
	for _, device := range t.devices(n) {
		if device == name {
			return true
		}
	}
	return false
}
