package netpol

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask explains what the two say.
func ask(t *testing.T, s *State, from, to string, q Question) []Verdict {
	t.Helper()
	var err error
	if q.From, err = s.Party(from); err != nil {
		t.Fatal(err)
	}
	if q.To, err = s.Party(to); err != nil {
		t.Fatal(err)
	}
	v, err := s.Explain(q)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestExplain(t *testing.T) {
	s := shop()
	s.Nodes = map[netip.Addr]string{netip.MustParseAddr("192.0.2.10"): "n1", netip.MustParseAddr("192.0.2.11"): "n2"}
	s.Pods[0].Node = "n1"
	host := pod("shop/agent", "app=db", "192.0.2.11")
	host.HostNetwork, host.Node = true, "n2"
	s.Pods = append(s.Pods, host)
	s.Policies = []*Policy{
		sound(t, "shop/none", `{podSelector: {}}`),
		sound(t, "shop/db", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 1}]}, {from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: http}]}]}`),
		sound(t, "bank/out", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.1/32}}]}]}`),
		policy(t, "void/odd", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{}]}]}`),
	}
	rule := func(d Decision) string {
		return d.Policy + strings.TrimLeft(d.Rule, "specingr.")
	}
	for _, row := range []struct {
		from, to string
		q        Question
		want     string // of IPv4: allowed, what allows egress and ingress
	}{
		{"shop/db", "shop/web", Question{Protocol: TCP, Port: 8080}, "true  shop/db[1]"},
		{"db", "web", Question{Protocol: TCP, PortName: "http"}, "ambiguous"},
		{"shop/db", "web", Question{Protocol: TCP, PortName: "http"}, "true  shop/db[1]"},
		{"shop/db", "web", Question{Protocol: TCP, PortName: "smtp"}, "no port"},
		{"shop/db", "192.0.2.77", Question{Protocol: TCP, PortName: "http"}, "no port"},
		{"10.0.1.2", "10.0.0.1", Question{Protocol: TCP, Port: 8080}, "true  shop/db[1]"},
		{"shop/db", "shop/web", Question{Protocol: TCP, Port: 1}, "true  shop/db[0]"},
		{"192.0.2.77", "shop/web", Question{Protocol: TCP, Port: 1}, "true  shop/db[0]"},
		{"192.0.2.77", "shop/web", Question{Protocol: TCP, Port: 8080}, "false  "},
		{"shop/db", "shop/web", Question{Protocol: UDP, Port: 8080}, "false  "},
		{"shop/db", "shop/web", Question{}, "false  "},
		{"bank/db", "shop/web", Question{Protocol: TCP, Port: 1}, "true bank/out[0] shop/db[0]"},
		{"bank/db", "void/x", Question{Protocol: TCP, Port: 1}, "false  "},
		{"void/x", "bank/db", Question{Protocol: TCP, Port: 1}, "false  "},
		{"shop/web", "shop/web", Question{Protocol: TCP, Port: 9}, "true  "},
		{"192.0.2.10", "shop/web", Question{Protocol: TCP, Port: 9}, "true  "},     // its own node
		{"192.0.2.11", "shop/web", Question{Protocol: TCP, Port: 8080}, "false  "}, // another node
		{"shop/agent", "shop/web", Question{Protocol: TCP, Port: 8080}, "false  "}, // is no pod, whatever its labels
		{"shop/agent", "shop/web", Question{Protocol: TCP, Port: 1}, "true  shop/db[0]"},
		{"shop/web", "shop/agent", Question{Protocol: TCP, Port: 1}, "true  "}, // policies do not select it
		{"192.0.2.77", "192.0.2.78", Question{}, "true  "},
		{"192.0.2.77", "2001:db8::1", Question{}, "no address"},
	} {
		var got string
		q := row.q
		var errs [3]error
		q.From, errs[0] = s.Party(row.from)
		q.To, errs[1] = s.Party(row.to)
		var v []Verdict
		if errs[0] == nil && errs[1] == nil {
			v, errs[2] = s.Explain(q)
		}
		switch err := errors.Join(errs[:]...); {
		case errors.Is(err, ErrNoPod):
			got = "ambiguous"
		case errors.Is(err, ErrNoPort):
			got = "no port"
		case errors.Is(err, ErrNoAddress):
			got = "no address"
		default:
			got = fmt.Sprint(v[0].Allowed, " ", rule(v[0].Egress), " ", rule(v[0].Ingress))
		}
		if got != row.want {
			t.Errorf("%s to %s, %+v: %q, want %q", row.from, row.to, row.q, got, row.want)
		}
	}
	if v := ask(t, &s, "bank/db", "shop/web", Question{Protocol: TCP, Port: 1}); len(v) != 2 || !v[0].Allowed || v[1].Allowed {
		t.Errorf("the families differ: %v", v) // the block is of IPv4 only
	}
	if v := ask(t, &s, "void/x", "bank/db", Question{}); len(v[0].Egress.Problems) != 1 {
		t.Errorf("problems %v", v[0].Egress.Problems)
	}
}

func TestExplainUnknownPods(t *testing.T) {
	s := shop()
	s.Local = append(s.Local, Local{Ifindex: 7, Namespace: "shop", Name: "new", Addresses: []Address{address("10.0.0.7")}})
	if _, err := s.Party("shop/new"); !errors.Is(err, ErrNoPod) || !strings.Contains(err.Error(), "has not reported it") {
		t.Error(err)
	}
	if _, err := s.Party("shop/other"); !errors.Is(err, ErrNoPod) {
		t.Error(err)
	}
	if v := ask(t, &s, "10.0.1.2", "10.0.0.7", Question{}); v[0].Allowed || v[0].To.Pod != "shop/new" {
		t.Error(v)
	}
}

func TestVerdictText(t *testing.T) {
	s := shop()
	s.Policies = []*Policy{
		sound(t, "shop/db", `{podSelector: {}, ingress: [{}, {from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]}`),
		policy(t, "shop/odd", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{}]}]}`),
	}
	v := ask(t, &s, "shop/db", "shop/web", Question{Protocol: TCP, Port: 80})[0]
	const want = `denied: shop/db (10.0.1.2) to shop/web (10.0.0.1), TCP port 80
  egress   denied: none of the policies that isolate it for egress allows it
           isolated by shop/odd
           shop/odd: spec.egress[0]: to[0]: it has neither podSelector, namespaceSelector nor ipBlock: the rule allows nothing
  ingress  allowed: spec.ingress[0] of shop/db allows it
           isolated by shop/db
`
	if got := v.String(); got != want {
		t.Errorf("it reads\n%s", got)
	}
	text, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(text), `"ingress":{"allowed":true,"isolated_by":["shop/db"],"policy":"shop/db","rule":"spec.ingress[0]",`) {
		t.Errorf("%s %v", text, err)
	}
}

