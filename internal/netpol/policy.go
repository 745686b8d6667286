package netpol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
)

// Protocols that rules know.
const (
	TCP  = 6
	UDP  = 17
	SCTP = 132
)

// everything is what a rule without ports allows.
var everything = Ports{First: 0, Last: maxPort}

const maxPort = 65535

// Policy is a NetworkPolicy. Once made it does not change.
type Policy struct {
	Namespace, Name string
	// Problems are what of it cannot be used. An unusable rule allows nothing.
	Problems []string

	id       uint64   // that no other one has
	prefixes int      // of ipBlocks, with their exceptions
	pods     selector // whom it isolates
	isolates [2]bool
	rules    [2][]rule
}

// direction is that of packets, as the pod sees it that a policy selects.
type direction int

const (
	ingress direction = iota
	egress
)

func (d direction) String() string { return [...]string{"ingress", "egress"}[d] }

// rule allows packets of its peers to its ports.
type rule struct {
	index int // in its policy, from 0
	// everybody: it is for all addresses, those of nobody too. Then it has no peers.
	everybody bool
	peers     []peer
	ports     []Ports
	named     []namedPort
}

// namedPort is a port by the name that the containers give it.
type namedPort struct {
	name     string
	protocol uint8
}

// peer is whom a rule is for: pods, or the addresses of a prefix.
type peer struct {
	pods bool
	// Pods are of the namespace, or of the namespaces selected if that is empty.
	namespace  string
	namespaces selector
	selected   selector

	block  netip.Prefix
	except []netip.Prefix
}

// The API's fields. Rules are read one by one, so that an unusable one does not take the
// others with it.
type (
	policySpec struct {
		PodSelector labelSelector     `json:"podSelector"`
		Ingress     []json.RawMessage `json:"ingress"`
		Egress      []json.RawMessage `json:"egress"`
		PolicyTypes []string          `json:"policyTypes"`
	}
	ruleSpec struct {
		From  []peerSpec `json:"from"`
		To    []peerSpec `json:"to"`
		Ports []portSpec `json:"ports"`
	}
	peerSpec struct {
		PodSelector       *labelSelector `json:"podSelector"`
		NamespaceSelector *labelSelector `json:"namespaceSelector"`
		IPBlock           *struct {
			CIDR   string   `json:"cidr"`
			Except []string `json:"except"`
		} `json:"ipBlock"`
	}
	portSpec struct {
		Protocol *string         `json:"protocol"`
		Port     json.RawMessage `json:"port"`
		EndPort  *int            `json:"endPort"`
	}
)

// strict reads JSON. A field that it does not know makes a rule narrower than it reads: so
// that is an error.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// Compare orders policies by when they were made.
func (p *Policy) Compare(o *Policy) int { return cmp.Compare(p.id, o.id) }

// made counts policies.
var made atomic.Uint64

// NewPolicy makes a policy of its spec as JSON. A policy whose spec cannot be read isolates
// all pods of its namespace, in both directions, and allows nothing.
func NewPolicy(namespace, name string, spec []byte) *Policy {
	p := &Policy{Namespace: namespace, Name: name, id: made.Add(1)}
	var s policySpec
	err := strict(spec, &s)
	if err == nil {
		p.pods, err = s.PodSelector.selector()
		if err != nil {
			err = fmt.Errorf("podSelector: %w", err)
		}
	}
	if err != nil {
		p.isolates = [2]bool{true, true}
		p.Problems = append(p.Problems, fmt.Sprintf("spec: %v: it isolates all pods of the namespace", err))
		return p
	}
	p.isolates = [2]bool{ingress: len(s.PolicyTypes) == 0, egress: len(s.PolicyTypes) == 0 && len(s.Egress) > 0}
	for i, t := range s.PolicyTypes {
		switch t {
		case "Ingress":
			p.isolates[ingress] = true
		case "Egress":
			p.isolates[egress] = true
		default:
			p.Problems = append(p.Problems, fmt.Sprintf("spec.policyTypes[%d]: %q is neither Ingress nor Egress", i, t))
		}
	}
	for d, rules := range [2][]json.RawMessage{s.Ingress, s.Egress} {
		for i, text := range rules {
			r, err := p.rule(direction(d), text)
			if err != nil {
				p.Problems = append(p.Problems, fmt.Sprintf("spec.%s[%d]: %v: the rule allows nothing", direction(d), i, err))
				continue
			}
			r.index = i
			p.rules[d] = append(p.rules[d], r)
			for _, peer := range r.peers {
				if !peer.pods {
					p.prefixes += 1 + len(peer.except)
				}
			}
		}
	}
	return p
}

