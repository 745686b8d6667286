package netpol_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/testutil/policycase"
)

// TestCyclonus: cyclonus' matcher, Explain and the lists agree, about each flow of each of its
// cases, in both families.
func TestCyclonus(t *testing.T) {
	for _, network := range []string{"10.1.0.%d", "fd01::%d"} {
		steps, flows, allowed := 0, 0, 0
		numbers := map[string]int{}
		address := func(namespace, pod string) netip.Addr {
			key := namespace + "/" + pod
			if numbers[key] == 0 {
				numbers[key] = 1 + len(numbers)
			}
			return netip.MustParseAddr(fmt.Sprintf(network, numbers[key]))
		}
		compiler := netpol.NewCompiler("")
		err := policycase.Each(address, func(s policycase.Step) {
			steps++
			for i, p := range s.State.Pods {
				s.State.Local = append(s.State.Local, netpol.Local{Ifindex: i, Namespace: p.Namespace, Name: p.Name, UID: p.UID, Addresses: p.Addresses})
			}
			desired := compiler.Compile(s.State)
			compiler.Applied()
			for _, f := range s.Flows {
				flows++
				if f.Egress && f.Ingress {
					allowed++
				}
				wantFlow(t, s, desired, f)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d steps, %d flows, %d of which pass", steps, flows, allowed)
		if steps < 200 || allowed < flows/4 || flows-allowed < flows/20 {
			t.Errorf("%d steps with %d flows, of which %d pass: too few of something", steps, flows, allowed)
		}
	}
}

func wantFlow(t *testing.T, s policycase.Step, desired netpol.Desired, f policycase.Flow) {
	t.Helper()
	explained, err := s.State.Explain(netpol.Question{From: netpol.Party{Pod: f.From}, To: netpol.Party{Pod: f.To}, Protocol: f.Protocol, Port: f.Port})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range explained {
		if v.Egress.Allowed != f.Egress || v.Ingress.Allowed != f.Ingress {
			t.Fatalf("%s: Explain says %v\ncyclonus: egress %t, ingress %t", s.Name, v, f.Egress, f.Ingress)
		}
	}
	own := func(p *netpol.Pod) netpol.Isolation { return desired.Pods[slices.Index(s.State.Pods, p)] }
	if allows(desired, own(f.From).Egress, f.To, f) != f.Egress || allows(desired, own(f.To).Ingress, f.From, f) != f.Ingress {
		t.Fatalf("%s: the lists do not say of %s to %s, protocol %d, port %d: egress %t, ingress %t", s.Name, f.From.Key(), f.To.Key(), f.Protocol, f.Port, f.Egress, f.Ingress)
	}
}

// allows says whether a list lets a flow pass whose other end is a pod.
func allows(d netpol.Desired, l *netpol.List, other *netpol.Pod, f policycase.Flow) bool {
	if l == nil {
		return true
	}
	a := other.Addresses[0]
	var who *netpol.Identity
	for bits := a.BitLen(); bits >= 0 && who == nil; bits-- { // the longest prefix counts
		p, _ := a.Prefix(bits)
		who = d.Peers[netpol.Peer{Prefix: p}]
	}
	return slices.ContainsFunc(l.Allows(who), func(p netpol.Ports) bool { return p.Allow(f.Protocol, f.Port) })
}
