package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The sizes of the data path's tables that are fixed (bpf/def/tables.h).
const (
	maxLocators      = 8
	maxDomains       = 8
	maxGTPUAddresses = 4 // of each family
	maxPools         = 8 // of each family
)

// validator holds the resources that references are looked up in.
type validator struct {
	problems
	*Config
	interfaces map[string]*Interface
	policies   map[string]*srpolicy.Policy
	paths      map[string][]srpolicy.CandidatePath // by policy
	tunnels    map[string]*gtpu.Tunnel
}

// Validate returns everything that is wrong with c, as Errors without lines. Defaults
// must be set. It depends on nothing but c.
func (c *Config) Validate() error {
	v := c.validator()
	checkInterfaces(v)
	v.unicast6("encapsulation.source", c.Encapsulation.Source)
	checkDomain(v)
	checkLocators(v)
	checkSIDs(v)
	checkPolicies(v)
	checkCandidatePaths(v)
	checkGTPU(v)
	checkTunnels(v)
	checkSteering(v)
	checkTrafficClasses(v)
	checkBGP(v)
	checkOverlay(v)
	checkLiveness(v)
	checkUPF(v)
	checkSlices(v)
	checkSpace(v)
	checkSpread(v)
	checkLimits(v)
	checkAPI(v)
	if c.Metrics.Listen != "" && c.Metrics.Listen != MetricsOff {
		checkHostPort(v, "metrics.listen", c.Metrics.Listen)
	}
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	return v.named()
}

// ValidatePolicies is Validate for policies and candidate paths only.
func (c *Config) ValidatePolicies() error {
	v := c.validator()
	checkPolicies(v)
	checkCandidatePaths(v)
	return v.named()
}

// MostLists returns how many segment lists the policies can have at a time.
func (c *Config) MostLists() int {
	sizes := map[string][]int{} // of the candidate paths
	for _, p := range c.CandidatePaths {
		sizes[p.Policy] = append(sizes[p.Policy], len(p.SegmentLists))
	}
	lists := 0
	for _, p := range c.Policies {
		lists += srpolicy.MostLists(append(sizes[p.Name], len(p.SegmentLists)))
	}
	return lists
}

func (c *Config) validator() *validator {
	v := &validator{
		Config:     c,
		interfaces: map[string]*Interface{},
		policies:   map[string]*srpolicy.Policy{},
		paths:      map[string][]srpolicy.CandidatePath{},
		tunnels:    map[string]*gtpu.Tunnel{},
	}
	for i := range c.Policies {
		v.policies[c.Policies[i].Name] = &c.Policies[i]
	}
	for _, p := range c.CandidatePaths {
		v.paths[p.Policy] = append(v.paths[p.Policy], p)
	}
	for i := range c.Tunnels {
		v.tunnels[c.Tunnels[i].Name] = &c.Tunnels[i]
	}
	return v
}

// named returns the errors, each with the name of its resource.
func (v *validator) named() error {
	for i := range v.list {
		v.list[i].Resource, v.list[i].Rival = v.resource(v.list[i].Field), v.resource(v.list[i].rival)
	}
	return v.err()
}

// resource returns the resource of a field, or "".
func (v *validator) resource(field string) string {
	section, rest, isElement := strings.Cut(field, "[")
	index, _, _ := strings.Cut(rest, "]")
	n, err := strconv.Atoi(index)
	if !isElement || err != nil {
		return ""
	}
	switch section {
	case "interfaces":
		return "interface " + v.Interfaces[n].Name
	case "locators":
		return "locator " + v.Locators[n].Name
	case "sids":
		return "sid " + v.SIDs[n].SID.String()
	case "policies":
		return "policy " + v.Policies[n].Name
	case "candidate_paths":
		return "candidate-path " + v.CandidatePaths[n].Name
	case "steering":
		return "steering " + v.Steering[n].Key()
	case "traffic_classes":
		return "class " + v.TrafficClasses[n].Name
	case "tunnels":
		return "tunnel " + v.Tunnels[n].Name
	case "slices":
		return "slice " + v.Slices[n].Name
	}
	return ""
}

// unique refuses a second resource with the same key.
type unique struct {
	*problems
	first map[string]string // field by key
}

func (v *validator) unique() unique { return unique{&v.problems, map[string]string{}} }

func (u unique) check(field, key, fix string) {
	if key == "" {
		return
	}
	if first, twice := u.first[key]; twice {
		u.add(field, fix, "%s is already that of %s", key, parent(first))
		u.list[len(u.list)-1].rival = first
		return
	}
	u.first[key] = field
}

// fields adds the errors of a model's own validation.
func (v *validator) fields(at string, list []srv6.FieldError) {
	for _, e := range list {
		v.add(join(at, e.Field), e.Fix, "%s", e.Problem)
	}
}

