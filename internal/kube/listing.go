package kube

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// ListingLabel marks the ConfigMaps with SR policies: `kubectl get configmaps -l`
// finds them.
const ListingLabel = Group + "/policies"

// ListingName is the name of the ConfigMap with the SR policies of a node.
func ListingName(node string) string { return "srv6-policies-" + node }

// Listing is what the ConfigMap of a node says, under whatever key: its local
// SIDs, and the SR policies by which it reaches others.
type Listing struct {
	LocalSIDs LocalSIDs `json:"localsids,omitzero"`
	Node      string    `json:"node"`
	Policies  []Listed  `json:"policies,omitempty"`
}

// Listed is a candidate path of a Listing.
type Listed struct {
	Name       string     `json:"name,omitempty"` // of the traffic and the egress node unless set
	EgressNode string     `json:"egress_node"`    // an address of the underlay, or a name
	Traffic    Traffic    `json:"traffic"`
	BSID       netip.Addr `json:"bsid,omitzero"`
	Preference uint32     `json:"preference,omitempty"` // DefaultPreference unless set
	// One list of segments, or several with their weights.
	SegmentList  []netip.Addr           `json:"segment_list,omitempty"`
	SegmentLists []srpolicy.SegmentList `json:"segment_lists,omitempty"`
	srpolicy.DelayConstraint
}

// Traffic is what a policy to a node carries.
type Traffic string

// What a policy to a node can carry.
const (
	IPv4 Traffic = "IPv4"
	IPv6 Traffic = "IPv6"
)

// UnmarshalText takes the two names, spelled as here.
func (t *Traffic) UnmarshalText(text []byte) error {
	switch *t = Traffic(text); *t {
	case IPv4, IPv6:
		return nil
	}
	return fmt.Errorf("%q is no traffic: give IPv4 or IPv6", text)
}

// color is that of the policies that carry the traffic.
func (t Traffic) color() uint32 {
	if t == IPv4 {
		return overlay.ColorIPv4
	}
	return overlay.ColorIPv6
}

// trafficOf is the reverse; "" for another color.
func trafficOf(color uint32) Traffic {
	return map[uint32]Traffic{overlay.ColorIPv4: IPv4, overlay.ColorIPv6: IPv6}[color]
}

// entry is a candidate path as it was written: its endpoint may still be a name.
type entry struct {
	name   string // in what it was written
	egress string
	path   Path
}

// fault is something wrong in a field. It has the form of config's.
func fault(field, fix, format string, args ...any) config.Error {
	return config.Error{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix}
}

// readListing reads the data of node's ConfigMap, all of it, or says all that is
// wrong with it by key, line and field. before is what was read last, or nil.
func readListing(data map[string]string, node string, before *reading) (r *reading, err error) {
	if len(data) != 1 {
		return nil, fmt.Errorf("data: has %d keys: give one, with the policies of the node as YAML", len(data))
	}
	for key, text := range data {
		if r, ok := before.next(text, node); ok {
			return r, nil
		}
		if r, err = parseListing(text, node); err != nil {
			err = fmt.Errorf("data[%s]: %w", key, err)
		}
	}
	return r, err
}

func parseListing(text, node string) (*reading, error) {
	var l Listing
	lines, err := config.Unmarshal([]byte(text), &l)
	if err != nil {
		return nil, err
	}
	var faults []config.Error
	sids := l.LocalSIDs
	for _, sid := range []struct {
		name string
		addr netip.Addr
	}{{"DT4", sids.DT4}, {"DT6", sids.DT6}, {"DT46", sids.DT46}} {
		if sid.addr.IsValid() {
			faults = append(faults, faultsOf(srv6.CheckUnicast6("localsids."+sid.name, sid.addr))...)
		}
	}
	if sids.DT4.IsValid() && sids.DT4 == sids.DT6 {
		faults = append(faults, fault("localsids.DT6", "give DT46 in place of both", "is that of DT4, which takes no IPv6"))
	}
	switch l.Node {
	case node:
	case "":
		faults = append(faults, fault("node", "node: "+node, "is missing"))
	default:
		faults = append(faults, fault("node", "node: "+node, "is %q, but this is the ConfigMap of %s", l.Node, node))
	}
	entries := make([]entry, len(l.Policies))
	names := map[string]int{}
	for i, p := range l.Policies {
		at := fmt.Sprintf("policies[%d]", i)
		var wrong []config.Error
		entries[i], wrong = p.read(node)
		for _, f := range wrong {
			f.Field = at + "." + f.Field
			faults = append(faults, f)
		}
		if first, twice := names[entries[i].name]; twice {
			faults = append(faults, fault(at+".name", "give each path a name of its own", "%q is that of policies[%d]", entries[i].name, first))
			continue
		}
		names[entries[i].name] = i
	}
	if len(faults) > 0 {
		return nil, lines.Of(config.Errors(faults))
	}
	return newReading(text, l.LocalSIDs, entries, lines), nil
}

