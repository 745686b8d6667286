package netpol

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// policy makes one of its spec as YAML.
func policy(t testing.TB, key, spec string) *Policy {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	namespace, name, _ := strings.Cut(key, "/")
	return NewPolicy(namespace, name, text)
}

// sound makes one without problems.
func sound(t testing.TB, key, spec string) *Policy {
	t.Helper()
	p := policy(t, key, spec)
	if len(p.Problems) > 0 {
		t.Fatalf("%s: %v", key, p.Problems)
	}
	return p
}

func address(text string) Address { return Address{Addr: netip.MustParseAddr(text)} }

// pod makes one of "namespace/name", labels as "a=b c=d", and addresses.
func pod(key, labels string, addresses ...string) *Pod {
	p := &Pod{UID: key, Labels: labelsOf(labels), Created: time.Unix(1000, 0)}
	p.Namespace, p.Name, _ = strings.Cut(key, "/")
	for _, a := range addresses {
		p.Addresses = append(p.Addresses, address(a))
	}
	return p
}

func labelsOf(text string) map[string]string {
	out := map[string]string{}
	for _, f := range strings.Fields(text) {
		k, v, _ := strings.Cut(f, "=")
		out[k] = v
	}
	return out
}

// local is an interface of a pod.
func local(index int, p *Pod) Local {
	return Local{Ifindex: index, Namespace: p.Namespace, Name: p.Name, UID: p.UID, Addresses: p.Addresses}
}

func namespaces(list ...string) map[string]*Namespace {
	out := map[string]*Namespace{}
	for _, text := range list {
		name, labels, _ := strings.Cut(text, " ")
		n := &Namespace{Name: name, Labels: labelsOf(labels)}
		n.Labels["kubernetes.io/metadata.name"] = name
		out[name] = n
	}
	return out
}

// at is who an address is, by the longest prefix.
func (d Desired) at(tenant uint8, text string) *Identity {
	a := netip.MustParseAddr(text)
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			panic(err)
		}
		if i := d.Peers[Peer{tenant, p}]; i != nil {
			return i
		}
	}
	return nil
}

// says is what a pod takes from an address (or sends to it), as text: "all" where the pod is
// not isolated.
func says(d Desired, index int, dir direction, peer string) string {
	i, there := d.Pods[index]
	if !there {
		return "not there"
	}
	list := [...]*List{i.Ingress, i.Egress}[dir]
	if list == nil {
		return "all"
	}
	var out []string
	for _, p := range list.Allows(d.at(0, peer)) {
		switch {
		case p == everything:
			out = append(out, "everything")
		case p.First == p.Last:
			out = append(out, fmt.Sprintf("%s:%d", ProtocolName(p.Protocol), p.First))
		default:
			out = append(out, fmt.Sprintf("%s:%d-%d", ProtocolName(p.Protocol), p.First, p.Last))
		}
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, " ")
}

// shop is a state: a web pod with number 1 on this node, others elsewhere.
func shop() State {
	web := pod("shop/web", "app=web tier=front", "10.0.0.1", "fd00::1")
	web.Ports = []ContainerPort{{"http", TCP, 8080}, {"http", UDP, 8081}, {"admin", TCP, 9090}}
	db := pod("shop/db", "app=db", "10.0.1.2", "fd00:1::2")
	db.Ports = []ContainerPort{{"sql", TCP, 5432}}
	bank := pod("bank/db", "app=db", "10.0.1.3", "fd00:1::3")
	bank.Ports = []ContainerPort{{"sql", TCP, 5433}}
	return State{
		Namespaces: namespaces("shop team=a", "bank team=b", "void"),
		Pods:       []*Pod{web, db, bank, pod("void/x", "", "10.0.1.4", "fd00:1::4")},
		Local:      []Local{local(1, web)},
	}
}

