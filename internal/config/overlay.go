package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/srv6"
)

// Overlay makes the node a member of a cluster whose pods reach each other through
// SRv6.
type Overlay struct {
	// Mode says where the other nodes and the paths to them come from: static (nodes),
	// bgp or kube.
	Mode string `json:"mode,omitempty" jsonschema:"enum=static,enum=bgp,enum=kube"`
	// Node is this node's name. Default: the environment variable NODE_NAME, then the
	// host's name.
	Node string `json:"node,omitempty"`
	// Address is this node's IPv6 address in the underlay. Default: a global address
	// of the first uplink.
	Address netip.Addr `json:"address,omitzero"`
	// Uplinks are the interfaces that lead to the other nodes. Default: those of the
	// kernel's routes to them.
	Uplinks []string `json:"uplinks,omitempty"`
	// Locator contains this node's SIDs. Instead, each node can claim a /48 of
	// LocatorPool through the Kubernetes API.
	Locator     netip.Prefix `json:"locator,omitzero"`
	LocatorPool netip.Prefix `json:"locator_pool,omitzero"`
	// SIDs is single if the underlay routes each node's locator: lists have one
	// segment. It is double otherwise: the node's address is the first segment, and
	// the second one need not be routed.
	SIDs string `json:"sids,omitempty" jsonschema:"enum=single,enum=double"`
	// PodPrefixes are the prefixes of this node's pods. Default: the podCIDRs of its
	// Node in the Kubernetes API.
	PodPrefixes []netip.Prefix `json:"pod_prefixes,omitempty"`
	// Masquerade gives packets that leave the cluster, and those that Services lead to
	// other nodes themselves, the node's own address.
	Masquerade bool `json:"masquerade,omitempty"`
	// Nodes lists the nodes in static mode. This node may be among them: its entry
	// sets what is not set above. By default segment lists follow from sids and the
	// locator.
	Nodes []overlay.Node `json:"nodes,omitempty"`
	// Tenants are the tenants of the cluster, the same on all its nodes.
	Tenants []overlay.Tenant `json:"tenants,omitempty"`
	// Accept lists prefixes of what other nodes may say of themselves in the mode kube although
	// the Kubernetes API does not vouch for it: addresses that are no InternalIPs of their Nodes,
	// prefixes of pods outside of their podCIDRs, locators that they have not claimed, and SIDs
	// outside of their locators.
	Accept overlay.Accept `json:"accept,omitzero"`
	Kube   Kube           `json:"kube,omitzero"`
	Flows  Flows          `json:"flows,omitzero"`
}

// Flows records flows of this node's pods, for culvert flow and metrics of workloads.
type Flows struct {
	Enabled bool `json:"enabled,omitempty"`
	// Sampling is of how many packets one is recorded, at random: 1024 unless set. TCP's SYN,
	// FIN and RST are always recorded, and so is what is dropped.
	Sampling uint16 `json:"sampling,omitempty"`
}

// Kube says how to reach the Kubernetes API.
type Kube struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // a file; that of the pod's service account unless set
	Namespace  string `json:"namespace,omitempty"`  // of the ConfigMaps: kube-system unless set
	// NetworkPolicies is enforce (the default) or off: then the node neither watches nor
	// enforces them, and every packet between pods passes.
	NetworkPolicies string `json:"network_policies,omitempty"`
}

// The modes, and the forms of SIDs.
const (
	OverlayStatic = "static"
	OverlayBGP    = "bgp"
	OverlayKube   = "kube"
	SIDsSingle    = "single"
	SIDsDouble    = "double"

	PoliciesEnforce = "enforce"
	PoliciesOff     = "off"

	DefaultKubeNamespace = "kube-system"
)

// IsSet says whether the node is a member of a cluster.
func (o *Overlay) IsSet() bool { return o.Mode != "" }

// UsesKube says whether the node uses the Kubernetes API. In the mode bgp it does for
// the pod prefixes and the locator, unless both are set.
func (o *Overlay) UsesKube() bool {
	return o.Mode == OverlayKube || o.Mode == OverlayBGP && (o.LocatorPool.IsValid() || len(o.PodPrefixes) == 0)
}

// EnforcesPolicies says whether the node enforces NetworkPolicies. It knows them by the
// Kubernetes API only.
func (o *Overlay) EnforcesPolicies() bool {
	return o.UsesKube() && o.Kube.NetworkPolicies != PoliciesOff
}

