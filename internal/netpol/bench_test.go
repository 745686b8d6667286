package netpol

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// large is 10,000 pods of 100 namespaces with 500 policies; 100 pods are on this node.
func large(t testing.TB) State {
	s := State{Namespaces: map[string]*Namespace{}}
	for n := range 100 {
		name := fmt.Sprintf("ns-%d", n)
		s.Namespaces[name] = &Namespace{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name, "team": fmt.Sprint(n % 7)}}
		for i := range 100 {
			p := &Pod{
				Namespace: name, Name: fmt.Sprintf("pod-%d", i), UID: fmt.Sprintf("%d-%d", n, i), Created: time.Unix(int64(i), 0),
				Labels: map[string]string{
					"app": fmt.Sprint(i % 10), "pod-template-hash": fmt.Sprint(n*10 + i%10), "controller-revision-hash": "x",
					"statefulset.kubernetes.io/pod-name": fmt.Sprint(n*100 + i), "tier": fmt.Sprint(i % 3),
				},
				Ports: []ContainerPort{{"http", TCP, 8080}},
				Addresses: []Address{
					{Addr: netip.AddrFrom4([4]byte{10, 0, byte(n), byte(i)})},
					{Addr: netip.AddrFrom16([16]byte{0: 0xfd, 13: 1, 14: byte(n), 15: byte(i)})},
				},
			}
			s.Pods = append(s.Pods, p)
			if i == 0 {
				s.Local = append(s.Local, local(n+1, p))
			}
		}
		for _, spec := range []string{
			`{podSelector: {}}`,
			`{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`,
			`{podSelector: {matchLabels: {app: "0"}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: "3"}}, podSelector: {matchLabels: {tier: "1"}}}], ports: [{port: http}]}]}`,
			`{podSelector: {matchLabels: {app: "1"}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.7.0/24]}}]}]}`,
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}], ports: [{protocol: UDP, port: 53}]}, {to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}`,
		} {
			s.Policies = append(s.Policies, sound(t, fmt.Sprintf("%s/p%d", name, len(s.Policies)), spec))
		}
	}
	return s
}

// BenchmarkCompile is a change of one pod, and a start.
func BenchmarkCompile(b *testing.B) {
	s := large(b)
	b.Run("change", func(b *testing.B) {
		c := NewCompiler("")
		c.Compile(s)
		for b.Loop() {
			p := *s.Pods[77]
			s.Pods[77] = &p
			c.Compile(s)
		}
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			Compile(s)
		}
	})
	b.Run("verdicts", func(b *testing.B) {
		d := Compile(s)
		identities, lists := map[string]*Identity{}, map[string]*List{}
		for _, i := range d.Peers {
			identities[i.Key()] = i
		}
		for _, p := range d.Pods {
			lists[p.Ingress.Key()], lists[p.Egress.Key()] = p.Ingress, p.Egress
		}
		b.ReportMetric(float64(len(identities)*len(lists)), "pairs")
		for b.Loop() {
			for _, l := range lists {
				for _, i := range identities {
					l.Allows(i)
				}
			}
		}
	})
}
