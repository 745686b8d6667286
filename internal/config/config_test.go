package config_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func srv6Source() (netip.Addr, error) { return netip.ParseAddr("2001:db8:ffff::1") }

// good is a configuration in which everything refers to something.
const good = `interfaces:
  - {name: eth0, roles: [any]}
  - name: eth1
    mode: native
    roles: [edge]
encapsulation:
  source: 2001:db8:1::1
domain: [2001:db8:100::/40]
locators:
  - name: main
    prefix: 2001:db8:101::/48
sids:
  - sid: 2001:db8:101:1::/64
    behavior: End
    flavors: [PSP]
  - sid: 2001:db8:101:d46::/64
    behavior: End.DT46
    table: 100
policies:
  - name: gold
    segment_lists:
      - segments: ["2001:db8:102:1::", "2001:db8:103:1::"]
  - name: wire
    behavior: H.Encaps.L2.Red
    segment_lists:
      - segments: ["2001:db8:102:2::"]
steering:
  - prefix: 203.0.113.0/24
    policy: gold
  - interface: eth1
    vlans: [7]
    policy: wire
gtpu:
  addresses: [192.0.2.1]
  pools: [10.45.0.0/16]
tunnels:
  - name: t1
    local_teid: 0x1001
    decapsulate: true
    remote: 192.0.2.9
    remote_teid: 7
`

func TestParse(t *testing.T) {
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"interface mode":  []any{c.Interfaces[0].Mode, "auto"},
		"given mode":      []any{c.Interfaces[1].Mode, "native"},
		"function bits":   []any{c.Locators[0].FunctionBits, uint8(16)},
		"hop limit":       []any{c.Encapsulation.HopLimit, uint8(64)},
		"behavior":        []any{c.Policies[0].Behavior, srv6.HEncapsRed},
		"weight":          []any{c.Policies[0].SegmentLists[0].Weight, uint32(1)},
		"TEID":            []any{c.Tunnels[0].LocalTEID, uint32(0x1001)},
		"socket":          []any{c.API.Socket, config.DefaultSocket},
		"VLAN":            []any{c.Steering[1].VLANs[0], uint16(7)},
		"flavor":          []any{c.SIDs[0].Flavors[0], srv6.PSP},
		"limits.policies": []any{c.Limits.Policies, uint32(4096)},
	}
	for name, pair := range want {
		if p := pair.([]any); p[0] != p[1] {
			t.Errorf("%s: %v, want %v", name, p[0], p[1])
		}
	}
}

