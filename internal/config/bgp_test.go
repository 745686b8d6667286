package config_test

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
)

func TestBGP(t *testing.T) {
	const good = `encapsulation: {source: '2001:db8::1'}
policies: [{name: by-peer, color: 100, endpoint: '2001:db8::7'}]
bgp:
  asn: 65001
  router_id: 192.0.2.1
  listen: ['2001:db8::1']
  peers:
    - {address: '2001:db8::9', asn: 65001, passive: true}
    - {address: 192.0.2.9, asn: 65002, hops: 1, password_file: /etc/culvert/password, hold_time: 30}
`
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if b := c.BGP; b.Port != 179 || b.RestartTime != 120 || b.StaleTime != 0 || b.Peers[0].Port != 179 || b.Peers[0].HoldTime != 90 || b.Peers[1].HoldTime != 30 {
		t.Errorf("defaults: %+v", b)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"  asn: 65001\n", "", "bgp.asn: is missing"},
		{"  router_id: 192.0.2.1\n", "", "bgp.router_id: \"\" is not a router ID"},
		{"router_id: 192.0.2.1", "router_id: '2001:db8::1'", "line 5: bgp.router_id: \"2001:db8::1\" is not a router ID"},
		{"listen: ['2001:db8::1']", "listen: ['::']", "line 6: bgp.listen[0]: \"::\" is not a unicast address"},
		{"  listen: ['2001:db8::1']\n", "", "bgp.peers[0].passive: neither side would connect"},
		{"192.0.2.9", "'2001:db8::9'", "line 9: bgp.peers[1].address: 2001:db8::9 is already that of"},
		{"192.0.2.9", "224.0.0.9", "line 9: bgp.peers[1].address: \"224.0.0.9\" is not a unicast address"},
		{"asn: 65002", "asn: 65001", "line 9: bgp.peers[1].hops: TTL security"},
		{", asn: 65002", "", "line 9: bgp.peers[1].asn: is missing"},
		{"hold_time: 30", "hold_time: 2", "line 9: bgp.peers[1].hold_time: 2 s is too short"},
		{"/etc/culvert/password", "password", "line 9: bgp.peers[1].password_file: \"password\" depends"},
		{"hops: 1", "source: '2001:db8::1'", "line 9: bgp.peers[1].source: 2001:db8::1 cannot connect there"},
		{"hops: 1", "hopps: 1", "line 9: bgp.peers[1].hopps: unknown field (fix: did you mean \"hops\"?)"},
		{"  asn: 65001\n  router_id: 192.0.2.1\n", "  asn: 65001\n  router_id: 192.0.2.1\n  restart_time: 5000\n", "bgp.restart_time: 5000 is too long"},
		{"  asn: 65001\n  router_id: 192.0.2.1\n", "  asn: 65001\n  router_id: 192.0.2.1\n  stale_time: 16777216\n", "bgp.stale_time: 16777216 is too long"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := config.Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in place of %q: %v, want %s", tt.new, tt.old, err, tt.want)
		}
	}
	if _, err := config.Parse([]byte("bgp: {router_id: 192.0.2.1}")); err == nil || !strings.Contains(err.Error(), "bgp.asn: is missing") {
		t.Errorf("a router ID alone: %v", err)
	}
}

func TestBGPOfACluster(t *testing.T) {
	const good = `encapsulation: {source: '2001:db8::1'}
overlay: {mode: bgp, locator: 'fc00:0:1::/48', sids: single}
bgp:
  asn: 65001
  router_id: 192.0.2.1
  cluster_id: 192.0.2.100
  prefixes: [10.244.0.0/16]
  vpn: {route_distinguisher: '192.0.2.1:7', import_targets: ['65000:100'], export_targets: ['4200000000:1']}
  peers:
    - {address: '2001:db8::9', asn: 65001, route_reflector: true}
    - {address: '2001:db8::8', asn: 65000, families: [unicast, l3vpn]}
`
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if c.BGP.MaxPrefixes != config.DefaultBGPMaxPrefixes || c.BGP.StaleTime != config.DefaultBGPStaleTime {
		t.Errorf("defaults: %+v", c.BGP)
	}
	// One file for all nodes.
	if _, err := config.Parse([]byte(strings.Replace(good, "router_id: 192.0.2.1\n", "listen: ['::']\n", 1))); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"cluster_id: 192.0.2.100", "cluster_id: '2001:db8::1'", "line 6: bgp.cluster_id: 2001:db8::1 is not a cluster ID"},
		{"10.244.0.0/16", "10.244.0.1/16", "line 7: bgp.prefixes[0]: 10.244.0.1/16 has bits behind its length"},
		{"192.0.2.1:7", "192.0.2.1:65536", "line 8: bgp.vpn.route_distinguisher: \"192.0.2.1:65536\" does not end with a number of 16 bits"},
		{"192.0.2.1:7", "red", "line 8: bgp.vpn.route_distinguisher: \"red\" begins with neither"},
		{"route_distinguisher: '192.0.2.1:7', ", "", "bgp.vpn.route_distinguisher: \"\" begins with neither"},
		{"65000:100", "65000:4294967296", "line 8: bgp.vpn.import_targets[0]: \"65000:4294967296\" does not end"},
		{"4200000000:1", "4200000000:65536", "line 8: bgp.vpn.export_targets[0]: \"4200000000:65536\" does not end with a number of 16 bits"},
		{"sids: single", "sids: double", "line 8: bgp.vpn: a route of a VPN names one SID"},
		{"asn: 65001, route_reflector", "asn: 65002, route_reflector", "line 10: bgp.peers[0].route_reflector: route reflection is among internal peers"},
		{"route_reflector: true", "route_reflector: true, client: true", "line 10: bgp.peers[0].client: a route reflector's client"},
		{"l3vpn", "evpn", "line 11: bgp.peers[1].families[1]: "},
		{"router_id: 192.0.2.1\n", "router_id: 0.0.0.0\n", "line 5: bgp.router_id: \"0.0.0.0\" is not a router ID"},
		{"  prefixes: [10.244.0.0/16]\n", "  listen: [0.0.0.0]\n", "line 7: bgp.listen[0]: \"0.0.0.0\" is not a unicast address"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := config.Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in place of %q: %v, want %s", tt.new, tt.old, err, tt.want)
		}
	}
}
