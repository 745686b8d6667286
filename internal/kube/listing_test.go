package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func TestListingFaults(t *testing.T) {
	for words, text := range map[string]string{
		": node: is missing": "policies: []",
		`line 1: node: is "node-9", but this is the ConfigMap of node-1`:   "node: node-9",
		"line 2: localsids.DT4: 10.0.0.1":                                  "node: node-1\nlocalsids: {DT4: 10.0.0.1}",
		`localsids.DT5: unknown field (fix: did you mean "DT4"?)`:          "node: node-1\nlocalsids: {DT5: \"fc00::1\"}",
		`localsids.End.X: unknown field (fix: one of: DT4, DT46, DT6)`:     "node: node-1\nlocalsids: {End.X: \"fc00::1\"}",
		"localsids.DT6: is that of DT4, which takes no IPv6":               "node: node-1\nlocalsids: {DT4: \"fc00::1\", DT6: \"fc00::1\"}",
		"line 3: policies[0].egress_node: is missing":                      "node: node-1\npolicies:\n- {traffic: IPv6, segment_list: [\"fc00::1\"]}",
		"policies[0].egress_node: node-1 is this node":                     "node: node-1\npolicies: [{egress_node: node-1, traffic: IPv6, segment_list: [\"fc00::1\"]}]",
		"policies[0].egress_node: 10.0.0.1":                                "node: node-1\npolicies: [{egress_node: 10.0.0.1, traffic: IPv6, segment_list: [\"fc00::1\"]}]",
		`policies[0].egress_node: "Node 2" is neither`:                     "node: node-1\npolicies: [{egress_node: Node 2, traffic: IPv6, segment_list: [\"fc00::1\"]}]",
		"policies[0].traffic: is missing":                                  "node: node-1\npolicies: [{egress_node: n, segment_list: [\"fc00::1\"]}]",
		`policies[0].traffic: "ipv6" is no traffic: give IPv4 or IPv6`:     "node: node-1\npolicies: [{egress_node: n, traffic: ipv6, segment_list: [\"fc00::1\"]}]",
		"policies[0].segment_lists: is missing":                            "node: node-1\npolicies: [{egress_node: n, traffic: IPv6}]",
		"policies[0].segment_lists: stands beside segment_list":            "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, segment_list: [\"fc00::1\"], segment_lists: [{segments: [\"fc00::1\"]}]}]",
		"policies[0].segment_list[1]: ff02::1":                             "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, segment_list: [\"fc00::1\", \"ff02::1\"]}]",
		"policies[0].segment_lists[0].segments: is missing":                "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, segment_lists: [{weight: 2}]}]",
		"policies[0].segment_list: has 13":                                 "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, segment_list: [" + strings.Repeat(`"fc00::1",`, 13) + "]}]",
		`policies[0].bsid: "cafe" is not an IP address`:                    "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, bsid: cafe, segment_list: [\"fc00::1\"]}]",
		"policies[0].bsid: ::":                                             "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, bsid: \"::\", segment_list: [\"fc00::1\"]}]",
		"policies[0].name: \"a/b\" cannot have":                            "node: node-1\npolicies: [{egress_node: n, name: a/b, traffic: IPv6, segment_list: [\"fc00::1\"]}]",
		"policies[0].preference: 4294967296 is out of range":               "node: node-1\npolicies: [{egress_node: n, preference: 4294967296, traffic: IPv6, segment_list: [\"fc00::1\"]}]",
		`line 4: policies[1].name: "ipv6:n" is that of policies[0]`:        "node: node-1\npolicies:\n- {egress_node: n, traffic: IPv6, segment_list: [\"fc00::1\"]}\n- {egress_node: n, traffic: IPv6, segment_list: [\"fc00::2\"]}",
		"policies[0].delay_bound: give a time with its unit, such as 15ms": "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, delay_bound: 15, segment_list: [\"fc00::1\"]}]",
		"policies[0].delay_bound: is 11s":                                  "node: node-1\npolicies: [{egress_node: n, traffic: IPv6, delay_bound: 11s, segment_list: [\"fc00::1\"]}]",
		"line 3: policies: not YAML":                                       "node: node-1\npolicies: [",
		"aliases (*a) are not supported":                                   "node: node-1\nlocalsids: {DT4: &a \"fc00::1\", DT6: *a}",
	} {
		_, err := readListing(map[string]string{"policies.yaml": text}, me, nil)
		if err == nil || !strings.Contains(err.Error(), "data[policies.yaml]: ") || !strings.Contains(err.Error(), words) {
			t.Errorf("%s:\n%v, want %q", text, err, words)
		}
	}
	for _, data := range []map[string]string{nil, {"a": "node: node-1", "b": "node: node-1"}} {
		if _, err := readListing(data, me, nil); err == nil || !strings.HasPrefix(err.Error(), "data: has ") {
			t.Errorf("%v: %v", data, err)
		}
	}
}

func TestListingNames(t *testing.T) {
	r, err := readListing(map[string]string{"anything": `
node: node-1
policies:
- {egress_node: n, traffic: IPv4, segment_list: ["fc00::1"], name: red, preference: 7, delay_bound: 15ms, lowest_delay: true}
- {egress_node: n, traffic: IPv4, segment_list: ["fc00::1"]}
- {egress_node: a-node-with-a-name.that-is-much-too-long.for-the-name-of-a-path.example.org, traffic: IPv6, segment_list: ["fc00::1"]}
`}, me, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries := r.entries
	if w := entries[0].path.SegmentLists[0].Weight; w != 1 {
		t.Errorf("a list without a weight has %d", w)
	}
	if p := entries[0].path; p.Name != "configmap:red" || p.Preference != 7 || p.Color != overlay.ColorIPv4 ||
		p.DelayConstraint != (srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(15 * time.Millisecond), LowestDelay: true}) {
		t.Errorf("path is %+v", p)
	}
	if p := entries[1].path; p.Name != "configmap:ipv4:n" || p.Preference != DefaultPreference {
		t.Errorf("path is %+v", p)
	}
	if n := entries[2].path.Name; len(n) > 63 || !strings.HasPrefix(n, "configmap:") || entries[2].egress == "n" {
		t.Errorf("name is %s", n)
	}
}