// A file says the same in JSON, and an address alone is a SID of 128 bits.
func TestParseJSON(t *testing.T) {
	c, err := config.Parse([]byte(`{"sids": [{"sid": "2001:db8::1", "behavior": "end"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.SIDs[0].SID.String(); got != "2001:db8::1/128" {
		t.Errorf("SID %s", got)
	}
}

func TestEmpty(t *testing.T) {
	for _, text := range []string{"{}\n", "sids:\n"} {
		if _, err := config.Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Applied, such a file would delete everything.
	for _, text := range []string{"", "\n", "# nothing\n"} {
		if _, err := config.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "line 1: the file is empty") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Each case changes one thing in the good configuration: it replaces the text before
// the arrow by the text behind it. The case states the expected line and field, and
// words that the problem and the fix must have.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name, old, new string
		line           int
		field          string
		words          []string
	}{
		{"unknown field", "    roles: [edge]", "    rolls: [edge]", 5, "interfaces[1].rolls", []string{"unknown field", `did you mean "roles"?`}},
		{"former field", "    roles: [edge]", "    external: true", 5, "interfaces[1].external", []string{"no more", "say roles: [edge]"}},
		{"no roles", "    roles: [edge]\n", "", 3, "interfaces[1].roles", []string{"interface eth1 has no roles", "{name: eth1, mode: native, roles: [edge]}"}},
		{"any beside others", "roles: [edge]", "roles: [edge, any]", 5, "interfaces[1].roles", []string{"lets everything in"}},
		{"host beside any", "{name: eth0, roles: [any]}", "{name: eth0, roles: [any], host: [ping]}", 2, "interfaces[0].host", []string{"lets everything in"}},
		{"unknown section", "domain:", "domains:", 8, "domains", []string{"unknown field", `"domain"`}},
		{"far off field", "    table: 100", "    colour: 100", 18, "sids[1].colour", []string{"unknown field"}},
		{"duplicate key", "    table: 100", "    table: 100\n    table: 101", 19, "sids[1].table", []string{"appears twice", "line 18"}},
		{"number as text", "    table: 100", "    table: core", 18, "sids[1].table", []string{`the text "core"`, "0 to 4294967295"}},
		{"negative number", "    table: 100", "    table: -1", 18, "sids[1].table", []string{"-1 is out of range"}},
		{"fraction", "    table: 100", "    table: 1.5", 18, "sids[1].table", []string{"the number 1.5"}},
		{"number too large", "vlans: [7]", "vlans: [70000]", 31, "steering[1].vlans[0]", []string{"70000 is out of range", "65535"}},
		{"text as number", "name: eth0", "name: 5", 2, "interfaces[0].name", []string{"the number 5", `quote it: "5"`}},
		{"truth value", "decapsulate: true", "decapsulate: 1", 39, "tunnels[0].decapsulate", []string{"true or false"}},
		{"list as value", "prefix: 203.0.113.0/24", "prefix: [203.0.113.0/24]", 28, "steering[0].prefix", []string{"is a list"}},
		{"value as list", "domain: [2001:db8:100::/40]", "domain: 2001:db8:100::/40", 8, "domain", []string{"must be a list"}},
		{"value as fields", "encapsulation:\n  source: 2001:db8:1::1", "encapsulation: 2001:db8:1::1", 6, "encapsulation", []string{"must hold fields", "source"}},
		{"empty entry", "  - name: t1", "  -\n  - name: t1", 37, "tunnels[0]", []string{"entry is empty"}},
		{"not an address", "source: 2001:db8:1::1", "source: 2001:db8:1:1", 7, "encapsulation.source", []string{"not an IP address", "2001:db8::1"}},
		{"not a prefix", "[2001:db8:100::/40]", "[2001:db8:100::]", 8, "domain[0]", []string{"not a prefix", "/48"}},
		{"unknown behaviour", "behavior: End\n", "behavior: End.Z\n", 14, "sids[0].behavior", []string{"End.Z", "End.T"}},
		{"unknown flavor", "[PSP]", "[PSB]", 15, "sids[0].flavors[0]", []string{"PSB", "PSP"}},
		{"broken YAML", "encapsulation:", "encapsulation: {", 6, "encapsulation", []string{"not YAML"}},
		{"tab", "  source: 2001", "\tsource: 2001", 7, "encapsulation", []string{"not YAML", "in place of the tab"}},
		{"alias", "[2001:db8:100::/40]", "[&p 2001:db8:100::/40, *p]", 8, "domain[1]", []string{"aliases", "write the value out"}},
		{"second document", "domain:", "---\ndomain:", 8, "", []string{"second YAML document"}},

		{"duplicate interface", "  - name: eth1", "  - name: eth0", 3, "interfaces[1].name", []string{"eth0", "interfaces[0]"}},
		{"interface name", "  - name: eth1", "  - name: a/b", 3, "interfaces[1].name", []string{`"a/b"`, "15"}},
		{"interface mode", "mode: native", "mode: nativ", 4, "interfaces[1].mode", []string{"nativ", `"native"`}},
		{"IPv4 source", "source: 2001:db8:1::1", "source: 192.0.2.77", 7, "encapsulation.source", []string{"192.0.2.77", "IPv6"}},
		{"domain bits", "[2001:db8:100::/40]", "[2001:db8:101::/40]", 8, "domain[0]", []string{"write 2001:db8:100::/40"}},
		{"IPv4 locator", "prefix: 2001:db8:101::/48", "prefix: 10.0.0.0/8", 11, "locators[0].prefix", []string{"not an IPv6 prefix"}},
		{"locator too long", "prefix: 2001:db8:101::/48", "prefix: 2001:db8:101::/56", 10, "locators[0].function_bits", []string{"72 bits", "at most 8"}},
		{"overlapping SIDs", "- sid: 2001:db8:101:d46::/64", "- sid: 2001:db8:101:1:8000::/80", 16, "sids[1].sid", []string{"overlaps", "2001:db8:101:1::/64"}},
		{"the same SID", "- sid: 2001:db8:101:d46::/64", "- sid: 2001:db8:101:1::/64", 16, "sids[1].sid", []string{"overlaps"}},
		{"SID over locator", "- sid: 2001:db8:101:d46::/64", "- sid: 2001:db8:100::/44", 16, "sids[1].sid", []string{"covers", "main"}},
		{"argument too long", "    behavior: End\n    flavors: [PSP]", "    behavior: End.Limit\n    group_bits: 40\n    rate_bits: 32", 15, "sids[0].group_bits", []string{"136 bits", "128"}},
		{"missing parameter", "    table: 100\n", "", 16, "sids[1].table", []string{"needs it"}},
		{"foreign parameter", "    flavors: [PSP]", "    table: 7", 15, "sids[0].table", []string{"not a parameter of End"}},
		{"unknown policy of a SID", "    behavior: End\n    flavors: [PSP]", "    behavior: End.B6.Encaps\n    policy: gole", 15, "sids[0].policy", []string{`policy "gole" does not exist`, `"gold"`}},
		{"SID with an L2 policy", "    behavior: End\n    flavors: [PSP]", "    behavior: End.B6.Encaps\n    policy: wire", 15, "sids[0].policy", []string{"Ethernet frames"}},
		{"duplicate policy", "- name: wire", "- name: gold", 23, "policies[1].name", []string{"gold", "policies[0]"}},
		{"no source", "encapsulation:\n  source: 2001:db8:1::1\n", "", 18, "policies[0].source", []string{"encapsulation.source"}},
		{"IPv4 segment", `"2001:db8:103:1::"`, `"192.0.2.5"`, 22, "policies[0].segment_lists[0].segments[1]", []string{"192.0.2.5"}},
		{"empty list", `["2001:db8:102:2::"]`, "[]", 26, "policies[1].segment_lists[0].segments", []string{"segment"}},
		{"13 segments", `["2001:db8:102:2::"]`, "[" + strings.Repeat(`"2001:db8:102:2::",`, 13) + "]", 26, "policies[1].segment_lists[0].segments", []string{"12"}},
		{"unknown policy", "    policy: gold", "    policy: silver", 29, "steering[0].policy", []string{`policy "silver" does not exist`, "gold, wire"}},
		{"prefix into L2 policy", "    policy: gold", "    policy: wire", 29, "steering[0].policy", []string{"H.Encaps.L2.Red", "interface"}},
		{"unknown tunnel", "    policy: gold", "    tunnel: t2", 29, "steering[0].tunnel", []string{`tunnel "t2" does not exist`, `"t1"`}},
		{"a prefix of an interface twice", "- interface: eth1\n    vlans: [7]\n    policy: wire", "- {prefix: 10.0.0.0/8, interface: eth1, policy: gold}\n  - {prefix: 10.0.0.0/8, interface: eth1, policy: gold}", 31, "steering[2].prefix", []string{"10.0.0.0/8@eth1", "steering[1]"}},
		{"a prefix of an interface in a pool", "vlans: [7]\n    policy: wire", "prefix: 10.45.1.0/24\n    policy: gold", 31, "steering[1].prefix", []string{"lies in a pool", "gtpu.pools"}},
		{"classes that meet", "gtpu:\n", "traffic_classes:\n  - {name: a, color: 1, match: {dscp: [46]}}\n  - {name: b, color: 2, match: {dscp: [10, 46], interfaces: [eth1]}}\ngtpu:\n", 35, "traffic_classes[1].priority", []string{"interface eth1 with DSCP 46", `"a"`}},
		{"class of an unknown interface", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {interfaces: [eth7]}}]\ngtpu:\n", 33, "traffic_classes[0].match.interfaces[0]", []string{"eth7"}},
		{"VLANs without an interface", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {vlans: [100]}}]\ngtpu:\n", 33, "traffic_classes[0].match.vlans", []string{"interfaces"}},
		{"sources that meet", "gtpu:\n", "traffic_classes:\n  - {name: a, color: 1, match: {sources: [10.0.0.0/8]}}\n  - {name: b, color: 2, match: {sources: [10.1.0.0/16], interfaces: [eth1]}}\ngtpu:\n", 35, "traffic_classes[1].priority", []string{"interface eth1, from 10.1.0.0/16", `"a"`}},
		{"the host without an overlay", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {host: true}}]\ngtpu:\n", 33, "traffic_classes[0].match.host", []string{"overlay"}},
		{"class of an unknown slice", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {slices: [b]}}]\ngtpu:\n", 33, "traffic_classes[0].match.slices[0]", []string{`slice "b" does not exist`}},
		{"QoS flows with a DSCP", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {qfis: [5], dscp: [46]}}]\ngtpu:\n", 33, "traffic_classes[0].match", []string{"slices and QFIs only"}},
		{"no QFI", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {qfis: [64]}}]\ngtpu:\n", 33, "traffic_classes[0].match.qfis[0]", []string{"64 is not a QFI"}},
		{"labels that are a list", "gtpu:\n", "traffic_classes: [{name: a, color: 1, match: {pod_labels: [a]}}]\ngtpu:\n", 33, "traffic_classes[0].match.pod_labels", []string{"must hold labels", "key: value"}},
		{"unattached interface", "interface: eth1", "interface: eth9", 30, "steering[1].interface", []string{"eth9", "interfaces"}},
		{"steering twice", "- interface: eth1\n    vlans: [7]", "- prefix: 203.0.113.0/24", 30, "steering[1].prefix", []string{"203.0.113.0/24", "steering[0]"}},
		{"steering in a locator", "prefix: 203.0.113.0/24", "prefix: 2001:db8:101:77::/64", 28, "steering[0].prefix", []string{"lies in", "main"}},
		{"steering in a SID", "prefix: 203.0.113.0/24", "prefix: 2001:db8:101:1::5", 28, "steering[0].prefix", []string{"SID wins"}},
		{"steered GTP-U address", "prefix: 203.0.113.0/24", "prefix: 192.0.2.1", 28, "steering[0].prefix", []string{"GTP-U address 192.0.2.1"}},
		{"GTP-U address twice", "[192.0.2.1]", "[192.0.2.1, 192.0.2.1]", 34, "gtpu.addresses[1]", []string{"192.0.2.1"}},
		{"GTP-U address in a SID", "[192.0.2.1]", `[192.0.2.1, "2001:db8:101:1::1"]`, 34, "gtpu.addresses[1]", []string{"lies in", "SID"}},
		{"GTP-U address in a pool", "[192.0.2.1]", "[192.0.2.1, 10.45.0.1]", 35, "gtpu.pools[0]", []string{"10.45.0.1", "UE pool"}},
		{"multicast GTP-U address", "[192.0.2.1]", "[224.0.0.1]", 34, "gtpu.addresses[0]", []string{"224.0.0.1"}},
		{"five GTP-U addresses", "[192.0.2.1]", "[192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4, 192.0.2.5]", 34, "gtpu.addresses", []string{"5 IPv4", "at most 4"}},
		{"overlapping pools", "[10.45.0.0/16]", "[10.45.0.0/16, 10.45.128.0/20]", 35, "gtpu.pools[1]", []string{"overlaps"}},
		{"huge pool", "[10.45.0.0/16]", "[8.0.0.0/6]", 35, "gtpu.pools[0]", []string{"too large"}},
		{"long IPv6 pool", "[10.45.0.0/16]", `["2001:db8:45::/72"]`, 35, "gtpu.pools[0]", []string{"/64"}},
		{"tunnel without address", "  addresses: [192.0.2.1]\n", "", 37, "tunnels[0].local_teid", []string{"no GTP-U address to receive on", "gtpu.addresses"}},
		{"tunnel of another family", "remote: 192.0.2.9", "remote: 2001:db8:9::9", 37, "tunnels[0].source", []string{"no outer source", "family"}},
		{"tunnel to ourselves", "remote: 192.0.2.9", "remote: 192.0.2.1", 40, "tunnels[0].remote", []string{"circles"}},
		{"two actions", "    decapsulate: true", "    decapsulate: true\n    switch_to: t1", 40, "tunnels[0].switch_to", []string{"exactly one"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if n := strings.Count(good, c.old); n != 1 {
				t.Fatalf("%q stands %d times in the good configuration", c.old, n)
			}
			parsed, err := config.Parse([]byte(strings.Replace(good, c.old, c.new, 1)))
			if err == nil || parsed != nil {
				t.Fatal("it was taken")
			}
			list, ok := errors.AsType[config.Errors](err)
			if !ok {
				t.Fatalf("%T: %v", err, err)
			}
			for _, e := range list {
				if e.Field != c.field {
					continue
				}
				for _, w := range c.words {
					if !strings.Contains(e.Problem+" "+e.Fix, w) {
						t.Errorf("%v: does not say %q", e, w)
					}
				}
				if e.Line != c.line {
					t.Errorf("%v: want line %d", e, c.line)
				}
				return
			}
			t.Errorf("nothing about %s in:\n%v", c.field, err)
		})
	}
}

func TestRefusedSettings(t *testing.T) {
	for _, c := range []struct{ text, field, words string }{
		{"api: {socket: culvert.sock}", "api.socket", "absolute path"},
		{"api: {listen: localhost}", "api.listen", "host:port"},
		{"api: {listen: '0.0.0.0:8443'}", "api.listen", "needs TLS"},
		{"api: {listen: '[::]:8443', tls_cert: a, tls_key: b}", "api.listen", "needs a token"},
		{"api: {listen: 'gateway.example:8443', token_file: t}", "api.listen", "needs TLS"},
		{"api: {page: true}", "api.page", "needs an address"},
		{"api: {listen: '127.0.0.1:8443', viewer_token_file: v}", "api.viewer_token_file", "more rights than the viewer"},
		{"api: {tls_cert: a}", "api.tls_cert", "tls_key"},
		{"metrics: {listen: '9418'}", "metrics.listen", `write "127.0.0.1:9418"`},
		{"metrics: {listen: here}", "metrics.listen", "host:port"},
		{"log: {level: verbose}", "log.level", "one of: debug, error, info, warn"},
		{"log: {format: jsn}", "log.format", `did you mean "json"?`},
		{"limits: {sids: 100000000}", "limits.sids", "at most"},
		{"limits: {sids: 1}\nsids: [{sid: '2001:db8::1', behavior: End}]", "limits.sids", "at least 2"},
		{"locators: [{name: a, prefix: '2001:db8::/32', function_bits: 24}]", "locators[0].function_bits", "at most 20"},
		{"locators: [{name: a, prefix: '2001:db8::/32'}, {name: b, prefix: '2001:db8:1::/48'}]", "locators[1].prefix", "overlaps"},
		{"tunnels: [{name: a, local_teid: 1, switch_to: b}, {name: b, local_teid: 1, decapsulate: true}]\ngtpu: {addresses: [192.0.2.1]}", "tunnels[0].switch_to", "no remote to send to"},
		{"tunnels: [{name: a, local_teid: 1, decapsulate: true}, {name: b, local_teid: 1, decapsulate: true}]\ngtpu: {addresses: [192.0.2.1]}", "tunnels[1].local_teid", "TEID 1"},
	} {
		_, err := config.Parse([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.field+": ") || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %s: %s", c.text, err, c.field, c.words)
		}
	}
	for _, text := range []string{
		"api: {listen: '127.0.0.1:8443'}", "api: {listen: 'localhost:8443'}", "api: {listen: '[::1]:8443'}",
		"api: {listen: '0.0.0.0:8443', tls_cert: a, tls_key: b, token_file: t}",
		"metrics: {listen: 'off'}", "metrics: {listen: ':9418'}", "log: {level: debug, format: json}",
	} {
		if _, err := config.Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Longer SIDs in a NEXT-C-SID one are how RFC 9800 is used: a packet takes the
// longest match.
func TestNestedCSID(t *testing.T) {
	const text = `sids:
  - {sid: 'fd00:100:1::/48', behavior: End, flavors: [%s]%s}
  - {sid: 'fd00:100:1:d46::/64', behavior: End.DT46, table: 254}
`
	if _, err := config.Parse(fmt.Appendf(nil, text, "NEXT-C-SID", ", block_length: 32")); err != nil {
		t.Error(err)
	}
	if _, err := config.Parse(fmt.Appendf(nil, text, "PSP", "")); err == nil {
		t.Error("a SID in an End SID without NEXT-C-SID was taken")
	}
}

// A SID of End.B6.Encaps and its policy say the same of the SRH.
func TestBindingSID(t *testing.T) {
	const text = `encapsulation: {source: '2001:db8::1'}
sids:
  - sid: 2001:db8:1::/64
    policy: p
    behavior: %s
policies: [{name: p, %ssegment_lists: [{segments: ['2001:db8:2:1::']}]}]
`
	for _, c := range []struct{ sid, policy, mend string }{
		{"End.B6.Encaps", "behavior: H.Encaps, ", ""},
		{"End.B6.Encaps.Red", "behavior: H.Encaps.Red, ", ""},
		{"End.B6.Encaps.Red", "", ""},
		{"End.B6.Encaps", "behavior: H.Encaps.Red, ", `this SID behavior: End.B6.Encaps.Red, or policy "p" behavior: H.Encaps)`},
		{"End.B6.Encaps", "", `this SID behavior: End.B6.Encaps.Red, or policy "p" behavior: H.Encaps)`},
		{"End.B6.Encaps.Red", "behavior: H.Encaps, ", `this SID behavior: End.B6.Encaps, or policy "p" behavior: H.Encaps.Red)`},
	} {
		_, err := config.Parse(fmt.Appendf(nil, text, c.sid, c.policy))
		if (err == nil) != (c.mend == "") {
			t.Errorf("%s with a policy of %q: %v", c.sid, c.policy, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "line 5: sids[0].behavior: ") || !strings.HasSuffix(err.Error(), c.mend)) {
			t.Errorf("%s with a policy of %q: %v, want line 5 and %s", c.sid, c.policy, err, c.mend)
		}
	}
}

func TestArgsOffset(t *testing.T) {
	const text = `encapsulation: {source: '2001:db8::1'}
