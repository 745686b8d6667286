package upf

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

func claimConfig(allowed ...string) Config {
	c := Config{FramedRoutes: sample.Prefixes(allowed...)}
	for what, p := range map[string]string{"bgp.peers": "192.0.2.9/32", "the peers of interface n3": "10.1.0.0/24", "locator main": "2001:db8:a::/48", "the network at n6": "198.51.100.0/24"} {
		c.Reserved = append(c.Reserved, Reserved{netip.MustParsePrefix(p), what})
	}
	c.Pools = []pool.Pool{{Prefixes: sample.Prefixes("10.45.0.0/16", "2001:db8:45::/48")}}
	return c
}

// What overlaps somebody else's prefix is refused, whether it covers it or lies in it, and what
// is the UEs' own is not. upf.framed_routes narrows, and opens what it names.
func TestClaims(t *testing.T) {
	for _, tt := range []struct {
		kind    claimKind
		prefix  string
		why     string // "" : it may be claimed
		allowed []string
	}{
		{claimRoute, "203.0.113.0/28", "", nil},
		{claimRoute, "192.0.2.9/32", "it overlaps 192.0.2.9/32, of bgp.peers", nil},
		{claimRoute, "192.0.2.0/24", "it overlaps 192.0.2.9/32, of bgp.peers", nil},
		{claimRoute, "192.0.2.8/32", "", nil},
		{claimRoute, "10.1.0.128/25", "it overlaps 10.1.0.0/24, of the peers of interface n3", nil},
		{claimRoute, "198.51.100.1/32", "of the network at n6", nil},
		{claimRoute, "2001:db8::/32", "of locator main", nil},
		{claimRoute, "2001:db8:a:1::/64", "of locator main", nil},
		{claimRoute, "0.0.0.0/0", "it is every address", nil},
		{claimRoute, "::/0", "it is every address", nil},
		{claimRoute, "224.0.0.0/4", "routers do not forward it", nil},
		{claimRoute, "127.0.0.0/8", "routers do not forward it", nil},
		{claimRoute, "fe80::/10", "routers do not forward it", nil},
		{claimRoute, "10.45.3.0/24", "", nil},
		{claimUE, "10.45.0.1/32", "", nil},
		{claimUE, "10.1.0.7/32", "of the peers of interface n3", nil},
		{claimUE, "192.0.2.9/32", "of bgp.peers", nil},
		{claimUE, "2001:db8:a::/64", "of locator main", nil},
		{claimUE, "100.64.0.1/32", "", nil},
		{claimUE, "10.1.0.7/32", "of the peers of interface n3", []string{"10.1.0.0/24"}}, // for networks behind UEs only
		{claimRoute, "203.0.113.0/28", "upf.framed_routes does not list it", []string{"10.0.0.0/8"}},
		{claimRoute, "10.7.0.0/24", "", []string{"10.0.0.0/8"}},
		{claimRoute, "10.45.3.0/24", "", []string{"192.168.0.0/16"}}, // the pools are the UEs'
		{claimRoute, "10.1.0.0/24", "of the peers of interface n3", []string{"10.0.0.0/8"}},
		{claimRoute, "10.1.0.0/28", "", []string{"10.0.0.0/8", "10.1.0.0/24"}},
		{claimRoute, "10.0.0.0/8", "", []string{"10.0.0.0/8"}}, // the entry itself
		{claimRoute, "0.0.0.0/0", "", []string{"0.0.0.0/0"}},
		{claimRoute, "128.0.0.0/1", "of ", []string{"0.0.0.0/0"}},
		{claimRoute, "127.0.0.0/8", "routers do not forward it", []string{"127.0.0.0/8"}},
	} {
		c := claimConfig(tt.allowed...)
		got := newClaims(&c, slog.New(slog.DiscardHandler)).refusal(netip.MustParsePrefix(tt.prefix), tt.kind)
		if (got == "") != (tt.why == "") || !strings.Contains(got, tt.why) {
			t.Errorf("%s %s with %v: %q, want %q", tt.kind, tt.prefix, tt.allowed, got, tt.why)
		}
	}
}

// A session that claims what others have is not set up, nor does a session get it later. What a
// session had before the configuration changed does not keep it from being modified.
func TestClaimsOfSessions(t *testing.T) {
	var logged bytes.Buffer
	n := newN4(t)
	n.UPF.o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	claiming := func(routes ...string) *session.Session {
		s := sample.Session(7)
		s.PDRs[1].PDI.FramedRoutes = sample.Prefixes(routes...)
		return s
	}
	refused := func(what string, err error) {
		t.Helper()
		rule, is := errors.AsType[*session.RuleError](err)
		if !errors.Is(err, pfcp.ErrClosed) || !is || rule.Kind != session.RulePDR || rule.ID != 2 {
			t.Errorf("%s: %v", what, err)
		}
	}
	before := claiming("192.0.2.0/24")
	if err := n.Establish(before); err != nil {
		t.Fatal(err)
	}
	config := claimConfig()
	config.Addresses, config.Pools = n.install.config.Load().Addresses, n.install.config.Load().Pools
	if err := n.SetConfig(config); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Modify(before, before, session.Modification{}); err != nil {
		t.Errorf("what it had: %v", err)
	}
	_, err := n.Modify(before, claiming("192.0.2.0/24", "0.0.0.0/0"), session.Modification{})
	refused("a route more", err)
	other := sample.Session(8)
	other.PDRs[1].PDI.FramedRoutes = sample.Prefixes("10.1.0.0/16")
	for range 2 {
		refused("a new session", n.Establish(other))
	}
	if n.Len() != 1 {
		t.Errorf("%d sessions", n.Len())
	}
	text := logged.String()
	if want := `claim="framed route" prefix=10.1.0.0/16 reason="it overlaps 10.1.0.0/24, of the peers of interface n3"`; strings.Count(text, want) != 1 {
		t.Errorf("want once %s in\n%s", want, text)
	}
}
