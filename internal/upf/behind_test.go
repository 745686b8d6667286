package upf

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/session"
)

// What is behind UEs follows the sessions: framed routes of any PDR once, delegated prefixes,
// and nothing of a UE that has an address and a /64 only.
func TestBehind(t *testing.T) {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	of := func(ue, routes []netip.Prefix) *session.Session {
		return &session.Session{PDRs: []session.PDR{{PDI: session.PDI{UE: ue, FramedRoutes: routes}}, {PDI: session.PDI{UE: ue, FramedRoutes: routes}}}}
	}
	u := &UPF{}
	is := func(what string, want ...string) {
		t.Helper()
		var got []netip.Prefix
		for _, s := range Behind(u) {
			got = append(got, s.Routes...)
			if len(s.UE) == 0 {
				t.Errorf("%s: a session without a UE: %+v", what, s)
			}
		}
		slices.SortFunc(got, netip.Prefix.Compare)
		if !slices.Equal(got, prefixes(want...)) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	u.behind.put(1, of(prefixes("10.45.0.1/32", "2001:db8:45:1::/64"), nil))
	is("a UE alone")
	u.behind.put(2, of(prefixes("10.45.0.2/32"), prefixes("203.0.113.0/28", "192.0.2.0/28")))
	u.behind.put(3, of(prefixes("10.45.0.3/32", "2001:db8:46::/56"), nil))
	is("networks, and a delegated prefix", "192.0.2.0/28", "203.0.113.0/28", "2001:db8:46::/56")
	u.behind.put(2, of(prefixes("10.45.0.2/32"), prefixes("203.0.113.0/28")))
	is("one network less", "203.0.113.0/28", "2001:db8:46::/56")
	u.behind.put(2, nil)
	u.behind.put(3, of(prefixes("10.45.0.3/32"), nil))
	is("none is left")
}