// chooser makes choices of octets: of none left, the first.
type chooser struct{ octets []byte }

func (c *chooser) n(below int) int {
	if len(c.octets) == 0 {
		return 0
	}
	v := int(c.octets[0]) % below
	c.octets = c.octets[1:]
	return v
}

func (c *chooser) of(list ...string) string { return list[c.n(len(list))] }

func (c *chooser) labels() map[string]string {
	out := map[string]string{}
	for _, k := range []string{"x", "y"} {
		if v := c.n(3); v < 2 {
			out[k] = fmt.Sprint(v)
		}
	}
	return out
}

func (c *chooser) address() netip.Addr {
	if c.n(2) == 0 {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(c.n(32))})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(c.n(32))})
}

func (c *chooser) selector() string {
	switch c.n(6) {
	case 0:
		return `{}`
	case 1:
		return `{"matchLabels":{"x":"` + c.of("0", "1") + `"}}`
	case 2:
		return `{"matchExpressions":[{"key":"` + c.of("x", "y") + `","operator":"` + c.of("In", "NotIn") + `","values":["` + c.of("0", "1") + `"]}]}`
	case 3:
		return `{"matchExpressions":[{"key":"` + c.of("x", "y") + `","operator":"` + c.of("Exists", "DoesNotExist") + `"}]}`
	case 4:
		return `{"matchLabels":{"y":"` + c.of("0", "1") + `"},"matchExpressions":[{"key":"x","operator":"NotIn","values":["0"]}]}`
	}
	return `{"matchExpressions":[{"key":"x","operator":"Near"}]}` // which cannot be used
}

