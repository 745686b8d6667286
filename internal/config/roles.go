package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

// Role says what may enter by an interface (docs/adr/0019-ports-have-roles.md).
type Role string

// The roles.
const (
	RoleN3   Role = "n3"   // GTP-U from gNBs
	RoleN9   Role = "n9"   // GTP-U from other UPFs
	RoleN6   Role = "n6"   // packets for UEs
	RoleN4   Role = "n4"   // PFCP
	RoleSR   Role = "sr"   // inside of the SR domain: packets for local SIDs
	RoleEdge Role = "edge" // outside of the SR domain: packets that are steered
	RoleAny  Role = "any"  // no guard: everything
)

// Roles are all of them.
var Roles = []Role{RoleN3, RoleN9, RoleN6, RoleN4, RoleSR, RoleEdge, RoleAny}

// HasRole says whether the interface has one of some roles.
func (in *Interface) HasRole(roles ...Role) bool {
	return slices.ContainsFunc(in.Roles, func(r Role) bool { return slices.Contains(roles, r) })
}

// PortOf returns an interface as the data path guards it: by a port for N4 the SMFs may
// send GTP-U, too, such as router advertisements for UEs.
func (c *Config) PortOf(in Interface) Interface {
	if in.HasRole(RoleN4) && c.UPF.IsSet() {
		if !in.HasRole(RoleN3, RoleN9) {
			in.Roles = append(slices.Clone(in.Roles), RoleN3)
		}
		in.Peers = in.Peers.with(c.UPF.SMFs)
	}
	return in
}

// HostList lists services. In files the word "any" may stand for [any].
type HostList []string

// HostAccess says what of this host can be reached by an interface.
type HostAccess struct {
	Services []HostService
	Any      bool // everything that is for this host
	Forward  bool // the kernel may forward packets that are for others
}

// HostService is a protocol, and a port where it has ports.
type HostService struct {
	Protocol uint8
	Port     uint16
	// Answers of a server elsewhere to TCP connections from this host come in, too.
	Answers bool
}

// Numbers of IP protocols.
const (
	protocolICMP   = 1
	protocolTCP    = 6
	protocolUDP    = 17
	protocolICMPv6 = 58
	protocolOSPF   = 89
	protocolVRRP   = 112
)

// hostServices are those that have a name.
var hostServices = map[string][]HostService{
	"bfd":  {{Protocol: protocolUDP, Port: 3784}, {Protocol: protocolUDP, Port: 4784}},
	"bgp":  {{Protocol: protocolTCP, Port: 179, Answers: true}},
	"dhcp": {{Protocol: protocolUDP, Port: 68}, {Protocol: protocolUDP, Port: 546}},
	"ntp":  {{Protocol: protocolUDP, Port: 123}},
	"ospf": {{Protocol: protocolOSPF}},
	"ping": {{Protocol: protocolICMP}, {Protocol: protocolICMPv6}},
	"ssh":  {{Protocol: protocolTCP, Port: 22}},
	"vrrp": {{Protocol: protocolVRRP}},
}

const (
	hostAny     = "any"
	hostForward = "forward"
)

// hostWords are what `host` may list besides tcp/PORT and udp/PORT.
func hostWords() []string {
	words := []string{hostAny, hostForward}
	for name := range hostServices {
		words = append(words, name)
	}
	slices.Sort(words)
	return words
}

// HostAccess returns what the field host says.
func (in *Interface) HostAccess() (a HostAccess, err error) {
	for _, word := range in.Host {
		switch {
		case word == hostAny:
			a.Any, a.Forward = true, true
		case word == hostForward:
			a.Forward = true
		case hostServices[word] != nil:
			a.Services = append(a.Services, hostServices[word]...)
		default:
			s, err := parseHostService(word)
			if err != nil {
				return a, err
			}
			a.Services = append(a.Services, s)
		}
	}
	return a, nil
}

// parseHostService reads tcp/PORT or udp/PORT.
func parseHostService(word string) (s HostService, err error) {
	protocol, port, _ := strings.Cut(word, "/")
	n, err := strconv.ParseUint(port, 10, 16)
	known := map[string]uint8{"tcp": protocolTCP, "udp": protocolUDP}[protocol]
	if err != nil || n == 0 || known == 0 {
		return s, fmt.Errorf("%q is not a service", word)
	}
	return HostService{Protocol: known, Port: uint16(n)}, nil
}

// SRDomain are the prefixes of the SR domain: the field domain, and where an interface is
// inside the domain or at its edge, the locators, the pool that they are from, and SIDs
// that are elsewhere. Of more than the data path holds it returns one too many.
func (c *Config) SRDomain() []netip.Prefix {
	list := slices.Clone(c.Domain)
	if !slices.ContainsFunc(c.Interfaces, func(in Interface) bool { return in.HasRole(RoleSR, RoleEdge) }) {
		return list
	}
	add := func(p netip.Prefix) {
		if len(list) <= maxDomains && p.IsValid() && !slices.ContainsFunc(list, func(d netip.Prefix) bool { return d.Bits() <= p.Bits() && d.Contains(p.Addr()) }) {
			list = append(list, p)
		}
	}
	add(c.Overlay.LocatorPool)
	for _, l := range c.Locators {
		add(l.Prefix)
	}
	for _, s := range c.SIDs {
		add(s.SID)
	}
	return list
}

// The most that the data path holds of each.
const (
	maxPeers        = 16 // of each address family
	maxHostServices = 16
)

