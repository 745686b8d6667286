package config_test

import (
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
		"{name: a, roles: [n9], peers: [10.0.0.1/8]}":              "without host bits",
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
