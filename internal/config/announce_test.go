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