// checkOverlay validates the section overlay.
func checkOverlay(v *validator) {
	o := &v.Overlay
	if !o.IsSet() {
		anySet := o.Node != "" || o.Address.IsValid() || len(o.Uplinks) > 0 || o.Locator.IsValid() || o.LocatorPool.IsValid() || o.SIDs != "" ||
			len(o.PodPrefixes) > 0 || o.Masquerade || len(o.Nodes) > 0 || len(o.Tenants) > 0 || o.Kube != Kube{} || o.Flows != Flows{} || len(o.Accept.Addresses) > 0 || len(o.Accept.PodPrefixes) > 0 || len(o.Accept.SIDs) > 0
		v.refuse(anySet, "overlay.mode", "static, bgp or kube", "is missing")
		return
	}
	v.oneOf("overlay.mode", o.Mode, OverlayStatic, OverlayBGP, OverlayKube)
	v.oneOf("overlay.sids", o.SIDs, SIDsSingle, SIDsDouble)
	checkNodeName(v, "overlay.node", o.Node)
	v.unicast6("overlay.address", o.Address)
	names := v.unique()
	for i, name := range v.Overlay.Uplinks {
		at := fmt.Sprintf("overlay.uplinks[%d]", i)
		if !v.interfaceName(at, name) {
			continue
		}
		names.check(at, name, "remove one of the two")
		v.refuse(v.interfaces[name] != nil,
			at, "take it out of interfaces: XDP would see a frame before GRO does", "%q is among the interfaces", name)
	}
	checkOverlayLocator(v)
	checkPodPrefixes(v, "overlay.pod_prefixes", o.PodPrefixes)
	v.refuse(o.Mode == OverlayBGP && !v.BGP.IsSet(),
		"overlay.mode", "give the section bgp", "the section bgp is missing: nodes are learned by BGP")
	v.refuse(o.Mode != OverlayStatic && len(o.Nodes) > 0,
		"overlay.nodes", "remove it, or set overlay.mode: static", "the nodes come from %s", o.Mode)
	v.refuse(o.Kube.Kubeconfig != "" && !filepath.IsAbs(o.Kube.Kubeconfig),
		"overlay.kube.kubeconfig", "an absolute path", "%q depends on where the daemon is started", o.Kube.Kubeconfig)
	v.oneOf("overlay.kube.network_policies", o.Kube.NetworkPolicies, PoliciesEnforce, PoliciesOff)
	v.refuse(o.Flows.Sampling != 0 && !o.Flows.Enabled, "overlay.flows.enabled", "true, or remove overlay.flows.sampling", "is missing")
	checkAccept(v)
	checkNodes(v)
	checkTenants(v)
}

func checkAccept(v *validator) {
	a := &v.Overlay.Accept
	for field, list := range map[string][]netip.Prefix{"addresses": a.Addresses, "pod_prefixes": a.PodPrefixes, "sids": a.SIDs} {
		at := "overlay.accept." + field
		v.refuse(len(list) > 0 && v.Overlay.Mode != OverlayKube, at, "remove it, or set overlay.mode: kube", "is for nodes that the Kubernetes API names")
		checkEach(v, at, list, srv6.CheckPrefix)
	}
}

// checkNodeName checks that Kubernetes would accept a name. Others check for "".
func checkNodeName(v *validator, field, name string) {
	const longest = 253
	isValid := len(name) <= longest && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
	v.refuse(!isValid,
		field, fmt.Sprintf("at most %d lower case letters, digits, '-' and '.'", longest), "%q is not a valid node name", name)
}

// claimedLocatorBits is the length of the locator that a node claims in a pool.
// maxLocatorBits leaves room for a function behind a locator.
const (
	claimedLocatorBits = 48
	maxLocatorBits     = 112
)

func checkOverlayLocator(v *validator) {
	o := &v.Overlay
	switch {
	case o.Locator.IsValid() && o.LocatorPool.IsValid():
		v.add("overlay.locator_pool", "remove one of the two", "conflicts with overlay.locator")
	case o.Locator.IsValid():
		checkNodeLocator(v, "overlay.locator", o.Locator)
	case o.LocatorPool.IsValid():
		v.refuse(v.prefix6("overlay.locator_pool", o.LocatorPool) && o.LocatorPool.Bits() >= claimedLocatorBits,
			"overlay.locator_pool", fmt.Sprintf("a prefix of less than %d bits", claimedLocatorBits), "%s holds one locator only", o.LocatorPool)
		v.refuse(o.Mode == OverlayStatic,
			"overlay.locator_pool", "give overlay.locator", "only the Kubernetes API gives nodes parts of a pool")
	case o.Mode != OverlayStatic:
		v.add("overlay.locator", "give overlay.locator of this node, or overlay.locator_pool of all", "is missing")
	}
}

func checkNodeLocator(v *validator, at string, p netip.Prefix) {
	v.refuse(v.prefix6(at, p) && p.Bits() > maxLocatorBits,
		at, fmt.Sprintf("a prefix of at most %d bits", maxLocatorBits), "%s leaves no room for functions", p)
}

