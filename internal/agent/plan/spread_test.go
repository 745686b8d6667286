package plan

import (
	"fmt"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// TestSpreadOf: the cards that are there, where packets are spread; the G-PDUs are those of N3's addresses.
func TestSpreadOf(t *testing.T) {
	here := &netdev.Snapshot{Links: []netdev.Link{{Index: 3, Name: "n3"}, {Index: 6, Name: "n6"}, {Index: 4, Name: "n4"}}}
	const v4, both = "[{n3 3 true auto [gtpu4e gtpu4u gtpu4d]} {n6 6 true auto []} {n4 4 false auto []}]", "[{n3 3 true auto [gtpu4e gtpu4u gtpu4d gtpu6e gtpu6u gtpu6d]} {n6 6 true auto []} {n4 4 false auto []}]"
	for _, row := range []struct {
		spread, addresses string
		links             *netdev.Snapshot
		want              string
	}{
		{"{by: ue}", "192.0.2.1", here, "ue auto " + v4},
		{"{by: ue, method: xdp}", "192.0.2.1", here, "ue xdp " + v4},
		{"{by: ue, method: card}", "192.0.2.1", here, "ue card " + v4},
		{"{by: ue, method: auto}", "192.0.2.1", here, "ue auto " + v4},
		{"{by: ue, method: card}", "192.0.2.1, '2001:db8::1'", here, "ue card " + both},
		{"{by: ue, method: card}", "192.0.2.1", &netdev.Snapshot{}, "ue card []"},
		{"{by: flow, method: auto}", "192.0.2.1", here, "flow xdp " + v4},
		{"{by: off}", "192.0.2.1", here, "off auto []"},
	} {
		c, err := config.Parse(fmt.Appendf(nil, `interfaces:
- {name: n3, roles: [n3], peers: [192.0.2.0/24]}
- {name: n6, roles: [n6]}
- {name: n4, roles: [n4]}
gtpu: {addresses: [%s]}
spread: %s`, row.addresses, row.spread))
		if err != nil {
			t.Fatal(err)
		}
		s := Compile(&Goal{}, c, row.links, nil, Scope{}).Spread
		if got := fmt.Sprint(s.By, " ", s.Method, " ", s.Cards); got != row.want {
			t.Errorf("%s: %s, want %s", row.spread, got, row.want)
		}
	}
}

// TestSpreadAsksAgain where an interface is to be attached in another mode: packets of a
// generic one cannot be spread.
func TestSpreadAsksAgain(t *testing.T) {
	here := &netdev.Snapshot{Links: []netdev.Link{{Index: 6, Name: "n6"}}}
	of := func(mode string) Spread {
		c, err := config.Parse(fmt.Appendf(nil, "interfaces: [{name: n6, roles: [n6], mode: %s}]\nspread: {by: ue}", mode))
		if err != nil {
			t.Fatal(err)
		}
		return Compile(&Goal{}, c, here, nil, Scope{}).Spread
	}
	if desired.Same(of("auto"), of("generic")) || !desired.Same(of("auto"), of("auto")) {
		t.Errorf("%+v, %+v", of("auto"), of("generic"))
	}
}
