package topology

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Outside is where a lab meets an SMF that is not its own: `culvert lab up --smf`.
type Outside struct {
	Node      string     `json:"node"`      // the UPF
	Interface string     `json:"interface"` // where it hears the SMF
	Via       netip.Addr `json:"via"`       // the next hop to an SMF outside of the lab
}

// UseSMF has the UPF of a lab obey an SMF at an address, and send to it by the next hop that the
// lab names, unless that is the address itself.
func UseSMF(t *Topology, smf netip.Addr) error {
	o := t.Outside
	switch {
	case o == nil:
		return fmt.Errorf("--smf: lab %s has no UPF for an SMF of yours: lab core has one", t.Name)
	case !smf.IsValid() || smf.Zone() != "" || smf.IsLoopback() || smf.IsUnspecified() || smf.IsMulticast():
		return fmt.Errorf("--smf: %s is no address that the UPF can reach", smf)
	case smf.Is4() != o.Via.Is4():
		return fmt.Errorf("--smf: %s and the lab's N4 (%s) are of different families", smf, o.Via)
	case smf == o.Via:
		return nil // it is in the lab's configuration
	}
	n := t.Node(o.Node)
	text := netip.PrefixFrom(smf, smf.BitLen()).String()
	for _, a := range t.Addresses(n) {
		if a == smf {
			return fmt.Errorf("--smf: %s is the address of the UPF itself", smf)
		}
	}
	upf, _ := n.Config["upf"].(map[string]any)
	smfs, _ := upf["smfs"].([]any)
	upf = maps.Clone(upf)
	upf["smfs"] = append(slices.Clone(smfs), text)
	interfaces := slices.Clone(n.Config["interfaces"].([]any)) // Parse has seen that it is there
	for i, item := range interfaces {
		if NameOf(item) != o.Interface {
			continue
		}
		changed := maps.Clone(item.(map[string]any)) // it has a name
		peers, _ := changed["peers"].([]any)
		changed["peers"] = append(slices.Clone(peers), text)
		interfaces[i] = changed
	}
	n.Config = maps.Clone(n.Config)
	n.Config["upf"], n.Config["interfaces"] = upf, interfaces
	n.Routes = append(slices.Clone(n.Routes), fmt.Sprintf("%s via %s", text, o.Via))
	return nil
}

// outside wants what UseSMF changes to be there.
func (v validator) outside(o *Outside) {
	if o == nil {
		return
	}
	n := v.t.Node(o.Node)
	if !v.want(n != nil && n.Daemon(), "node: %q is no node of kind culvert", o.Node) {
		return
	}
	interfaces, _ := n.Config["interfaces"].([]any)
	_, upf := n.Config["upf"].(map[string]any)
	v.want(upf && slices.ContainsFunc(interfaces, func(i any) bool { return NameOf(i) == o.Interface }),
		"interface: %q: %s has no interface of that name in its config, or is no UPF", o.Interface, o.Node)
	v.want(o.Via.IsValid(), "via: missing")
}