// checkPodPrefixes requires room for the node's own address and a pod's.
func checkPodPrefixes(v *validator, field string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		at := fmt.Sprintf("%s[%d]", field, i)
		if !v.fieldsAt(at, srv6.CheckPrefix(at, p)) {
			continue
		}
		v.refuse(p.Addr().BitLen()-p.Bits() < 2, at, "a shorter prefix", "%s has no room for pods", p)
		v.refuse(p.Bits() == 0, at, "the prefix of the pods", "%s is every address", p)
	}
}

func checkNodes(v *validator) {
	names, addresses := v.unique(), v.unique()
	for i, n := range v.Overlay.Nodes {
		at := fmt.Sprintf("overlay.nodes[%d]", i)
		v.refuse(n.Name == "", at+".name", "give each node its name", "is missing")
		checkNodeName(v, at+".name", n.Name)
		names.check(at+".name", n.Name, "give each node once")
		if v.fieldsAt(at+".address", srv6.CheckUnicast6("address", n.Address)) {
			addresses.check(at+".address", n.Address.String(), "give each node its own address")
		}
		checkEach(v, at+".addresses", n.Addresses, srv6.CheckUnicast)
		checkPodPrefixes(v, at+".prefixes", n.Prefixes)
		// The node needs a locator, or segment lists.
		switch {
		case n.Locator.IsValid():
			checkNodeLocator(v, at+".locator", n.Locator)
		case len(n.IPv4) == 0 && len(n.IPv6) == 0:
			v.add(at+".locator", "give the node's locator, or the segment lists ipv4 and ipv6", "is missing")
		}
		for field, list := range map[string][]netip.Addr{".ipv4": n.IPv4, ".ipv6": n.IPv6} {
			v.refuse(len(list) > 2, at+field, "one segment, or that of the node and one", "has %d segments", len(list))
			checkEach(v, at+field, list, srv6.CheckUnicast6)
		}
		v.unicast6(at+".bsid4", n.BSID4)
		v.unicast6(at+".bsid6", n.BSID6)
	}
}

// longestLabel is the length of a label in DNS (RFC 1123), and so of a namespace's name.
const longestLabel = 63

func checkTenants(v *validator) {
	o := &v.Overlay
	names, ids := v.unique(), v.unique()
	for i, t := range o.Tenants {
		at := fmt.Sprintf("overlay.tenants[%d]", i)
		if v.fieldsAt(at+".name", srv6.CheckName("name", t.Name)) {
			names.check(at+".name", t.Name, "give each tenant once")
		}
		v.refuse(t.ID == 0, at+".id", "a number of 1 to 255 that no other tenant has", "is missing")
		if t.ID != 0 {
			ids.check(at+".id", strconv.Itoa(int(t.ID)), "give each tenant a number of its own")
		}
		v.refuse(len(t.Namespaces) == 0,
			at+".namespaces", "list the namespaces whose pods may join: nobody else may", "is missing")
		for j, name := range t.Namespaces {
			isValid := name != "" && len(name) <= longestLabel && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
			v.refuse(!isValid, fmt.Sprintf("%s.namespaces[%d]", at, j), "the name of a namespace of Kubernetes", "%q is none", name)
		}
		v.refuse(len(t.Pools) == 0,
			at+".pools", "a prefix as long as that of all pods, such as 10.9.0.0/16 beside 10.244.0.0/16", "is missing")
		checkPodPrefixes(v, at+".pools", t.Pools)
		for j, p := range t.Pools {
			for k, q := range t.Pools[:j] {
				v.refuse(p.Overlaps(q), fmt.Sprintf("%s.pools[%d]", at, j), "remove one of the two", "%s overlaps with pools[%d]", p, k)
			}
		}
		checkEach(v, at+".routes", t.Routes, srv6.CheckPrefix)
		checkTenantVPN(v, at, t)
		v.refuse(o.Mode == OverlayStatic && !o.Locator.IsValid() && len(o.Nodes) == 0,
			at, "give overlay.locator: a tenant's SIDs are in it", "needs a locator")
	}
}

// checkTenantVPN checks what BGP peers hear of a tenant.
func checkTenantVPN(v *validator, at string, t overlay.Tenant) {
	isSet := t.Distinguisher != "" || len(t.Import) > 0 || len(t.Export) > 0
	v.refuse(isSet && v.Overlay.Mode != OverlayBGP,
		at+".route_distinguisher", "remove route_distinguisher and targets, or set overlay.mode: bgp", "is for BGP peers, and overlay.mode is %s", v.Overlay.Mode)
	if t.Distinguisher != "" {
		checkAdministered(v, at+".route_distinguisher", t.Distinguisher)
	}
	for field, list := range map[string][]string{"import": t.Import, "export": t.Export} {
		for i, target := range list {
			checkAdministered(v, fmt.Sprintf("%s.%s_targets[%d]", at, field, i), target)
		}
	}
	v.refuse(v.Overlay.Mode == OverlayBGP && v.Overlay.SIDs == SIDsDouble,
		at, "set overlay.sids: single", "a route of a VPN names one SID, and overlay.sids is double")
}
