package config_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/slice"
)

const upf = `interfaces: [{name: n3, roles: [n3], peers: [10.1.0.0/24, 10.1.1.0/24]}, {name: n6, roles: [n6]}]
encapsulation: {source: "2001:db8:1::1"}
policies:
  - name: red
    segment_lists: [{segments: ["2001:db8:102:1::"]}]
  - name: wire
    behavior: H.Encaps.L2.Red
    segment_lists: [{segments: ["2001:db8:102:2::"]}]
gtpu: {addresses: [192.0.2.1]}
upf:
  n4: [192.0.2.10, "2001:db8::10"]
  smfs: [192.0.2.0/24]
  ue_pools:
    - {network_instance: internet, prefixes: [10.45.0.0/16, "2001:db8:45::/48"]}
  protected: [192.0.2.0/28]
slices:
  - name: a
    snssai: {sst: 1, sd: "000001"}
    network_instance: internet
    table: 100
    n9: {transport: srv6, uplink: "2001:db8:2:d46::", local_sid: "2001:db8:1:d46::/64", args_offset: 64}
    rate_limit: {uplink: 100000, downlink: 200000}
  - name: b
    snssai: {sst: 1, sd: "000002"}
    n9: {transport: srv6, mode: enhanced, uplink_policy: red}
  - name: c
    snssai: {sst: 2}
    n9: {transport: gtpu}
`

func TestUPF(t *testing.T) {
	c, err := config.Parse([]byte(upf))
	if err != nil {
		t.Fatal(err)
	}
	u := c.UPF
	if u.NodeID != "192.0.2.10" || u.Buffer.Packets != 128 || u.EchoInterval != 60 || c.Limits.Sessions != config.DefaultSessions {
		t.Errorf("defaults: %+v, %d sessions", u, c.Limits.Sessions)
	}
	if u.UEToUE != slice.UEToUEDrop || c.Slices[0].UEToUE != "" {
		t.Errorf("from UE to UE: %q, and %q of a slice", u.UEToUE, c.Slices[0].UEToUE)
	}
	if u.N4Fast != config.On {
		t.Errorf("n4_fast: %q", u.N4Fast)
	}
	if c.Slices[0].N9.Mode != slice.Traditional || c.Slices[0].RateLimit.Downlink != 200000 {
		t.Errorf("slice: %+v", c.Slices[0])
	}
}

// A truth value may stand for on and off.
func TestSwitch(t *testing.T) {
	for text, want := range map[string]config.Switch{"on": config.On, "off": config.Off, `"off"`: config.Off, "true": config.On, "False": config.Off} {
		c, err := config.Parse([]byte(strings.Replace(upf, "\nupf:\n", "\nupf:\n  n4_fast: "+text+"\n", 1)))
		if err != nil || c.UPF.N4Fast != want {
			t.Errorf("n4_fast: %s: %q, want %q, %v", text, c.UPF.N4Fast, want, err)
		}
	}
	_, err := config.Parse([]byte(strings.Replace(upf, "\nupf:\n", "\nupf:\n  n4_fast: no\n", 1)))
	if err == nil || !strings.Contains(err.Error(), `upf.n4_fast: "no" is not known`) {
		t.Errorf("n4_fast: no: %v", err)
	}
}