sids: [{sid: '2001:db8:1::/64', behavior: End.M.GTP6.D, policy: p, source: '2001:db8::1', pdu_type: ipv4, args_offset: %d}]
policies: [{name: p, segment_lists: [{segments: ['2001:db8:2:1::', '%s']}]}]
`
	for _, c := range []struct {
		offset  int
		segment string
		ok      bool
	}{
		{64, "2001:db8:2:2::", true},
		{64, "2001:db8:2:2::7", true}, // behind the argument
		{48, "2001:db8:2:2::", false},
		{64, "2001:db8:2:2:8000::", false},
		{63, "2001:db8:2:2::", true},
		{63, "2001:db8:2:3::", false},
		{88, "2001:db8:2:3:4:500::", true},
		{88, "2001:db8:2:3::1", false},
	} {
		_, err := config.Parse(fmt.Appendf(nil, text, c.offset, c.segment))
		if (err == nil) != c.ok {
			t.Errorf("args_offset %d, last segment %s: %v", c.offset, c.segment, err)
		}
		if err != nil && !strings.Contains(err.Error(), "line 2: sids[0].args_offset: ") {
			t.Errorf("args_offset %d: %v", c.offset, err)
		}
	}
}

func TestCandidatePaths(t *testing.T) {
	const text = `encapsulation: {source: '2001:db8::1'}