// Each row is policies of namespace shop, and what the web pod then takes from or sends to
// whom. An address of both families stands for it.
func TestWhatPoliciesMean(t *testing.T) {
	const db, bank, void, outside = "10.0.1.2 fd00:1::2", "10.0.1.3 fd00:1::3", "10.0.1.4 fd00:1::4", "192.0.2.1 2001:db8::1"
	for _, row := range []struct {
		name string
		spec string
		dir  direction
		want map[string]string
	}{
		{"selects another pod", `{podSelector: {matchLabels: {app: db}}}`, ingress, map[string]string{db: "all", outside: "all"}},
		{"allows nothing", `{podSelector: {}}`, ingress, map[string]string{db: "nothing", outside: "nothing"}},
		{"says nothing of egress", `{podSelector: {}}`, egress, map[string]string{db: "all", outside: "all"}},
		{"egress without rules", `{podSelector: {}, policyTypes: [Egress]}`, egress, map[string]string{db: "nothing", outside: "nothing"}},
		{"egress alone leaves ingress", `{podSelector: {}, policyTypes: [Egress]}`, ingress, map[string]string{db: "all"}},
		{"an egress rule makes it Egress too", `{podSelector: {}, egress: [{}]}`, egress, map[string]string{db: "everything", outside: "everything"}},
		{"and Ingress stays", `{podSelector: {}, egress: [{}]}`, ingress, map[string]string{db: "nothing"}},
		{"types given do not count rules", `{podSelector: {}, policyTypes: [Ingress], egress: [{}]}`, egress, map[string]string{db: "all"}},
		{"everybody", `{podSelector: {}, ingress: [{}]}`, ingress, map[string]string{db: "everything", outside: "everything"}},
		{"an empty from is everybody", `{podSelector: {}, ingress: [{from: [], ports: []}]}`, ingress, map[string]string{outside: "everything"}},
		{"everybody to a port", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`, ingress, map[string]string{db: "TCP:80", outside: "TCP:80"}},
		{"of a protocol", `{podSelector: {}, ingress: [{ports: [{protocol: SCTP, port: 80}, {protocol: UDP}]}]}`, ingress, map[string]string{outside: "UDP:0-65535 SCTP:80"}},
		{"a range", `{podSelector: {}, ingress: [{ports: [{port: 80, endPort: 90}, {port: 91}, {port: 85, endPort: 88}]}]}`, ingress, map[string]string{outside: "TCP:80-91"}},
		{"pods of the namespace", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`, ingress, map[string]string{db: "everything", bank: "nothing", outside: "nothing"}},
		{"all pods of the namespace", `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`, ingress, map[string]string{db: "everything", bank: "nothing", void: "nothing", outside: "nothing"}},
		{"all pods", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`, ingress, map[string]string{db: "everything", bank: "everything", void: "everything", outside: "nothing"}},
		{"namespaces", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`, ingress, map[string]string{db: "nothing", bank: "everything", void: "nothing", outside: "nothing"}},
		{"namespaces that are not", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [b]}]}}]}]}`, ingress, map[string]string{db: "everything", bank: "nothing", void: "everything", outside: "nothing"}},
		{"pods of namespaces", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}, podSelector: {matchLabels: {app: db}}}]}]}`, ingress, map[string]string{db: "everything", bank: "everything", void: "nothing"}},
		{"either of two peers", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}, {podSelector: {matchLabels: {app: db}}}]}]}`, ingress, map[string]string{db: "everything", bank: "everything", void: "nothing"}},
		{"no label", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]}]}`, ingress, map[string]string{db: "nothing", void: "everything", outside: "nothing"}},
		{"two rules", `{podSelector: {}, ingress: [{ports: [{port: 80}]}, {from: [{podSelector: {}}], ports: [{port: 81}]}]}`, ingress, map[string]string{db: "TCP:80-81", outside: "TCP:80"}},
		{"a block", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]}`, ingress, map[string]string{outside: "everything", db: "nothing", "192.0.3.1 2001:db9::1": "nothing"}},
		{"a block without its middle", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/26]}}, {ipBlock: {cidr: "2001:db8::/32", except: ["2001:db8::/64"]}}]}]}`, ingress, map[string]string{outside: "nothing", "192.0.2.64 2001:db8:1::1": "everything"}},
		{"a block in an exception", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/26]}}], ports: [{port: 1}]}, {from: [{ipBlock: {cidr: 192.0.2.0/28}}], ports: [{port: 2}]}]}`, ingress, map[string]string{"192.0.2.1": "TCP:2", "192.0.2.17": "nothing", "192.0.2.65": "TCP:1"}},
		{"all addresses of a family", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`, ingress, map[string]string{"10.0.1.2": "everything", "192.0.2.1": "everything", "fd00:1::2": "nothing", "2001:db8::1": "nothing"}},
		{"a block means pods too", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.1.2/31}}, {ipBlock: {cidr: "fd00:1::2/127"}}]}]}`, ingress, map[string]string{db: "everything", bank: "everything", void: "nothing"}},
		{"an own port by name", `{podSelector: {}, ingress: [{ports: [{port: http}, {port: http, protocol: UDP}, {port: sql}]}]}`, ingress, map[string]string{outside: "TCP:8080 UDP:8081"}},
		{"a name that the pod does not have", `{podSelector: {}, ingress: [{ports: [{port: sql}]}]}`, ingress, map[string]string{db: "nothing", outside: "nothing"}},
		{"others' ports by name", `{podSelector: {}, egress: [{to: [{namespaceSelector: {}}], ports: [{port: sql}]}]}`, egress, map[string]string{db: "TCP:5432", bank: "TCP:5433", void: "nothing", outside: "nothing"}},
		{"everybody's port by name", `{podSelector: {}, egress: [{ports: [{port: sql}, {port: 53, protocol: UDP}]}]}`, egress, map[string]string{db: "TCP:5432 UDP:53", void: "UDP:53", outside: "UDP:53"}},
		{"a block's port by name", `{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.1.2/32}}, {ipBlock: {cidr: "fd00:1::2/128"}}], ports: [{port: sql}]}]}`, egress, map[string]string{db: "TCP:5432", bank: "nothing", outside: "nothing"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := shop()
			s.Policies = []*Policy{sound(t, "shop/p", row.spec), sound(t, "bank/all", `{podSelector: {}, ingress: [{}], egress: [{}]}`)}
			d := Compile(s)
			for peers, want := range row.want {
				for peer := range strings.FieldsSeq(peers) {
					if got := says(d, 1, row.dir, peer); got != want {
						t.Errorf("%s with %s: %s, want %s", row.dir, peer, got, want)
					}
				}
			}
		})
	}
}

// What one policy allows no other removes.
func TestPoliciesAdd(t *testing.T) {
	s := shop()
	s.Policies = []*Policy{
		sound(t, "shop/none", `{podSelector: {}}`),
		sound(t, "shop/db", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]}`),
		sound(t, "shop/other", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`),
	}
	d := Compile(s)
	if got := says(d, 1, ingress, "10.0.1.2"); got != "TCP:80" {
		t.Errorf("from db: %s", got)
	}
	if got := says(d, 1, ingress, "10.0.1.3"); got != "nothing" {
		t.Errorf("from another: %s", got)
	}
}

// What cannot be used allows nothing, and does not take the rest with it.
func TestUnusable(t *testing.T) {
	for _, row := range []struct{ name, spec, problem, want string }{
		{"a rule", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}, {ports: [{port: 80}]}]}`, "spec.ingress[0]: from[0]: ipBlock.cidr", "TCP:80"},
		{"an exception", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [x]}}]}]}`, "ipBlock.except[0]", "nothing"},
		{"IPv4 in IPv6", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}]}]}`, "write it as IPv4", "nothing"},
		{"a peer of nobody", `{podSelector: {}, ingress: [{from: [{}]}]}`, "neither podSelector", "nothing"},
		{"a peer of another version", `{podSelector: {}, ingress: [{from: [{podSelector: {}, nodeSelector: {}}]}]}`, "nodeSelector", "nothing"},
		{"a port's field of another version", `{podSelector: {}, ingress: [{ports: [{port: 80, onlyIf: x}]}]}`, "onlyIf", "nothing"},
		{"a peer of two kinds", `{podSelector: {}, ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 0.0.0.0/0}}]}]}`, "goes with no selector", "nothing"},
		{"to in ingress", `{podSelector: {}, ingress: [{to: [{podSelector: {}}]}]}`, "has from only", "nothing"},
		{"an operator", `{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}]}]}`, `"Gt" is no operator`, "nothing"},
		{"In without values", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: a, operator: NotIn}]}}]}]}`, "NotIn needs values", "nothing"},
		{"Exists with values", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [x]}]}}]}]}`, "takes no values", "nothing"},
		{"no key", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{operator: DoesNotExist}]}}]}]}`, "has no key", "nothing"},
		{"a protocol", `{podSelector: {}, ingress: [{ports: [{protocol: ICMP}]}]}`, `"ICMP" is none of`, "nothing"},
		{"port 0", `{podSelector: {}, ingress: [{ports: [{port: 0}]}]}`, "no range", "nothing"},
		{"port 65536", `{podSelector: {}, ingress: [{ports: [{port: 65536}]}]}`, "no range", "nothing"},
		{"a range backwards", `{podSelector: {}, ingress: [{ports: [{port: 80, endPort: 79}]}]}`, "no range", "nothing"},
		{"the end of no range", `{podSelector: {}, ingress: [{ports: [{endPort: 79}]}]}`, "needs a port", "nothing"},
		{"a range of a name", `{podSelector: {}, ingress: [{ports: [{port: http, endPort: 79}]}]}`, "does not go with", "nothing"},
		{"no name", `{podSelector: {}, ingress: [{ports: [{port: ""}]}]}`, "name is empty", "nothing"},
		{"a port that is none", `{podSelector: {}, ingress: [{ports: [{port: 1.5}]}]}`, "neither a number", "nothing"},
		{"a type", `{podSelector: {}, policyTypes: [Ingress, Sideways], ingress: [{}]}`, "policyTypes[1]", "everything"},
		{"whom it isolates", `{podSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}, ingress: [{}]}`, "isolates all pods", "nothing"},
		{"all of it", `{podSelector: 7}`, "isolates all pods", "nothing"},
		{"a field of another version", `{podSelector: {matchLabels: {app: db}}, nodeSelector: {}}`, "isolates all pods", "nothing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := shop()
			s.Policies = []*Policy{policy(t, "shop/p", row.spec)}
			if found := strings.Join(s.Policies[0].Problems, "; "); !strings.Contains(found, row.problem) {
				t.Errorf("problems: %q, want %q", found, row.problem)
			}
			if got := says(Compile(s), 1, ingress, "10.0.1.2"); got != row.want {
				t.Errorf("it allows %s, want %s", got, row.want)
			}
		})
	}
}

const fromDB = `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`

// Who is behind an address, when pods come and go.
func TestAddresses(t *testing.T) {
	from := func(t *testing.T, s State, peer string) string {
		s.Policies = []*Policy{sound(t, "shop/p", fromDB)}
		return says(Compile(s), 1, ingress, peer)
	}
	newer := func() *Pod {
		p := pod("shop/new", "app=new", "10.0.1.2")
		p.Created = time.Unix(2000, 0)
		return p
	}
	for _, row := range []struct {
		name   string
		change func(*State)
		want   string
	}{
		{"as it is", func(*State) {}, "everything"},
		{"it has ended", func(s *State) { s.Pods[1].Finished = true }, "nothing"},
		{"it is the node's", func(s *State) { s.Pods[1].HostNetwork = true }, "nothing"},
		{"it has no address yet", func(s *State) { s.Pods[1].Addresses = nil }, "nothing"},
		{"it is to end", func(s *State) { s.Pods[1].Leaving = true }, "everything"},
		{"a second one claims it", func(s *State) { s.Pods = append(s.Pods, newer()) }, "everything"},
		{"a second one, said first", func(s *State) { s.Pods = append([]*Pod{newer()}, s.Pods...) }, "everything"},
		{"a second one while it ends", func(s *State) { s.Pods[1].Leaving = true; s.Pods = append(s.Pods, newer()) }, "nothing"},
		{"a second one after it", func(s *State) { s.Pods[1].Finished = true; s.Pods = append(s.Pods, newer()) }, "nothing"},
		{"this node gave it another", func(s *State) {
			s.Local = append(s.Local, Local{Ifindex: 9, Namespace: "void", Name: "x", UID: "void/x", Addresses: s.Pods[1].Addresses})
		}, "nothing"},
		{"this node gave it nobody that is known", func(s *State) {
			s.Local = append(s.Local, Local{Ifindex: 9, Namespace: "shop", Name: "later", Addresses: s.Pods[1].Addresses})
		}, "nothing"},
		{"this node gave it a container", func(s *State) { s.Local = append(s.Local, Local{Ifindex: 9, Addresses: s.Pods[1].Addresses}) }, "nothing"},
		{"this node gave it, the API does not know", func(s *State) {
			s.Local = append(s.Local, local(9, s.Pods[1]))
			s.Pods[1].Addresses = nil
		}, "everything"},
		{"a tenant's is another's", func(s *State) { s.Pods[1].Addresses[0].Tenant = 3 }, "nothing"},
		{"its namespace is not known", func(s *State) { delete(s.Namespaces, "shop") }, "everything"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := shop()
			row.change(&s)
			if got := from(t, s, "10.0.1.2"); got != row.want {
				t.Errorf("it allows %s, want %s", got, row.want)
			}
		})
	}
}

// Labels of a namespace that is not known fulfil no selector.
func TestUnknownNamespace(t *testing.T) {
	s := shop()
	s.Policies = []*Policy{sound(t, "shop/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a]}]}}]}]}`)}
	if got := says(Compile(s), 1, ingress, "10.0.1.3"); got != "everything" {
		t.Errorf("before: %s", got)
	}
	delete(s.Namespaces, "bank")
	if got := says(Compile(s), 1, ingress, "10.0.1.3"); got != "nothing" {
		t.Errorf("it allows %s", got)
	}
}