// interfaceName checks that Linux would accept a name for an interface.
func (v *validator) interfaceName(field, name string) bool {
	isValid := name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n")
	v.refuse(!isValid, field, "a name as `ip link` shows it, at most 15 characters", "%q is not a valid interface name", name)
	return isValid
}

func (v *validator) oneOf(field, value string, values ...string) {
	if value != "" && !slices.Contains(values, value) {
		v.add(field, suggest(value, values), "%q is not known", value)
	}
}

// fieldsAt adds the errors of a check of one value, which is in field.
func (v *validator) fieldsAt(field string, list []srv6.FieldError) bool {
	for _, e := range list {
		v.add(field, e.Fix, "%s", e.Problem)
	}
	return len(list) == 0
}

// unicast6 checks an IPv6 unicast address, if it is set.
func (v *validator) unicast6(field string, a netip.Addr) {
	if a.IsValid() {
		v.fieldsAt(field, srv6.CheckUnicast6(field, a))
	}
}

// checkEach checks each value of a list.
func checkEach[T any](v *validator, field string, list []T, check func(string, T) []srv6.FieldError) {
	for i, value := range list {
		v.fieldsAt(fmt.Sprintf("%s[%d]", field, i), check(field, value))
	}
}

// prefix6 checks an IPv6 prefix without host bits.
func (v *validator) prefix6(field string, p netip.Prefix) bool {
	if p.IsValid() && p.Addr().Is4() {
		v.add(field, "a prefix such as 2001:db8:1::/48", "%s is not an IPv6 prefix", p)
		return false
	}
	return v.fieldsAt(field, srv6.CheckPrefix(field, p))
}

func checkInterfaces(v *validator) {
	names := v.unique()
	for i, in := range v.Interfaces {
		at := fmt.Sprintf("interfaces[%d]", i)
		if v.interfaceName(at+".name", in.Name) {
			names.check(at+".name", in.Name, "remove one of the two")
			v.interfaces[in.Name] = &v.Interfaces[i]
		}
		v.oneOf(at+".mode", in.Mode, "auto", "native", "generic")
		checkRoles(v, at, &v.Interfaces[i])
	}
}

func checkDomain(v *validator) {
	n := len(v.SRDomain())
	v.refuse(n > maxDomains,
		"domain", "join neighbouring prefixes, and cover locators and SIDs by one of them", "%d prefixes, of locators and SIDs too, exceed the limit of %d", n, maxDomains)
	for i, p := range v.Domain {
		v.prefix6(fmt.Sprintf("domain[%d]", i), p)
	}
}

func checkLocators(v *validator) {
	v.refuse(len(v.Locators) > maxLocators,
		"locators", "use fewer, shorter ones; SIDs need no locator", "%d locators exceed the limit of %d", len(v.Locators), maxLocators)
	names := v.unique()
	for i, l := range v.Locators {
		at := fmt.Sprintf("locators[%d]", i)
		v.fields(at, srv6.CheckName("name", l.Name))
		names.check(at+".name", l.Name, "give each locator its own name")
		if !v.prefix6(at+".prefix", l.Prefix) {
			continue
		}
		// SIDs are found by the function's bits in the upper half of the address.
		if bits := l.Prefix.Bits() + int(l.FunctionBits); bits > 64 {
			v.add(at+".function_bits", fmt.Sprintf("at most %d bits, or a shorter prefix, or SIDs without a locator", max(0, 64-l.Prefix.Bits())),
				"locator and function have %d bits, more than the limit of 64", bits)
		}
		v.refuse(l.FunctionBits > maxFunctionBits,
			at+".function_bits", fmt.Sprintf("at most %d", maxFunctionBits), "%d bits are too many SIDs to index", l.FunctionBits)
	}
}

const maxFunctionBits = 20

func checkGTPU(v *validator) {
	count := map[bool]int{}
	addresses := v.unique()
	for i, a := range v.GTPU.Addresses {
		at := fmt.Sprintf("gtpu.addresses[%d]", i)
		if v.fieldsAt(at, srv6.CheckUnicast(at, a)) {
			addresses.check(at, a.String(), "remove one of the two")
			count[a.Is4()]++
		}
	}
	if count[true] > maxGTPUAddresses || count[false] > maxGTPUAddresses {
		v.add("gtpu.addresses", fmt.Sprintf("at most %d IPv4 and %d IPv6 addresses", maxGTPUAddresses, maxGTPUAddresses),
			"%d IPv4 and %d IPv6 addresses", count[true], count[false])
	}
	checkPools(v)
}