// TestProtectedPrefixes: N4, SMFs and configured GTP-U peers are protected unless all of
// such a prefix is opened; "any" protects nothing.
func TestProtectedPrefixes(t *testing.T) {
	const protected, opened = "  protected: [192.0.2.0/28]\n", "  ue_may_reach: [10.1.0.0/23, 2001:db8::/64]\n"
	text := strings.Replace(upf, "gtpu: {a", "tunnels: [{name: t, remote: 10.2.0.1, remote_teid: 1}]\ngtpu: {a", 1)
	for _, c := range []struct{ from, to, want string }{
		{"", "", "10.1.0.0/24 10.1.1.0/24 10.2.0.1/32 192.0.2.0/24 192.0.2.0/28 192.0.2.10/32 2001:db8::10/128"},
		{protected, protected + opened, "10.2.0.1/32 192.0.2.0/24 192.0.2.0/28 192.0.2.10/32"},
		{protected, "  ue_may_reach: [10.1.0.0/25, 0.0.0.0/1]\n", "192.0.2.0/24 192.0.2.10/32 2001:db8::10/128"},
		{"smfs: [192.0.2.0/24]", "smfs: any", "10.1.0.0/24 10.1.1.0/24 10.2.0.1/32 192.0.2.0/28 192.0.2.10/32 2001:db8::10/128"},
	} {
		parsed, err := config.Parse([]byte(strings.Replace(text, c.from, c.to, 1)))
		if err != nil {
			t.Fatalf("%q: %v", c.to, err)
		}
		if got := strings.Trim(fmt.Sprint(parsed.ProtectedPrefixes()), "[]"); got != c.want {
			t.Errorf("%q: %s, want %s", c.to, got, c.want)
		}
	}
}

// Every sender may send only where the file says so.
func TestAnySMF(t *testing.T) {
	for word, want := range map[string]config.Senders{
		"any": config.Anyone(), "[any]": config.Anyone(), "'any'": config.Anyone(), "[192.0.2.7/32]": {netip.MustParsePrefix("192.0.2.7/32")},
	} {
		c, err := config.Parse([]byte(strings.Replace(upf, "[192.0.2.0/24]", word, 1)))
		if err != nil {
			t.Errorf("smfs: %s: %v", word, err)
			continue
		}
		stranger := netip.MustParseAddr("2001:db8:66::1")
		if got := c.UPF.SMFs; !slices.Equal(got, want) || got.Open() != got.Contain(stranger) || got.Open() != strings.Contains(word, "any") {
			t.Errorf("smfs: %s: %v", word, got)
		}
	}
}

// Prefixes in which SMFs and GTP-U peers are may be wide, and a pool may lie in them. What leads to
// N4 from elsewhere may be steered.
func TestPoolsBesidePeers(t *testing.T) {
	for _, c := range [][2]string{
		{"192.0.2.0/24", "10.0.0.0/8"},
		{"smfs: [192.0.2.0/24]", "smfs: any"},
		{"peers: [10.1.0.0/24, 10.1.1.0/24]", "peers: any"},
		{"10.1.1.0/24", "10.45.0.0/24"},
		{"  protected:", "  ue_to_ue: n6\n  protected:"},
		{"policies:\n", "steering: [{prefix: 0.0.0.0/0, policy: red}, {prefix: 192.0.2.0/24, policy: red}]\npolicies:\n"},
		{"policies:\n", "locators: [{name: main, prefix: \"2001:db8:1::/48\"}]\npolicies:\n"},
		{"[192.0.2.10, ", "[192.0.2.1, "}, // the GTP-U address
	} {
		text := strings.Replace(upf, c[0], c[1], 1)
		if _, err := config.Parse([]byte(text)); err != nil || text == upf {
			t.Errorf("%s: %v", c[1], err)
		}
	}
}

// What this machine has and lacks is not in the file.
func TestCheckAddresses(t *testing.T) {
	own := map[netip.Addr]string{}
	for name, list := range map[string]string{"lo": "127.0.0.1 ::1", "n3": "192.0.2.1", "n4": "192.0.2.10 2001:db8::10", "n6": "198.51.100.254 2001:db8:6::fe"} {
		for a := range strings.FieldsSeq(list) {
			own[netip.MustParseAddr(a)] = name
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"sst: 2", "sst: 2", ""},
		{"10.45.0.0/16", "198.51.100.0/25", ""}, // a part of N6's network that the router leads here
		{"192.0.2.10, ", "192.0.2.99, ", "upf.n4[0]: no interface of this machine has 192.0.2.99 (fix: ip address add 192.0.2.99 dev INTERFACE, or an address that this machine has)"},
		{"10.45.0.0/16", "198.51.100.0/24", "upf.ue_pools[0].prefixes[0]: pool 198.51.100.0/24: 198.51.100.254 of interface n6 is in it (fix: use a pool without it, or remove the address (Open5GS' own UPF leaves ogstun): the data path would keep packets from it)"},
		{"2001:db8:45::/48", "2001:db8:6::/48", "upf.ue_pools[0].prefixes[1]: pool 2001:db8:6::/48: 2001:db8:6::fe of interface n6 is in it"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 198.51.100.0/24}, prefixes: [10.45.0.0/18, ", "upf.ue_pools[0].nat.addresses: public addresses 198.51.100.0/24: 198.51.100.254 of interface n6 is in it"},
	} {
		parsed, err := config.Parse([]byte(strings.Replace(upf, c.from, c.to, 1)))
		if err != nil {
			t.Fatalf("%s: %v", c.to, err)
		}
		if err := config.CheckAddresses(parsed, own); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got\n%v\nwant %s", c.to, err, c.want)
		}
	}
}