func faultsOf(errs []srv6.FieldError) (faults []config.Error) {
	for _, e := range errs {
		faults = append(faults, fault(e.Field, e.Fix, "%s", e.Problem))
	}
	return faults
}

// read makes an entry of what is listed.
func (l Listed) read(node string) (entry, []config.Error) {
	w := written{
		origin: "configmap", name: l.Name, egress: l.EgressNode, traffic: l.Traffic, preference: l.Preference, bsid: l.BSID,
		lists: l.SegmentLists, delay: l.DelayConstraint, fields: strings.NewReplacer("binding_sid", "bsid"),
	}
	var faults []config.Error
	if len(l.SegmentList) > 0 {
		if len(l.SegmentLists) > 0 {
			faults = append(faults, fault("segment_lists", "keep one of the two", "stands beside segment_list"))
		}
		w.lists = []srpolicy.SegmentList{{Segments: l.SegmentList}}
		w.fields = strings.NewReplacer("binding_sid", "bsid", "segment_lists[0].segments", "segment_list")
	}
	e, wrong := w.read(node)
	return e, append(faults, wrong...)
}

// written is a candidate path as it is written, in either form.
type written struct {
	origin, name, egress string
	traffic              Traffic
	color                uint32 // in the place of traffic
	preference           uint32
	bsid                 netip.Addr
	lists                []srpolicy.SegmentList
	delay                srpolicy.DelayConstraint
	fields               *strings.Replacer // egress_node and srpolicy's names into the form's
}

// read checks what was written.
func (w written) read(node string) (entry, []config.Error) {
	faults := w.checkEgress(node)
	switch {
	case w.traffic == "" && w.color == 0:
		faults = append(faults, fault("traffic", "IPv4 or IPv6", "is missing"))
	case w.traffic != "" && w.color != 0:
		faults = append(faults, fault("color", "keep traffic or color", "stands beside traffic"))
	}
	name := w.name
	if name == "" {
		name = defaultName(w.traffic, w.egress)
	} else {
		faults = append(faults, faultsOf(srv6.CheckName("name", name))...)
	}
	a := srpolicy.Advertised{Color: cmp.Or(w.color, w.traffic.color()), Endpoint: netip.IPv6Unspecified(), Name: name,
		Preference: cmp.Or(w.preference, DefaultPreference), BindingSID: w.bsid, SegmentLists: weighted(w.lists)}
	faults = append(faults, faultsOf(a.Validate())...)
	faults = append(faults, faultsOf(w.delay.Check())...)
	for i := range faults {
		faults[i].Field = w.fields.Replace(faults[i].Field)
	}
	return entry{name, w.egress, Path{Name: pathName(w.origin, name), Advertised: a, DelayConstraint: w.delay}}, faults
}

// weighted fills in the weights that are not set, so that nobody else has to each
// time that paths are looked at.
func weighted(lists []srpolicy.SegmentList) []srpolicy.SegmentList {
	out := slices.Clone(lists)
	for i := range out {
		out[i].Weight = out[i].EffectiveWeight()
	}
	return out
}

func (w written) checkEgress(node string) []config.Error {
	const field, fix = "egress_node", "give the address or the name of the node at the far end"
	endpoint, err := netip.ParseAddr(w.egress)
	switch {
	case w.egress == "":
		return []config.Error{fault(field, fix, "is missing")}
	case w.egress == node:
		return []config.Error{fault(field, fix, "%s is this node", node)}
	case err == nil:
		return faultsOf(srv6.CheckUnicast6(field, endpoint))
	case !isNodeName(w.egress):
		return []config.Error{fault(field, fix, "%q is neither an IPv6 address nor a node's name", w.egress)}
	}
	return nil
}

// defaultName is that of a path which has none: "ipv6:node-2".
func defaultName(t Traffic, egress string) string {
	return strings.ToLower(string(t)) + ":" + egress
}

// pathName is what the node knows a path by.
func pathName(origin, name string) string {
	full := origin + ":" + name
	if len(full) > srv6.MaxNameLength {
		sum := sha256.Sum256([]byte(full))
		full = fmt.Sprintf("%s:%x", origin, sum[:16])
	}
	return full
}

// isNodeName: Kubernetes would take it for a Node.
func isNodeName(name string) bool {
	return name != "" && len(name) <= 253 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}