// checkRoles checks roles, peers and host of an interface.
func checkRoles(v *validator, at string, in *Interface) {
	if len(in.Roles) == 0 {
		v.add(at+".roles", v.rolesToAdd(in), "%s has no roles, which say what may enter", strings.TrimSpace("interface "+in.Name))
	}
	v.refuse(in.HasRole(RoleAny) && len(in.Roles) > 1, at+".roles", "remove any, or the others", "the role any lets everything in")
	v.refuse(in.HasRole(RoleAny) && len(in.Host) > 0, at+".host", "remove host, or the role any", "the role any lets everything in")
	roles := v.unique()
	for i, r := range in.Roles {
		field := fmt.Sprintf("%s.roles[%d]", at, i)
		v.oneOf(field, string(r), roleNames()...)
		roles.check(field, string(r), "remove one of the two")
	}
	v.refuse(in.HasRole(RoleSR) && in.HasRole(RoleEdge), at+".roles", "keep one of the two",
		"an interface is inside the SR domain (sr) or outside of it (edge)")
	v.refuse((in.HasRole(RoleSR) || in.HasRole(RoleEdge)) && len(v.SRDomain()) == 0, at+".roles",
		"list under domain: the prefixes of the SR domain, of all its SIDs and of its routers' addresses", "no SR domain is configured")
	because(&v.problems, at+".roles", func() {
		v.refuse(in.HasRole(RoleSR) && len(v.Domain) == 0 && !v.Overlay.LocatorPool.IsValid(), "domain",
			"list the prefixes of the SR domain, of all its SIDs and of its routers' addresses",
			"interface %s has the role sr, by which only the SR domain may send, and the domain is not said", in.Name)
	})
	checkPeers(v, at+".peers", in)
	checkHost(v, at+".host", in)
}

func roleNames() (names []string) {
	for _, r := range Roles {
		names = append(names, string(r))
	}
	return names
}

func checkPeers(v *validator, at string, in *Interface) {
	gtpu := in.HasRole(RoleN3, RoleN9)
	v.refuse(gtpu && len(in.Peers) == 0, at, "list the prefixes of the gNBs and UPFs that send GTP-U here, such as peers: [192.0.2.0/24], or say peers: any",
		"interface %s has the role n3 or n9, and nobody may send", in.Name)
	v.refuse(!gtpu && len(in.Peers) > 0, at, "add the role n3 or n9, or remove peers", "peers send GTP-U, and interface %s has neither the role n3 nor n9", in.Name)
	count := map[bool]int{}
	for i, p := range in.Peers {
		v.fieldsAt(fmt.Sprintf("%s[%d]", at, i), srv6.CheckPrefix("peers", p))
		count[p.Addr().Is4()]++
	}
	v.refuse(count[true] > maxPeers || count[false] > maxPeers, at, "join neighbouring prefixes",
		"%d IPv4 and %d IPv6 prefixes exceed the limit of %d each", count[true], count[false], maxPeers)
	all := map[bool]int{}
	for _, p := range v.PortOf(*in).Peers {
		all[p.Addr().Is4()]++
	}
	v.refuse(count[true] <= maxPeers && count[false] <= maxPeers && (all[true] > maxPeers || all[false] > maxPeers), at, "join neighbouring prefixes of upf.smfs and peers",
		"%d IPv4 and %d IPv6 prefixes of upf.smfs and peers exceed the limit of %d each", all[true], all[false], maxPeers)
}

func checkHost(v *validator, at string, in *Interface) {
	for i, word := range in.Host {
		if _, err := (&Interface{Host: HostList{word}}).HostAccess(); err != nil {
			v.add(fmt.Sprintf("%s[%d]", at, i), serviceFix(word), "%v", err)
		}
	}
	if a, err := in.HostAccess(); err == nil {
		v.refuse(len(a.Services) > maxHostServices, at, "list fewer, or say host: [any]", "%d services exceed the limit of %d", len(a.Services), maxHostServices)
	}
}

// otherServices are services that have no name of their own here.
var otherServices = map[string]string{
	"http": "tcp/80", "https": "tcp/443", "snmp": "udp/161", "syslog": "udp/514", "dns": "udp/53", "telnet": "tcp/23",
	"netconf": "tcp/830", "prometheus": "tcp/9418", "metrics": "tcp/9418", "icmp": "ping", "icmpv6": "ping",
}

// hostPath matches the path of a service of host.
var hostPath = regexp.MustCompile(`^interfaces\[[0-9]+\]\.host\[[0-9]+\]$`)

// serviceFix is the fix for a text that is no service.
func serviceFix(word string) string {
	lower := strings.ToLower(word)
	protocol, port, _ := strings.Cut(strings.ReplaceAll(lower, ":", "/"), "/")
	first, second := protocol+"/"+port, port+"/"+protocol // 22/tcp, too
	for _, s := range []string{otherServices[lower], first, second} {
		if _, err := (&Interface{Host: HostList{s}}).HostAccess(); err == nil {
			return "write " + s
		}
	}
	if _, err := strconv.ParseUint(word, 10, 16); err == nil {
		return "write " + serviceAt(word)
	}
	fix := suggestOf(word, hostWords())
	if nearest(word, hostWords()) == "" {
		fix += ", or tcp/PORT, or udp/PORT"
	}
	return fix
}

// serviceAt is the service at a port of TCP.
func serviceAt(port string) string {
	for name, services := range hostServices {
		if fmt.Sprint(services[0].Port) == port {
			return name
		}
	}
	return "tcp/" + port
}