// rule reads one of its rules.
func (p *Policy) rule(d direction, text []byte) (r rule, err error) {
	var s ruleSpec
	if err := strict(text, &s); err != nil {
		return r, err
	}
	field, peers, others := "from", s.From, s.To
	if d == egress {
		field, peers, others = "to", s.To, s.From
	}
	if len(others) > 0 {
		return r, fmt.Errorf("an %s rule has %s only", d, field)
	}
	r.everybody = len(peers) == 0
	for i, spec := range peers {
		one, err := spec.peer(p.Namespace)
		if err != nil {
			return r, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		r.peers = append(r.peers, one)
	}
	if len(s.Ports) == 0 {
		r.ports = []Ports{everything}
	}
	for i, spec := range s.Ports {
		ports, named, err := spec.ports()
		switch {
		case err != nil:
			return r, fmt.Errorf("ports[%d]: %w", i, err)
		case named.name != "":
			r.named = append(r.named, named)
		default:
			r.ports = append(r.ports, ports)
		}
	}
	return r, nil
}

func (s peerSpec) peer(namespace string) (p peer, err error) {
	if s.IPBlock != nil {
		if s.PodSelector != nil || s.NamespaceSelector != nil {
			return p, errors.New("ipBlock goes with no selector")
		}
		if p.block, err = cidr(s.IPBlock.CIDR); err != nil {
			return p, fmt.Errorf("ipBlock.cidr: %w", err)
		}
		for i, text := range s.IPBlock.Except {
			e, err := cidr(text)
			if err != nil {
				return p, fmt.Errorf("ipBlock.except[%d]: %w", i, err)
			}
			p.except = append(p.except, e)
		}
		slices.SortFunc(p.except, netip.Prefix.Compare)
		return p, nil
	}
	if s.PodSelector == nil && s.NamespaceSelector == nil {
		return p, errors.New("it has neither podSelector, namespaceSelector nor ipBlock")
	}
	p.pods = true
	if s.PodSelector != nil {
		if p.selected, err = s.PodSelector.selector(); err != nil {
			return p, fmt.Errorf("podSelector: %w", err)
		}
	}
	if s.NamespaceSelector == nil {
		p.namespace = namespace
		return p, nil
	}
	if p.namespaces, err = s.NamespaceSelector.selector(); err != nil {
		return p, fmt.Errorf("namespaceSelector: %w", err)
	}
	return p, nil
}

// cidr reads a prefix. Bits behind its length do not count.
func cidr(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, err
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%s is an IPv4 address in an IPv6 one: write it as IPv4", text)
	}
	return p.Masked(), nil
}

// ports are those by number, or the one by name.
func (s portSpec) ports() (out Ports, named namedPort, err error) {
	out = Ports{Protocol: TCP, Last: maxPort}
	if s.Protocol != nil {
		var known bool
		if out.Protocol, known = ProtocolByName(*s.Protocol); !known {
			return out, named, fmt.Errorf("protocol: %q is none of TCP, UDP, SCTP", *s.Protocol)
		}
	}
	if len(s.Port) == 0 || string(s.Port) == "null" {
		if s.EndPort != nil {
			return out, named, errors.New("endPort needs a port")
		}
		return out, named, nil
	}
	var number int
	var name string
	if json.Unmarshal(s.Port, &name) == nil {
		if s.EndPort != nil {
			return out, named, errors.New("endPort does not go with a port's name")
		}
		if name == "" {
			return out, named, errors.New("port: the name is empty")
		}
		return out, namedPort{name, out.Protocol}, nil
	}
	if err := json.Unmarshal(s.Port, &number); err != nil {
		return out, named, fmt.Errorf("port: %s is neither a number nor a name", s.Port)
	}
	last := number
	if s.EndPort != nil {
		last = *s.EndPort
	}
	if number < 1 || number > maxPort || last < number || last > maxPort {
		return out, named, fmt.Errorf("port: %d to %d is no range within 1 to %d", number, last, maxPort)
	}
	out.First, out.Last = uint16(number), uint16(last)
	return out, named, nil
}

// ProtocolByName is the number of TCP, UDP or SCTP. An empty name is TCP.
func ProtocolByName(name string) (number uint8, known bool) {
	switch name {
	case "", "TCP":
		return TCP, true
	case "UDP":
		return UDP, true
	case "SCTP":
		return SCTP, true
	}
	return 0, false
}

// ProtocolName is the reverse, or the number.
func ProtocolName(number uint8) string {
	switch number {
	case 1:
		return "ICMP"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return strconv.Itoa(int(number))
}

// selects says whether it isolates a pod in a direction.
func (p *Policy) selects(d direction, pod *Pod) bool {
	return p.isolates[d] && p.Namespace == pod.Namespace && p.pods.matches(pod.Labels)
}