// A tenant's addresses are apart from the cluster's.
func TestTenants(t *testing.T) {
	s := shop()
	in := func(a string) Address { return Address{3, netip.MustParseAddr(a)} }
	s.Pods[1].Addresses = append(s.Pods[1].Addresses, in("10.9.1.2"))
	s.Pods[2].Addresses = append(s.Pods[2].Addresses, Address{4, netip.MustParseAddr("10.9.1.2")})
	s.Local = append(s.Local, Local{Ifindex: 2, Namespace: "shop", Name: "web", UID: "shop/web", Addresses: []Address{in("10.9.0.1")}})
	s.Policies = []*Policy{sound(t, "shop/p", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}, {ipBlock: {cidr: 198.51.100.0/24}}]}]}`)}
	d := Compile(s)
	if list := d.Pods[2].Ingress; list == nil || list != d.Pods[1].Ingress {
		t.Fatalf("the second interface has %v", list)
	}
	list := d.Pods[2].Ingress
	if got := list.Allows(d.at(3, "10.9.1.2")); !slices.Equal(got, []Ports{everything}) {
		t.Errorf("from the tenant's pod: %v", got)
	}
	if got := list.Allows(d.at(3, "198.51.100.7")); !slices.Equal(got, []Ports{everything}) {
		t.Errorf("from the block in the tenant: %v", got)
	}
	for _, a := range []string{"10.0.1.2", "10.9.9.9"} {
		if got := list.Allows(d.at(3, a)); got != nil {
			t.Errorf("from %s of the tenant: %v", a, got)
		}
	}
	if d.at(0, "10.9.1.2") != nil || d.at(4, "10.9.1.2") != nil {
		t.Error("a tenant's address is known in another")
	}
}

// Pods on this node that the API does not know are closed; containers of nobody are open.
func TestUnknownPods(t *testing.T) {
	s := shop()
	s.Local[0].UID = "another"
	s.Local = append(s.Local, Local{Ifindex: 2, Namespace: "shop", Name: "new"}, Local{Ifindex: 3}, local(4, s.Pods[1]))
	s.Local[3].UID = ""
	d := Compile(s)
	for index, want := range map[int]string{1: "nothing", 2: "nothing", 3: "all", 4: "all", 5: "not there"} {
		for _, dir := range []direction{ingress, egress} {
			if got := says(d, index, dir, "10.0.1.3"); got != want {
				t.Errorf("%d %s: %s, want %s", index, dir, got, want)
			}
		}
	}
}

// The same content has the same key, and other content another.
func TestKeys(t *testing.T) {
	list := func(specs ...string) string {
		s := shop()
		for i, text := range specs {
			s.Policies = append(s.Policies, sound(t, fmt.Sprintf("shop/p%d", i), text))
		}
		return Compile(s).Pods[1].Ingress.Key()
	}
	a := `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {a: b, c: d}}}], ports: [{port: 1}, {port: 2}]}]}`
	same := `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 2}, {port: 1, protocol: TCP}], from: [{podSelector: {matchExpressions: [{key: c, operator: In, values: [d]}, {key: a, operator: In, values: [b, b]}]}}]}]}`
	if list(a) != list(same) || list(a, same) != list(a) || list(a, `{podSelector: {}}`) != list(a) {
		t.Error("what allows the same has another key")
	}
	seen := map[string]string{}
	for _, spec := range []string{
		a, `{podSelector: {}}`, `{podSelector: {}, ingress: [{}]}`,
		`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {a: b}}}, {podSelector: {matchLabels: {c: d}}}], ports: [{port: 1}, {port: 2}]}]}`,
		`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {a: b, c: d}}}], ports: [{port: 1}, {port: 2}]}]}`,
		`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {a: b, c: d}}}], ports: [{port: 1}, {port: 3}]}]}`,
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`,
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/16]}}]}]}`,
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 10.0.0.0/16}}]}]}`,
	} {
		if other, there := seen[list(spec)]; there {
			t.Errorf("%s has the key of %s", spec, other)
		}
		seen[list(spec)] = spec
	}
}