func (c *chooser) prefix() string {
	a := c.address()
	p, _ := a.Prefix(a.BitLen() - c.n(7))
	if c.n(8) == 0 {
		p, _ = a.Prefix(0)
	}
	return p.String()
}

func (c *chooser) peer() string {
	switch c.n(4) {
	case 0:
		return `{"podSelector":` + c.selector() + `}`
	case 1:
		return `{"namespaceSelector":` + c.selector() + `}`
	case 2:
		return `{"namespaceSelector":` + c.selector() + `,"podSelector":` + c.selector() + `}`
	}
	block := netip.MustParsePrefix(c.prefix())
	except := c.list(2, func() string {
		part := netip.PrefixFrom(block.Addr(), min(block.Bits()+1+c.n(3), block.Addr().BitLen())) // its beginning
		if c.n(2) == 0 {
			return `"` + c.prefix() + `"`
		}
		return `"` + part.String() + `"`
	})
	return `{"ipBlock":{"cidr":"` + block.String() + `","except":` + except + `}}`
}

func (c *chooser) list(most int, one func() string) string {
	var out []string
	for range c.n(most + 1) {
		out = append(out, one())
	}
	return "[" + strings.Join(out, ",") + "]"
}

func (c *chooser) port() string {
	switch protocol := c.of("TCP", "UDP", "SCTP"); c.n(4) {
	case 0:
		return `{"protocol":"` + protocol + `"}`
	case 1:
		return `{"port":"` + c.of("p", "q") + `","protocol":"` + protocol + `"}`
	case 2:
		return fmt.Sprintf(`{"port":%d,"endPort":%d}`, 1+c.n(2), 1+c.n(4))
	default:
		return fmt.Sprintf(`{"port":%d,"protocol":"%s"}`, 1+c.n(4), protocol)
	}
}

func (c *chooser) policy(i int) *Policy {
	rules := func(direction string) string {
		return c.list(2, func() string {
			return `{"` + direction + `":` + c.list(2, c.peer) + `,"ports":` + c.list(2, c.port) + `}`
		})
	}
	types := c.of(`[]`, `["Ingress"]`, `["Egress"]`, `["Ingress","Egress"]`)
	spec := `{"podSelector":` + c.selector() + `,"ingress":` + rules("from") + `,"egress":` + rules("to") + `,"policyTypes":` + types + `}`
	return NewPolicy(c.of("a", "b"), fmt.Sprintf("p%d", i), []byte(spec))
}

func (c *chooser) pod(i int) *Pod {
	p := &Pod{Namespace: c.of("a", "b", "c"), Name: fmt.Sprintf("pod-%d", i), UID: fmt.Sprint(i), Labels: c.labels(), Created: time.Unix(int64(c.n(4)), 0)}
	p.HostNetwork, p.Finished, p.Leaving = c.n(10) == 9, c.n(10) == 9, c.n(6) == 5
	for range c.n(3) {
		p.Ports = append(p.Ports, ContainerPort{c.of("p", "q"), []uint8{TCP, UDP, SCTP}[c.n(3)], uint16(1 + c.n(4))})
	}
	for range 2 {
		p.Addresses = append(p.Addresses, Address{uint8(c.n(8)) / 7, c.address()})
	}
	return p
}

