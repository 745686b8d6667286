package netfile

import (
	"strings"
	"testing"
	"time"
)

const speaker = `
nodes: [{name: a, api: /run/a.sock, router_id: 10.0.0.1}, {name: b}]
engine:
  write: bgp
  bgp:
    asn: 65001
    router_id: 10.0.0.9
    listen: ["2001:db8::9"]
    peers:
      - {address: "2001:db8::1", asn: 65001, passive: true, families: [link-state]}
      - {address: "2001:db8::2", asn: 65002, hops: 1, password_file: /etc/culvert/p}
`

func TestBGP(t *testing.T) {
	n, err := Parse([]byte(speaker))
	if err != nil {
		t.Fatal(err)
	}
	b := n.Engine.BGP
	if b.Port != 179 || time.Duration(b.Restart) != 2*time.Minute || time.Duration(b.Wait) != 30*time.Second || time.Duration(b.Keep) != 5*time.Minute || !b.Has(FamilyLinkState) || !b.Has(FamilySRPolicy) {
		t.Errorf("%+v", b)
	}
	b.Peers = b.Peers[:1]
	if b.Has(FamilySRPolicy) {
		t.Error("a peer has a family that it is not configured for")
	}
	if n, err := Load("../../../examples/te/bgp.yaml"); err != nil || n.Engine.Write != WriteBGP {
		t.Errorf("the example: %+v, %v", n, err)
	}
	if n, err := Parse(nil); err != nil || n.Engine.Write != WriteAPI || n.Engine.BGP.IsSet() {
		t.Errorf("by default: %+v, %v", n, err)
	}
}

// Each is one mutation of a sound speaker, and its error.
func TestBGPFaults(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"write: bgp", "write: mail"}:                                           `engine.write: "mail" is no way to write`,
		{"router_id: 10.0.0.1", "max_segments: 3"}:                              "nodes[0].router_id: is missing: candidate paths name their headend by it",
		{"router_id: 10.0.0.1", `router_id: "::1"`}:                             "nodes[0].router_id: ::1 is no router ID",
		{"{name: b}", "{name: b, router_id: 10.0.0.1}"}:                         "router ID 10.0.0.1 is also nodes[0].router_id",
		{"    asn: 65001\n", ""}:                                                "engine.bgp.asn: is missing",
		{"router_id: 10.0.0.9", "router_id: 0.0.0.0"}:                           "engine.bgp.router_id: 0.0.0.0 is no router ID",
		{`["2001:db8::9"]`, `["ff02::1"]`}:                                      "engine.bgp.listen[0]: ff02::1 is none",
		{`    listen: ["2001:db8::9"]` + "\n", ""}:                              "engine.bgp.peers[0].passive: neither side would connect",
		{`"2001:db8::2"`, `"::"`}:                                               "engine.bgp.peers[1].address: :: is none",
		{`"2001:db8::2"`, `"2001:db8::1"`}:                                      "BGP peer 2001:db8::1 is also engine.bgp.peers[0]",
		{", asn: 65002", ""}:                                                    "engine.bgp.peers[1].asn: is missing",
		{"asn: 65002", "asn: 65001"}:                                            "engine.bgp.peers[1].hops: TTL security is for external peers",
		{"hops: 1", "source: 192.0.2.1"}:                                        "engine.bgp.peers[1].source: 192.0.2.1 cannot connect there",
		{"hops: 1", "client: true"}:                                             "engine.bgp.peers[1].client: the engine reflects nothing",
		{"hops: 1", "hold_time: 2"}:                                             "engine.bgp.peers[1].hold_time: is 2",
		{"/etc/culvert/p", "p"}:                                                 `engine.bgp.peers[1].password_file: "p" depends on`,
		{"[link-state]", "[unicast]"}:                                           `engine.bgp.peers[0].families[0]: "unicast" is no family of the engine`,
		{"{name: b}]", "{name: b}]\nclasses: [{color: 1, lowest_delay: true}]"}: "classes[0].lowest_delay: BGP does not carry it",
		{"{name: b}]", "{name: b}]\nclasses: [{color: 1, delay_bound: 15ms}]"}:  "classes[0].delay_bound: BGP does not carry it",
		{"hops: 1", "families: [link-state]"}:                                   "engine.bgp.peers: no peer receives candidate paths",
	} {
		text := strings.Replace(speaker, change[0], change[1], 1)
		if text == speaker {
			t.Fatalf("%q changes nothing", change)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", change, err, want)
		}
	}
	if _, err := Parse([]byte("engine: {bgp: {asn: 65001, router_id: 10.0.0.9}}")); err == nil || !strings.Contains(err.Error(), "engine.bgp.peers: is missing") {
		t.Errorf("without peers: %v", err)
	}
}