// Pods that no rule can tell apart share an identity.
func TestPodsShareIdentities(t *testing.T) {
	s := shop()
	for i := range 100 {
		s.Pods = append(s.Pods, pod(fmt.Sprintf("bank/job-%d", i), fmt.Sprintf("controller-uid=%d", i), fmt.Sprintf("10.1.0.%d", i)))
	}
	s.Policies = []*Policy{sound(t, "shop/p", fromDB)}
	seen := map[string]bool{}
	for _, i := range Compile(s).Peers {
		seen[i.Key()] = true
	}
	if len(seen) > 4 {
		t.Errorf("%d identities", len(seen))
	}
	s.Policies = nil
	if d := Compile(s); len(d.Peers) > 0 {
		t.Errorf("%d peers, though no pod is isolated", len(d.Peers))
	}
}

// An old list must not take what it did not take before, nor refuse what it took, when the
// next state's identities are there already.
func TestOldListsWithNewIdentities(t *testing.T) {
	c := NewCompiler("")
	s := shop()
	s.Policies = []*Policy{sound(t, "shop/p", `{podSelector: {}, ingress: [
		{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db]}]}}], ports: [{port: 1}]},
		{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.0/26]}}], ports: [{port: 2}]},
		{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 3}]}]}`)}
	old := c.Compile(s)
	c.Applied()
	check := func(d Desired) {
		t.Helper()
		list := old.Pods[1].Ingress
		for peer, want := range map[string]uint16{"10.0.1.2": 3, "192.0.2.1": 0, "192.0.2.65": 2, "10.0.0.1": 1} {
			got := list.Allows(d.at(0, peer))
			if want == 0 && len(got) > 0 || want != 0 && (len(got) != 1 || got[0].First != want) {
				t.Errorf("the old list allows %s: %v, want port %d", peer, got, want)
			}
		}
	}
	check(old)
	s.Policies = []*Policy{sound(t, "shop/p", `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`)}
	check(c.Compile(s))
	s.Policies = nil
	check(c.Compile(s)) // the one before was not applied
	c.Applied()
	if d := c.Compile(s); len(d.Peers) > 0 {
		t.Errorf("%d peers remain", len(d.Peers))
	}
}