// checkPools checks the pools of tunnels and of sessions together: the data path has
// one list.
func checkPools(v *validator) {
	count := map[bool]int{}
	for i, p := range v.GTPU.Pools {
		checkPool(v, fmt.Sprintf("gtpu.pools[%d]", i), p)
		count[p.Addr().Is4()]++
	}
	for i, pool := range v.UPF.UEPools {
		for j, p := range pool.Prefixes {
			checkPool(v, fmt.Sprintf("upf.ue_pools[%d].prefixes[%d]", i, j), p)
			count[p.Addr().Is4()]++
		}
	}
	if count[true] > maxPools || count[false] > maxPools {
		field := "gtpu.pools"
		if len(v.UPF.UEPools) > 0 {
			field = "upf.ue_pools"
		}
		v.add(field, fmt.Sprintf("at most %d IPv4 and %d IPv6 pools", maxPools, maxPools), "%d IPv4 and %d IPv6 pools", count[true], count[false])
	}
}

func checkPool(v *validator, at string, p netip.Prefix) {
	if !v.fieldsAt(at, srv6.CheckPrefix(at, p)) {
		return
	}
	unit := ueBits(p)
	v.refuse(p.Bits() > unit, at, "a prefix of at most 64 bits: each /64 in it is a UE's", "%s is longer than a UE's /64", p)
	v.refuse(p.Bits() < unit-maxPoolBits,
		at, fmt.Sprintf("at most a /%d; what is larger is found by prefix, without a pool", unit-maxPoolBits), "%s is too large a pool to index", p)
}

// maxPoolBits limits one pool to 16 million entries of 64 bytes.
const maxPoolBits = 24

func checkLimits(v *validator) {
	for _, l := range []struct {
		field string
		have  int
		limit uint32
		of    string // what takes up the room
	}{
		{"sids", len(v.SIDs), v.Limits.SIDs, "sids"},
		{"policies", len(v.Policies), v.Limits.Policies, "policies"},
		{"segment_lists", v.MostLists(), v.Limits.SegmentLists, "policies"},
		{"tunnels", len(v.Tunnels), v.Limits.Tunnels, "tunnels"},
		{"routes", 0, v.Limits.Routes, ""},
		{"adjacencies", 0, v.Limits.Adjacencies, ""},
		{"sessions", 0, max(1, v.Limits.Sessions), ""},
	} {
		const most = 1 << 24
		field := "limits." + l.field
		// Entry 0 of each table means "none".
		because(&v.problems, l.of, func() {
			v.refuse(l.have >= int(l.limit), field, fmt.Sprintf("at least %d", l.have+1), "%d is too few for the %d that are configured", l.limit, l.have)
		})
		v.refuse(l.limit > most, field, fmt.Sprintf("at most %d", most), "%d is too many", l.limit)
	}
}

func checkAPI(v *validator) {
	a := v.API
	const longest = 107 // sun_path, less its terminating zero
	v.refuse(a.Socket != "" && (!filepath.IsAbs(a.Socket) || len(a.Socket) > longest),
		"api.socket", fmt.Sprintf("an absolute path of at most %d characters", longest), "%q cannot be a Unix socket's path", a.Socket)
	v.refuse((a.TLSCert == "") != (a.TLSKey == ""),
		"api.tls_cert", "give both api.tls_cert and api.tls_key, or none", "certificate and key belong together")
	v.refuse(a.Page && a.Listen == "", "api.page", "set api.listen, or use culvert ui", "the page needs an address")
	v.refuse(a.ViewerTokenFile != "" && a.TokenFile == "", "api.viewer_token_file", "set api.token_file, too",
		"without another token every caller on this machine has more rights than the viewer")
	if a.Listen == "" {
		return
	}
	host, ok := checkHostPort(v, "api.listen", a.Listen)
	// "localhost" is loopback (RFC 6761). What other names resolve to may change.
	addr, _ := netip.ParseAddr(host)
	if !ok || host == "localhost" || addr.IsLoopback() {
		return
	}
	v.refuse(a.TLSCert == "" || a.TLSKey == "",
		"api.listen", "set api.tls_cert and api.tls_key, or listen on 127.0.0.1 or [::1]", "%s is beyond loopback and needs TLS", a.Listen)
	v.refuse(a.TokenFile == "" && a.PoliciesTokenFile == "",
		"api.listen", "set api.token_file or api.policies_token_file, or listen on 127.0.0.1 or [::1]", "%s is beyond loopback and needs a token", a.Listen)
}

func checkHostPort(v *validator, field, value string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || port == "" {
		fix := "host:port, such as 127.0.0.1:9418 or [::1]:9418"
		if _, err := strconv.ParseUint(value, 10, 16); err == nil {
			fix = "write " + quoted("127.0.0.1:"+value)
		}
		v.add(field, fix, "%q is not an address to listen on", value)
		return "", false
	}
	return host, true
}