// state changes a state, or fills in an empty one.
func (c *chooser) state(s *State) {
	if s.Namespaces == nil {
		s.Namespaces = map[string]*Namespace{}
	}
	for _, n := range []string{"a", "b", "c"} {
		switch c.n(8) {
		case 0, 1:
			s.Namespaces[n] = &Namespace{n, c.labels()}
		case 2:
			delete(s.Namespaces, n)
		}
	}
	for i := range 8 {
		switch {
		case i >= len(s.Pods):
			s.Pods = append(s.Pods, c.pod(i))
		case c.n(4) == 3:
			s.Pods[i] = c.pod(i)
		}
	}
	s.Policies = s.Policies[:c.n(len(s.Policies)+1)]
	for range c.n(5) {
		s.Policies = append(s.Policies, c.policy(len(s.Policies)))
	}
	s.Local = nil
	held := map[Address]bool{}
	for i, p := range s.Pods[:4] {
		l := Local{Ifindex: i + 1, Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		for _, a := range p.Addresses {
			if !held[a] { // no node gives an address twice
				held[a] = true
				l.Addresses = append(l.Addresses, a)
			}
		}
		switch c.n(12) {
		case 9:
			l.UID = "former"
		case 10:
			l.Namespace, l.Name, l.UID = "", "", ""
		case 11:
			continue
		}
		s.Local = append(s.Local, l)
	}
}

// agree compares what lists allow with what Explain says: of each pod on this node with each
// address, for each protocol and port.
func agree(t *testing.T, s *State, d Desired) {
	t.Helper()
	var others []Address
	for i := range 32 {
		for tenant := range uint8(2) {
			others = append(others, Address{tenant, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}, Address{tenant, netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)})})
		}
	}
	for _, l := range s.Local {
		for _, own := range l.Addresses {
			for _, other := range others {
				if other.Tenant != own.Tenant || other.Is4() != own.Is4() {
					continue
				}
				a, b := s.end(Party{}, own), s.end(Party{}, other)
				if a.pod != nil && a.pod == b.pod {
					continue // the data path lets a pod reach itself
				}
				for dir, list := range [2]*List{d.Pods[l.Ifindex].Ingress, d.Pods[l.Ifindex].Egress} {
					allowed := []Ports{everything}
					if list != nil {
						allowed = list.Allows(d.at(other.Tenant, other.Addr.String()))
					}
					for _, q := range questions {
						want := s.decide(direction(dir), a, b, q)
						got := slices.ContainsFunc(allowed, func(p Ports) bool { return p.Allow(q.Protocol, q.Port) })
						if got != want.Allowed {
							t.Fatalf("%s of %s/%s (%v) with %v, %d port %d: the lists say %v, explained is %+v", direction(dir), l.Namespace, l.Name, own, other, q.Protocol, q.Port, got, want)
						}
					}
				}
			}
		}
	}
}

var questions = func() (out []Question) {
	out = append(out, Question{}, Question{Protocol: 1}, Question{Protocol: 58})
	for _, protocol := range []uint8{TCP, UDP, SCTP} {
		for port := range uint16(6) {
			out = append(out, Question{Protocol: protocol, Port: port})
		}
	}
	return out
}()

// follow has a compiler follow states that octets choose, and compares each.
func follow(t *testing.T, octets []byte) {
	c := &chooser{octets}
	compiler := NewCompiler("")
	var s State
	for range 3 {
		c.state(&s)
		d := compiler.Compile(s)
		agree(t, &s, d)
		if c.n(2) == 0 {
			compiler.Applied()
		}
	}
	agree(t, &s, Compile(s))
}

func TestExplainAgreesWithCompile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		octets := make([]byte, 1000)
		for i := range octets {
			octets[i] = byte(random.Uint32())
		}
		follow(t, octets)
	}
}

func FuzzExplain(f *testing.F) {
	f.Add([]byte("NetworkPolicy"))
	f.Fuzz(func(t *testing.T, octets []byte) { follow(t, octets) })
}

func FuzzNewPolicy(f *testing.F) {
	f.Add([]byte(`{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],"ports":[{"port":80,"endPort":90}]}]}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		s := shop()
		s.Policies = []*Policy{NewPolicy("shop", "p", spec)}
		d := Compile(s)
		q := Question{Protocol: TCP, Port: 80}
		list := d.Pods[1].Ingress
		decision := s.decide(ingress, s.end(Party{}, address("10.0.0.1")), s.end(Party{}, address("10.0.1.2")), q)
		got := list == nil || slices.ContainsFunc(list.Allows(d.at(0, "10.0.1.2")), func(p Ports) bool { return p.Allow(TCP, 80) })
		if got != decision.Allowed {
			t.Errorf("the list says %v, explained is %+v", got, decision)
		}
	})
}