sids: [{sid: '2001:db8:1::/64', behavior: End.M.GTP6.D, policy: p, source: '2001:db8::1', pdu_type: ipv4, args_offset: 64}]
policies: [{name: p%s}]
candidate_paths:
  - {name: north, policy: p, preference: 200, segment_lists: [{segments: ['2001:db8:2:1::', '2001:db8:3:1::']}]}
  - {%s}
`
	const own, south = ", segment_lists: [{segments: ['2001:db8:2:2::']}]", "name: south, policy: p, segment_lists: [{segments: ['2001:db8:3:1::']}]"
	for _, c := range []struct{ own, path, problem string }{
		{own, south, ""},
		{"", south, ""},
		{own, "name: north, policy: p, segment_lists: [{segments: ['2001:db8:3:1::']}]", "line 6: candidate_paths[1].name: north is already that of candidate_paths[0]"},
		{own, "name: south, policy: q, segment_lists: [{segments: ['2001:db8:3:1::']}]", `line 6: candidate_paths[1].policy: policy "q" does not exist`},
		{own, "name: south, policy: p", "line 6: candidate_paths[1].segment_lists: is missing"},
		{own, "name: south, policy: p, segment_lists: [{segments: ['2001:db8:3:1:1::']}]", "line 2: sids[0].args_offset: Args.Mob.Session would overwrite bits of 2001:db8:3:1:1::, the last of segment list 0 of candidate path \"south\""},
	} {
		got, err := config.Parse(fmt.Appendf(nil, text, c.own, c.path))
		switch {
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%s: %v, want %s", c.path, err, c.problem)
		case c.problem == "" && err != nil:
			t.Errorf("%s: %v", c.path, err)
		case c.problem == "" && got.CandidatePaths[1].Preference != 100:
			t.Errorf("%s: preference %d, want the default", c.path, got.CandidatePaths[1].Preference)
		}
	}
	_, err := config.Parse([]byte("encapsulation: {source: '2001:db8::1'}\npolicies: [{name: p}]"))
	if err == nil || !strings.Contains(err.Error(), "policies[0].segment_lists: is missing") || !strings.Contains(err.Error(), "a candidate path with policy: p") {
		t.Errorf("a policy without any way: %v", err)
	}
}

// The caller shares lists of segments with the configuration: defaults are filled
// in only in a copy.
func TestDefaultsAreInACopy(t *testing.T) {
	lists := []srpolicy.SegmentList{{Segments: []netip.Addr{netip.MustParseAddr("fc00::1")}}}
	c := config.Config{Policies: []srpolicy.Policy{{SegmentLists: lists}}, CandidatePaths: []srpolicy.CandidatePath{{SegmentLists: lists}}}
	c.SetDefaults()
	if got := []uint32{lists[0].Weight, c.Policies[0].SegmentLists[0].Weight, c.CandidatePaths[0].SegmentLists[0].Weight}; !slices.Equal(got, []uint32{0, 1, 1}) {
		t.Errorf("weights are %v", got)
	}
}

// Parse reports all errors at once, in the order of the file.
func TestAllErrors(t *testing.T) {
	_, err := config.Parse([]byte("interfaces:\n  - {nam: a, roles: [any]}\n  - {name: [b], roles: [any]}\nlog:\n  lvl: info\nsids: 7\npolicies: [{name: p, segment_lists: [{segments: [fc00::1]}]}]\n"))
	var lines []int
	list, _ := errors.AsType[config.Errors](err)
	for _, e := range list {
		lines = append(lines, e.Line)
	}
	if want := []int{2, 3, 5, 6, 7}; !reflect.DeepEqual(lines, want) {
		t.Errorf("lines %v, want %v:\n%v", lines, want, err)
	}
}

// Without a file, an error says which resource it is about.
func TestResource(t *testing.T) {
	c, err := config.Decode([]byte("sids: [{sid: '2001:db8:1::/64', behavior: End}, {sid: '2001:db8:2::/64', behavior: End.B6.Encaps, policy: gold}]\nsteering: [{prefix: 10.0.0.0/8, policy: gold}]"))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Validate()
	list, _ := errors.AsType[config.Errors](err)
	var got []string
	for _, e := range list {
		if strings.HasSuffix(e.Field, "policy") {
			got = append(got, e.Error())
		}
	}
	want := []string{
		`sids[1].policy of sid 2001:db8:2::/64: policy "gold" does not exist (fix: add one with name: gold under policies)`,
		`steering[0].policy of steering 10.0.0.0/8: policy "gold" does not exist (fix: add one with name: gold under policies)`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	// A file in which the second SID does not stand cannot say its line.
	_, lines, err := config.ParseLines([]byte("sids:\n  - {sid: '2001:db8:1::/64', behavior: End}\n"))
	if err != nil {
		t.Fatal(err)
	}
	list, _ = errors.AsType[config.Errors](lines.Of(c.Validate()))
	for _, e := range list {
		if e.Line != 0 && e.Resource != "" {
			t.Errorf("%v: in line %d", e, e.Line)
		}
	}
}

func TestCheckInterfaces(t *testing.T) {
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckInterfaces([]string{"lo", "eth0", "eth1"}); err != nil {
		t.Error(err)
	}
	if err := c.CheckInterfaces([]string{"lo", "lo", "wan"}); err == nil || !strings.Contains(err.Error(), "(fix: one of: lo, wan)") {
		t.Error(err)
	}
	err = c.CheckInterfaces([]string{"lo", "eth0", "eth11"})
	if err == nil || err.Error() != `interfaces[1].name: interface "eth1" does not exist on this machine (fix: did you mean "eth0"?)` {
		t.Error(err)
	}
}

func TestSendsGTPUOverIPv4(t *testing.T) {
	for text, want := range map[string]bool{
		"{}":                               false,
		"gtpu: {addresses: [2001:db8::1]}": false,
		"gtpu: {addresses: [2001:db8::1, 192.0.2.1]}":                                    true,
		"tunnels: [{name: a, remote: 192.0.2.2, remote_teid: 1, source: 192.0.2.1}]":     true,
		"tunnels: [{name: a, remote: 2001:db8::2, remote_teid: 1, source: 2001:db8::1}]": false,
	} {
		c, err := config.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got := c.SendsGTPUOverIPv4(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The decoder knows the kinds of fields that there are; another one would be
// taken for a number.
func TestFieldKinds(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] || typ == reflect.TypeFor[netip.Addr]() || typ == reflect.TypeFor[netip.Prefix]() || typ == reflect.TypeFor[config.CPUs]() ||
			typ == reflect.TypeFor[srpolicy.Duration]() {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type)
			}
		case reflect.Slice, reflect.Pointer:
			walk(typ.Elem())
		case reflect.Map:
			walk(typ.Key())
			walk(typ.Elem())
		case reflect.Int, reflect.String, reflect.Bool, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		default:
			t.Errorf("%v: decode it first", typ)
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("sids:\n  - *a\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data)
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
	})
}
