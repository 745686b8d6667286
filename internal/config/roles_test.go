package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
)

func TestRoles(t *testing.T) {
	c, err := config.Parse([]byte(`
interfaces:
  - {name: n3, roles: [n3, n9], peers: any}
  - {name: n6, roles: [n6], host: [ping, tcp/9418, forward]}
  - {name: core, roles: [sr], host: any}
domain: ["2001:db8:a::/48"]
locators: [{name: a, prefix: "2001:db8:1::/48"}, {name: b, prefix: "2001:db8:a::/48"}]
sids: [{sid: "2001:db8:1:1::/64", behavior: End}, {sid: "2001:db8:2:1::/64", behavior: End}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Interfaces[0].Peers.Open() {
		t.Errorf("peers: %v", c.Interfaces[0].Peers)
	}
	host, err := c.Interfaces[1].HostAccess()
	want := []config.HostService{{Protocol: 1}, {Protocol: 58}, {Protocol: 6, Port: 9418}}
	if err != nil || host.Any || !host.Forward || !slices.Equal(host.Services, want) {
		t.Errorf("host: %+v, %v", host, err)
	}
	var domain []string
	for _, p := range c.SRDomain() {
		domain = append(domain, p.String())
	}
	if got := strings.Join(domain, " "); got != "2001:db8:a::/48 2001:db8:1::/48 2001:db8:2:1::/64" {
		t.Errorf("the SR domain is %s", got)
	}
}

func TestRolesRefuse(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, roles: [n7]}":                                   `"n7" is not known`,
		"{name: a, roles: [n6, n6]}":                               "remove one of the two",
		"{name: a, roles: [n3]}":                                   "peers: [192.0.2.0/24], or say peers: any",
		"{name: a, roles: [n6], peers: any}":                       "neither the role n3 nor n9",
		"{name: a, roles: [n9], peers: [10.0.0.1/8]}":              "write 10.0.0.0/8",
		"{name: a, roles: [sr]}":                                   "the domain is not said",
		"{name: a, roles: [edge]}":                                 "no SR domain is configured",
		"{name: a, roles: [n6], host: [sssh]}":                     `"sssh" is not a service`,
		"{name: a, roles: [n6], host: [tcp/0]}":                    `"tcp/0" is not a service`,
		"{name: a, roles: [n6], host: [icmp/1]}":                   "tcp/PORT, or udp/PORT",
		"{name: a, roles: [n3], peers: [" + many(17) + "]}":        "join neighbouring prefixes",
		"{name: a, roles: [n6], host: [" + manyServices(17) + "]}": "17 services exceed the limit of 16",
	} {
		_, err := config.Parse([]byte("interfaces: [" + text + "]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", text, err, want)
		}
	}
	_, err := config.Parse([]byte(`{interfaces: [{name: a, roles: [n6]}], encapsulation: {source: "2001:db8::1"},
  policies: [{name: p, segment_lists: [{segments: ["2001:db8:1::"]}]}], steering: [{interface: a, policy: p}]}`))
	if err == nil || !strings.Contains(err.Error(), "add edge to its roles") {
		t.Errorf("steering by an interface without the role: %v", err)
	}
	_, err = config.Parse([]byte(`{interfaces: [{name: a, roles: [sr, edge]}], domain: ["2001:db8::/32"]}`))
	if err == nil || !strings.Contains(err.Error(), "keep one of the two") {
		t.Errorf("sr and edge: %v", err)
	}
}

// linesOf returns the fix of the only error.
func linesOf(err error) string {
	list, _ := errors.AsType[config.Errors](err)
	if len(list) != 1 {
		return fmt.Sprintf("%d errors", len(list))
	}
	return strings.TrimPrefix(list[0].Fix, "write ")
}

func many(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("10.%d.0.0/16", i))
	}
	return strings.Join(list, ", ")
}

func manyServices(n int) string {
	return strings.TrimSuffix(strings.Repeat("tcp/80, ", n), ", ")
}

// An interface without roles is refused, with the lines to write.
func TestRolesRequired(t *testing.T) {
	const (
		n3     = "{name: a, roles: [n3], peers: [192.0.2.0/24]} where it leads to gNBs"
		n6     = "{name: a, roles: [n6]} where it leads to the data network"
		sr     = "{name: a, roles: [sr]} where it leads to routers of the SR domain, and domain: with the prefixes"
		edge   = "{name: a, roles: [edge]} where it leads to customers"
		policy = `encapsulation: {source: "2001:db8::1"}, policies: [{name: p, segment_lists: [{segments: ["2001:db8:1::"]}]}]`
		tunnel = `gtpu: {addresses: [192.0.2.1]}, tunnels: [{name: t, remote: 192.0.2.7, remote_teid: 1}]`
		upf    = "gtpu: {addresses: [192.0.2.1]}, upf: {n4: [192.0.2.2], smfs: any}"
	)
	for text, want := range map[string][]string{
		"gtpu: {addresses: [192.0.2.1]}": {n3, n6},
		upf:                              {n3, n6, "{name: a, roles: [n4]} where it leads to SMFs"},
		tunnel:                           {"roles: [n3], peers: [192.0.2.7/32]"},
		`sids: [{sid: "2001:db8:1::/64", behavior: End}]`:                                                                                        {"write " + sr},
		`sids: [{sid: "2001:db8:1::/64", behavior: End.X, next_hop: "fe80::1", interface: a}]`:                                                   {"write " + sr},
		`sids: [{sid: "2001:db8:1::/64", behavior: End.DX2, interface: a}]`:                                                                      {"write " + edge},
		tunnel + `, steering: [{prefix: 10.0.0.0/8, tunnel: t}]`:                                                                                 {n6},
		policy + `, steering: [{prefix: 10.0.0.0/8, policy: p}], bgp: {asn: 65001, router_id: 192.0.2.1}`:                                        {"{name: a, roles: [edge], host: [bgp]}"},
		policy + ", steering: [{interface: a, policy: p}]":                                                                                       {"write " + edge},
		strings.Replace(policy, "name: p,", `name: p, binding_sid: "2001:db8:2::",`, 1):                                                          {"write " + sr},
		policy + `, sids: [{sid: "2001:db8:1::/64", behavior: End.M.GTP6.D, policy: p, source: "2001:db8::1", pdu_type: ipv4, args_offset: 64}]`: {n3, sr},
		"overlay: {mode: kube, locator_pool: 'fc00::/32'}":                                                                                       {"write {name: a, roles: [sr]} where it leads to routers of the SR domain"},
	} {
		for _, mode := range []string{"", ", mode: native"} {
			_, err := config.Parse([]byte("{interfaces: [{name: a" + mode + "}], " + text + "}"))
			for _, w := range append(want, "interface a has no roles") {
				w = strings.Replace(w, "{name: a", "{name: a"+mode, 1)
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %v, want %q", text, err, w)
				}
			}
			for line := range strings.SplitSeq(linesOf(err), ", or ") {
				line, _, _ = strings.Cut(line, " where")
				if _, err := config.Parse([]byte("{domain: ['2001:db8::/32'], interfaces: [" + line + ", {name: b, roles: [any]}], " + text + "}")); err != nil {
					t.Errorf("%s: the line %s is not the fix: %v", text, line, err)
				}
			}
		}
	}
	for name, want := range map[string]string{"n3": "{name: n3, roles: [n3]", "n6-0": "{name: n6-0, roles: [n6]}", "n4": "{name: n4, roles: [n4]}"} {
		_, err := config.Parse([]byte("{interfaces: [{name: " + name + "}], " + upf + "}"))
		if err == nil || !strings.Contains(err.Error(), "write "+want) || strings.Contains(err.Error(), ", or ") {
			t.Errorf("%s: %v, want only %q", name, err, want)
		}
	}
	_, err := config.Parse([]byte("interfaces: [{name: a}]"))
	if err == nil || !strings.Contains(err.Error(), n3) || !strings.Contains(err.Error(), edge) {
		t.Errorf("where nothing is said: %v", err)
	}
}
