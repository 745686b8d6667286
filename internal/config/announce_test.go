package config

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/announce"
)

const announcingUPF = `
interfaces: [{name: n3, roles: [n3], peers: [192.0.2.128/25]}, {name: n6, roles: [n6], host: [bgp]}]
gtpu: {addresses: [192.0.2.1]}
upf:
  n4: [192.0.2.10]
  smfs: [192.0.2.20/32]
  ue_pools: [{network_instance: internet, prefixes: [10.45.0.0/24, "2001:db8:45::/56"]}, {network_instance: ims, prefixes: [10.46.0.0/24]}]
  announce: [ENTRY]
bgp: {asn: 65001, router_id: 192.0.2.1, peers: [{address: PEER, asn: 65000}]}
`

func TestAnnounce(t *testing.T) {
	good := `network_instance: Internet, pools: true, next_hops: [192.0.2.254, "2001:db8::fe"], communities: ["65001:1", "65001:1:2", no-export]`
	text := func(entry, peer string) string {
		return strings.NewReplacer("ENTRY", entry, "PEER", peer).Replace(announcingUPF)
	}
	c, err := Parse([]byte(text("{"+good+"}", "198.51.100.1")))
	if err != nil {
		t.Fatal(err)
	}
	if e := c.UPF.Announce[0]; e.HoldTime != 10 || e.HoldDown != 30 || e.MaxFramedRoutes != 10000 || len(e.WithdrawOn) != 2 || e.WithdrawOn[0] != announce.CauseN3 {
		t.Errorf("defaults: %+v", e)
	}
	for entry, want := range map[string]string{
		"{network_instance: ims, pools: true}": "", "{network_instance: ims, framed_routes: true, withdraw_on: [n3_path]}": "",
		"{network_instance: other, pools: true}":                                  "announce[0].network_instance",
		"{pools: true}":                                                           "announce[0].network_instance", // no pool without one
		"{network_instance: ims}":                                                 "announce[0].pools",
		"{network_instance: internet, pools: true}":                               "announce[0].next_hops", // IPv6 pools by an IPv4 peer
		"{" + good + ", withdraw_on: [n6]}":                                       "announce[0].withdraw_on[0]",
		"{" + good + "}, {" + good + "}":                                          "announce[1].network_instance",
		"{network_instance: ims, pools: true, next_hops: [192.0.2.1, 192.0.2.2]}": "announce[0].next_hops[1]",
		"{network_instance: ims, pools: true, next_hops: [224.0.0.1]}":            "announce[0].next_hops[0]",
		`{network_instance: ims, pools: true, communities: ["65001"]}`:            "announce[0].communities[0]",
	} {
		_, err := Parse([]byte(text(entry, "198.51.100.1")))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), "upf."+want) {
			t.Errorf("%s: %v, want one about %q", entry, err, want)
		}
	}
	if _, err := Parse([]byte(text("{network_instance: internet, pools: true}", "2001:db8::1"))); err != nil {
		t.Errorf("an IPv6 peer: %v", err)
	}
	without, _, _ := strings.Cut(text("{"+good+"}", "198.51.100.1"), "bgp:")
	if _, err := Parse([]byte(without)); err == nil || !strings.Contains(err.Error(), "section bgp") {
		t.Errorf("without bgp: %v", err)
	}
}

// A slice's VPN has what its routers need, and an entry that announces it goes with it.
func TestSliceVPN(t *testing.T) {
	const good = `vpn: {sid: "2001:db8:1:46::/64", route_distinguisher: "65001:7", export_targets: ["65001:7", "192.0.2.1:9"]}`
	const entry = `{network_instance: ims, vpn: a, pools: true, next_hops: ["2001:db8::fe"]}`
	text := strings.NewReplacer("ENTRY", entry, "PEER, asn: 65000", "198.51.100.1, asn: 65000, families: [l3vpn]").Replace(announcingUPF) +
		"slices: [{name: a, network_instance: ims, " + good + "}, {name: b, network_instance: internet}]\n"
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Slices[0].VPN; v == nil || v.Distinguisher != "65001:7" || len(v.Export) != 2 {
		t.Errorf("the VPN: %+v", v)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`"2001:db8:1:46::/64"`, `10.0.0.0/24`, "slices[0].vpn.sid"},
		{`"65001:7", export`, `"7", export`, "slices[0].vpn.route_distinguisher"},
		{`["65001:7", "192.0.2.1:9"]`, `["65001:7", x]`, "slices[0].vpn.export_targets[1]"},
		{`["65001:7", "192.0.2.1:9"]`, `[]`, "slices[0].vpn.export_targets: is missing"},
		{"vpn: a", "vpn: b", `upf.announce[0].vpn: no slice "b" has a VPN`},
		{"{network_instance: ims, vpn", "{network_instance: internet, vpn", `leads to UEs of the network instance "ims" only`},
		{`["2001:db8::fe"]`, "[192.0.2.254]", "upf.announce[0].next_hops: routes of a VPN over SRv6 need an IPv6 next hop"},
		{"[l3vpn]", "[unicast]", "upf.announce[0].vpn: no BGP peer takes routes of VPNs"},
		{"prefixes: [10.46.0.0/24]", "prefixes: [10.46.0.0/24], nat: {addresses: 203.0.113.0/28}", "upf.announce[0].vpn: a NAT translates on N6"},
		{"{name: b, network_instance: internet}", "{name: b, " + good + "}", "slices[1].vpn.sid"},
	} {
		if _, err := Parse([]byte(strings.Replace(text, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s instead of %s: %v, want an error about %q", tt.new, tt.old, err, tt.want)
		}
	}
}

// A slice that imports routes of its VPN has no other way for what its UEs send.
func TestSliceImports(t *testing.T) {
	const entry = `{network_instance: ims, vpn: a, pools: true, next_hops: ["2001:db8::fe"]}`
	const vpn = `vpn: {sid: "2001:db8:1:46::/64", route_distinguisher: "65001:7", export_targets: ["65001:7"], import_targets: ["65001:7"]}`
	text := strings.NewReplacer("ENTRY", entry, "PEER, asn: 65000", "198.51.100.1, asn: 65000, families: [l3vpn]").Replace(announcingUPF) +
		"encapsulation: {source: \"2001:db8::1\"}\nslices: [{name: a, network_instance: ims, " + vpn + "}]\n"
	c, err := Parse([]byte(text))
	if err != nil || !c.Slices[0].Imports() {
		t.Fatalf("%v: %+v", err, c)
	}
	for _, tt := range []struct{ old, new, want string }{
		{`import_targets: ["65001:7"]`, `import_targets: [x]`, "slices[0].vpn.import_targets[0]"},
		{"network_instance: ims, vpn: {", "network_instance: ims, table: 7, vpn: {", "packets leave by the VPN's routes, and not by table 7"},
		{"network_instance: ims, vpn: {", `network_instance: ims, n9: {transport: srv6, uplink: "fc00::1"}, vpn: {`, "packets leave by the VPN's routes, and not by n9"},
		{"network_instance: ims, vpn: {", "network_instance: ims, ue_to_ue: n6, vpn: {", "do not come back by a VPN"},
		{"vpn: a, ", "", "no UE pool is announced in this VPN"},
		{"encapsulation: {source: \"2001:db8::1\"}", "", "packets by SRv6 have no outer source address"},
	} {
		if _, err := Parse([]byte(strings.Replace(text, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s instead of %s: %v, want an error about %q", tt.new, tt.old, err, tt.want)
		}
	}
}
