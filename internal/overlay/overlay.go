// Package overlay computes the pod overlay of a cluster: what a node advertises to the
// others, and the SIDs, SR policies, steering entries and kernel routes that it needs
// to reach them.
//
// Self describes this node, Cluster what it has learned about the others. Remote and
// Self.SIDs are pure functions of these values. The package has no state, no locks
// and no goroutines.
package overlay

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Node is what a node of the cluster advertises to the others.
type Node struct {
	Name string `json:"name"`
	// Address is the node's IPv6 address in the underlay: the outer source, and the
	// endpoint of the policies to the node.
	Address netip.Addr `json:"address,omitzero"`
	// Addresses are the node's other addresses, of either family. What pods send to
	// them stays in the cluster and is not masqueraded.
	Addresses []netip.Addr   `json:"addresses,omitempty"`
	Prefixes  []netip.Prefix `json:"prefixes,omitempty"` // of its pods
	Locator   netip.Prefix   `json:"locator,omitzero"`
	// IPv4 and IPv6 are the segment lists to its End.DT4 and End.DT6, of one or two
	// segments.
	IPv4 []netip.Addr `json:"ipv4,omitempty"`
	IPv6 []netip.Addr `json:"ipv6,omitempty"`
	// BSID4 and BSID6 are the binding SIDs that it suggests for the policies to it.
	BSID4 netip.Addr `json:"bsid4,omitzero"`
	BSID6 netip.Addr `json:"bsid6,omitzero"`
	// Former is the address from which the node sends until the others know Address. Only what
	// a node publishes in Kubernetes has it.
	Former netip.Addr `json:"-"`
	// Refused is why nothing of the node is used, Faults are parts that are left out. Vouch
	// sets both: nodes advertise neither.
	Refused string   `json:"-"`
	Faults  []string `json:"-"`
}

// Destination is a prefix in the table of a tenant, or with Tenant 0 in the cluster's.
type Destination struct {
	Tenant uint8
	Prefix netip.Prefix
}

// String is the key of steering to it: "10.9.2.0/24", or "10.9.2.0/24@tenant/7".
func (d Destination) String() string {
	return srpolicy.Steering{Prefix: d.Prefix, Tenant: d.Tenant}.Key()
}

// ParseDestination is the reverse of String.
func ParseDestination(text string) (d Destination, err error) {
	prefix, tenant, found := strings.Cut(text, "@tenant/")
	if found {
		id, err := strconv.ParseUint(tenant, 10, 8)
		if err != nil {
			return d, fmt.Errorf("%q: a tenant has an id of 1 to 255", text)
		}
		d.Tenant = uint8(id)
	}
	d.Prefix, err = netip.ParsePrefix(prefix)
	return d, err
}

// Reach says that Prefix is behind the node with Address.
type Reach struct {
	Tenant  uint8        `json:"tenant,omitempty"` // 0: the cluster's own
	Prefix  netip.Prefix `json:"prefix"`
	Address netip.Addr   `json:"address"`
	From    netip.Addr   `json:"from,omitzero"` // the peer that advertised it
	// Segments lead to the prefix's own SID, of a layer-3 service (RFC 9252). Without
	// them packets take the policies to Address.
	Segments []netip.Addr `json:"segments,omitempty"`
}

// Destination is where it leads.
func (r Reach) Destination() Destination { return Destination{r.Tenant, r.Prefix} }

// Rival is an advertised prefix that is not used, because another node has it.
type Rival struct {
	Reach
	Owner netip.Addr // whose is used; not valid: this node's
	Why   string
}

// Colors of the policies to a node, by what they carry.
const (
	ColorIPv4 = 4
	ColorIPv6 = 6
)