// A compiler that knows earlier states says the same as one that does not.
func TestCompilerKeepsNothingOld(t *testing.T) {
	c := NewCompiler("")
	s := shop()
	s.Policies = []*Policy{sound(t, "shop/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: db}}}]}]}`)}
	step := func(want string) {
		t.Helper()
		d := c.Compile(s)
		c.Applied()
		if got := says(d, 1, ingress, "10.0.1.3"); got != want {
			t.Errorf("it allows %s, want %s", got, want)
		}
		if got := says(Compile(s), 1, ingress, "10.0.1.3"); got != want {
			t.Errorf("a new one allows %s, want %s", got, want)
		}
	}
	step("everything")
	s.Namespaces["bank"] = &Namespace{Name: "bank"}
	step("nothing")
	s.Namespaces["bank"] = &Namespace{Name: "bank", Labels: map[string]string{"team": "b"}}
	step("everything")
	relabelled := *s.Pods[2]
	relabelled.Labels = map[string]string{"app": "x"}
	s.Pods[2] = &relabelled
	step("nothing")
}

// Another compiler's identities are others, unless it has the same salt.
func TestSalt(t *testing.T) {
	key := func(salt string) string {
		s := shop()
		s.Policies = []*Policy{sound(t, "shop/p", fromDB)}
		return NewCompiler(salt).Compile(s).at(0, "10.0.1.2").Key()
	}
	if a, again := key("a"), key("a"); a != again || a == key("b") || a == key("") {
		t.Error("a salt makes no difference, or the same one does")
	}
}
