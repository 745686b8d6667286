package policies

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/overlay/clusterapi"
)

// Whatever their number, rules allow all remotes, none twice, and not the foreign one.
func TestRulesAllowRemotes(t *testing.T) {
	for _, rules := range []int{1, 3, 100, 1000} {
		s := clusterapi.New()
		putPolicy(s, "p", "pod", rules, 10_000, remote)
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/apis/networking.k8s.io/v1/namespaces/bench/networkpolicies/p", nil))
		var policy struct {
			Spec struct {
				Ingress []struct {
					From []struct{ IPBlock struct{ CIDR netip.Prefix } }
				}
				Egress []any
			}
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &policy); err != nil {
			t.Fatal(err)
		}
		if len(policy.Spec.Ingress) != rules || len(policy.Spec.Egress) != rules {
			t.Errorf("%d and %d rules, want %d", len(policy.Spec.Ingress), len(policy.Spec.Egress), rules)
		}
		allows := func(a netip.Addr) (n int) {
			for _, rule := range policy.Spec.Ingress {
				if rule.From[0].IPBlock.CIDR.Contains(a) {
					n++
				}
			}
			return n
		}
		for _, i := range []int{0, 1, 5000, 9999} {
			if n := allows(remote(i)); n != 1 {
				t.Errorf("%d rules of %d allow %s, want one", n, rules, remote(i))
			}
		}
		if n := allows(foreignAddress); n != 0 {
			t.Errorf("%d rules of %d allow %s", n, rules, foreignAddress)
		}
	}
}

// Pods beside are measured together, where packets come to them.
func TestNames(t *testing.T) {
	p := Plan{Rules: []int{1, 10}, Pods: 5}
	if got := p.Names(Ingress); !slices.Equal(got, []string{Off, None, First, Others, "1", "10", Many}) {
		t.Errorf("%q", got)
	}
	if got := p.Names(Egress); !slices.Equal(got, []string{Off, None, First, Others, "1", "10"}) {
		t.Errorf("%q", got)
	}
}