// An address of N4 need not be on an interface if the kernel lets the daemon listen there.
func TestCheckMachineN4(t *testing.T) {
	for text, want := range map[string]string{"127.9.9.9": "", "192.0.2.99": "no interface of this machine has 192.0.2.99"} {
		c := config.Config{UPF: config.UPF{N4: []netip.Addr{netip.MustParseAddr(text)}}}
		if err := c.CheckMachine(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestUPFRefuses(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"  n4: [192.0.2.10, \"2001:db8::10\"]", "  node_id: a", "line 10: upf.n4: no address for PFCP is given"},
		{"gtpu: {addresses: [192.0.2.1]}", "", "gtpu.addresses: a user plane function needs an address for G-PDUs"},
		{"192.0.2.10, ", "0.0.0.0, ", "upf.n4[0]"},
		{"192.0.2.10, ", "192.0.2.10, 192.0.2.10, ", "upf.n4[1]: 192.0.2.10 is already that of upf.n4 (fix: remove one of the two)"},
		{"  n4: [", "  node_id: 'a..b'\n  n4: [", `upf.node_id: "a..b" cannot be a Node ID`},
		{"  n4: [", "  rate_burst: 9\n  n4: [", "upf.rate_burst: 9 is out of range (fix: 10 to 200 milliseconds)"},
		{"  n4: [", "  rate_burst: 201\n  n4: [", "upf.rate_burst: 201 is out of range (fix: 10 to 200 milliseconds)"},
		{"192.0.2.0/24", "192.0.2.1/24", "upf.smfs[0]: 192.0.2.1/24 has bits behind its length (fix: write 192.0.2.0/24)"},
		{"  smfs: [192.0.2.0/24]\n", "", "upf.smfs: no SMF is named that may set up sessions (fix: add the line smfs: [192.0.2.20/32] with the addresses of your SMFs, or smfs: any"},
		{"[192.0.2.0/24]", "[]", "line 12: upf.smfs: no SMF is named"},
		{"[192.0.2.0/24]", "[any, 192.0.2.0/24]", `upf.smfs[0]: "any" is not a prefix`},
		{"[192.0.2.0/24]", "all", "upf.smfs: must be a list"},
		{"  smfs: [", "  connect: [192.0.3.1]\n  smfs: [", "line 12: upf.connect[0]: 192.0.3.1 is not in upf.smfs: its answers would be ignored (fix: add 192.0.3.1/32 to upf.smfs)"},
		{"192.0.2.0/28", "192.0.2.1/28", "upf.protected[0]"},
		{"  protected: [", "  ue_may_reach: [192.0.2.1/28]\n  protected: [", "upf.ue_may_reach[0]: 192.0.2.1/28 has bits behind its length"},
		{"  protected: [", "  ue_may_reach: [192.0.2.0/28]\n  protected: [", "upf.ue_may_reach[0]: 192.0.2.0/28 is in upf.protected, too"},
		{"10.45.0.0/16", "10.45.0.0/14", "limits.sessions: 65536 sessions, of two addresses each, are too few for the 327680 addresses of the pools (fix: at least 163840, or smaller pools)"},
		{"10.45.0.0/16", "192.0.2.0/24", "GTP-U address 192.0.2.1"},
		{"10.45.0.0/16", "192.0.2.8/29", "upf.ue_pools[0].prefixes[0]: pool 192.0.2.8/29 holds N4 address 192.0.2.10 (fix: take the node's N4 address out of the UE pool"},
		{`"2001:db8:45::/48"`, `"2001:db8::/60"`, "upf.ue_pools[0].prefixes[1]: pool 2001:db8::/60 holds N4 address 2001:db8::10"},
		{"192.0.2.0/24", "10.45.0.20/32", "upf.ue_pools[0].prefixes[0]: pool 10.45.0.0/16 holds SMF 10.45.0.20 (fix: take the address out of the UE pool"},
		{"smfs: [192.0.2.0/24]", "smfs: any\n  connect: [10.45.0.20]", "pool 10.45.0.0/16 holds SMF 10.45.0.20"},
		{"10.1.1.0/24", "10.45.1.1/32", "upf.ue_pools[0].prefixes[0]: pool 10.45.0.0/16 holds GTP-U peer 10.45.1.1"},
		{"gtpu: {a", "tunnels: [{name: t, remote: 10.45.1.1, remote_teid: 1}]\ngtpu: {a", "pool 10.45.0.0/16 holds GTP-U peer 10.45.1.1"},
		{"gtpu: {a", "gtpu: {pools: [192.0.2.8/29], a", "gtpu.pools[0]: pool 192.0.2.8/29 holds N4 address 192.0.2.10"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 192.0.0.0/22}, prefixes: [10.45.0.0/16, ", "upf.ue_pools[0].nat.addresses: public addresses 192.0.0.0/22 hold N4 address 192.0.2.10 (fix: use public addresses without"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 192.0.0.0/22}, prefixes: [10.45.0.0/16, ", "upf.ue_pools[0].nat.addresses: public addresses 192.0.0.0/22 hold GTP-U address 192.0.2.1 (fix: use public addresses without the node's GTP-U address)"},
		{`local_sid: "2001:db8:1:d46::/64"`, `local_sid: "2001:db8::/64"`, `upf.n4[1]: N4 address 2001:db8::10 lies in SID 2001:db8::/64 of slice "a" (fix: use an address outside of the SID`},
		{"policies:\n", "locators: [{name: main, prefix: \"2001:db8::/48\"}]\npolicies:\n", `upf.n4[1]: N4 address 2001:db8::10 lies in locator "main"`},
		{"policies:\n", "locators: [{name: main, prefix: \"2001:db8:5::/48\"}]\nbgp: {asn: 1, router_id: 192.0.2.1, peers: [{address: \"2001:db8:5::1\", asn: 1}]}\npolicies:\n", `bgp.peers[0].address: BGP peer 2001:db8:5::1 lies in locator "main"`},
		{"policies:\n", "steering: [{prefix: 192.0.2.10/32, policy: red}]\npolicies:\n", "steering[0].prefix: steered prefix 192.0.2.10/32 is N4 address 192.0.2.10 (fix: remove it"},
		{"snssai: {sst: 2}", `snssai: {sst: 1, sd: "000002"}`, "slices[2].snssai: the choice of sst 1, sd \"000002\", network instance \"\" is already that of slices[1]"},
		{"snssai: {sst: 2}", `snssai: {sst: 2, sd: "12"}`, `sst 2, sd "12" is not an S-NSSAI`},
		{"name: b", "name: b\n    table: 536870912", "slices[1].table: 536870912 is too large"},
		{"name: b", "name: a", "slices[1].name: a is already that of slices[0]"},
		{"uplink_policy: red", "uplink_policy: rad", `policy "rad" does not exist (fix: did you mean "red"?)`},
		{"uplink_policy: red", "uplink_policy: wire", "which takes Ethernet frames"},
		{"mode: enhanced, uplink_policy: red", "uplink_policy: red", "policies need mode enhanced"},
		{"mode: enhanced, uplink_policy: red", "mode: enhanced", "no policy to send with is given"},
		{"snssai: {sst: 2}", "snssai: {sst: 2}\n    n6: {interface: eth9}", `slices[2].n6.interface: "eth9" is not among the interfaces`},
		{"snssai: {sst: 2}", "snssai: {sst: 2}\n    n6: {interface: n6, vlan: 4095}", "slices[2].n6.vlan: 4095 is not a VLAN ID"},
		{"{transport: gtpu}", "{transport: gtpu, uplink: \"2001:db8::1\"}", "with GTP-U the SMF says where packets go"},
		{"snssai: {sst: 2}", "snssai: {sst: 2}\n    ue_to_ue: routed", `slices[2].ue_to_ue: "routed" is not known (fix: did you mean "route"?)`},
		{"  protected:", "  ue_to_ue: n3\n  protected:", `upf.ue_to_ue: "n3" is not known`},
		{"{transport: gtpu}", "{transport: gtp}", `"gtp" is not known (fix: did you mean "gtpu"?)`},
		{"{transport: gtpu}", "{}", "transport is missing"},
		{`encapsulation: {source: "2001:db8:1::1"}`, "", "packets by SRv6 have no outer source address"},
		{`local_sid: "2001:db8:1:d46::/64"`, `local_sid: "192.0.2.0/24"`, "is not an IPv6 prefix"},
		{"args_offset: 64", "args_offset: 89", "slices[0].n9.args_offset: Args.Mob.Session would not fit at bit 89 (fix: at most 88)"},
		{"args_offset: 64", "args_offset: 60", "slices[0].n9.uplink: Args.Mob.Session would overwrite bits of 2001:db8:2:d46::"},
		{"uplink_policy: red", "uplink_policy: red, args_offset: 40", `Args.Mob.Session would overwrite bits of 2001:db8:102:1::, the last of segment list 0 of policy "red"`},
		{"{transport: gtpu}", "{transport: gtpu, args_offset: 64}", "with GTP-U the SMF says where packets go"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 203.0.113.0/24}, prefixes: [10.45.0.0/16, ", "upf.ue_pools[0].nat.addresses: 203.0.113.0/24 has room for 16384 UEs of 1008 ports each, and the pool has 65536 addresses (fix: a /22, fewer ports_per_ue, or a smaller pool)"},
		{"prefixes: [10.45.0.0/16, ", "nat: {}, prefixes: [10.45.0.0/16, ", "upf.ue_pools[0].nat.addresses: is missing (fix: public IPv4 addresses"},
		{"snssai: {sst: 2}", "snssai: {sst: 300}", "slices[2].snssai.sst: 300 is out of range (fix: a whole number from 1 to 255)"},
		{"snssai: {sst: 2}", "snssai: {sst: 0}", "slices[2].snssai.sst: must not be 0 (fix: a whole number from 1 to 255)"},
		{"prefixes: [10.45.0.0/16, ", `nat: {addresses: "2001:db8:9::/64"}, prefixes: [10.45.0.0/16, `, "upf.ue_pools[0].nat.addresses: 2001:db8:9::/64 is no such prefix"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 203.0.0.0/16, ports_per_ue: 100}, prefixes: [10.45.0.0/16, ", "upf.ue_pools[0].nat.ports_per_ue: 100 ports are not possible (fix: a multiple of 8"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 203.0.112.0/22, timeouts: {udp: 30}}, prefixes: [10.45.0.0/16, ", "upf.ue_pools[0].nat.timeouts.udp: 30 s is too short (fix: at least 120 seconds (RFC 4787))"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 203.0.112.0/22}, prefixes: [10.46.0.0/24, 10.45.0.0/16, ", "upf.ue_pools[0].prefixes: the pool has NAT, and 2 IPv4 prefixes (fix: one IPv4 prefix"},
		{"prefixes: [10.45.0.0/16, ", "nat: {addresses: 10.45.0.0/22}, prefixes: [10.45.0.0/16, ", "public addresses 10.45.0.0/22"},
	} {
		text := strings.Replace(upf, tt.from, tt.to, 1)
		if text == upf {
			t.Fatalf("%q is not there", tt.from)
		}
		if _, err := config.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got\n%v\nwant %s", tt.to, err, tt.want)
		}
	}
}
