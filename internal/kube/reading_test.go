package kube

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// writtenListing is one of n entries, some of which take two lines.
func writtenListing(n int, indent string) string {
	var b strings.Builder
	b.WriteString("localsids: {DT4: 'fc00::d4'}\nnode: node-1\npolicies:\n")
	for i := range n {
		fmt.Fprintf(&b, "%s- {egress_node: node-%d, traffic: IPv4, segment_list: ['fc00::%x', 'fc00::%x:4']}\n", indent, i+2, i+1, i+1)
		fmt.Fprintf(&b, "%s- egress_node: node-%d\n%s  traffic: IPv6\n%s  segment_list: ['fc00::%x:6']\n", indent, i+2, indent, indent, i+1)
	}
	return b.String()
}

// read reads a whole listing.
func read(t *testing.T, text string) *reading {
	t.Helper()
	r, err := parseListing(text, me)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOnlyWhatChangedIsRead(t *testing.T) {
	for _, indent := range []string{"", "  "} {
		text := writtenListing(4, indent)
		before := read(t, text)
		for what, now := range map[string]string{
			"nothing":                 text,
			"a segment":               strings.Replace(text, "'fc00::2:4'", "'fc00::5:4'", 1),
			"two entries":             strings.NewReplacer("'fc00::2:6'", "'fc00::5:6'", "'fc00::3:4'", "'fc00::5:4'").Replace(text),
			"one more in the middle":  strings.Replace(text, indent+"- egress_node: node-3", indent+"- {egress_node: node-9, traffic: IPv6, segment_list: ['fc00::9']}\n"+indent+"- egress_node: node-3", 1),
			"one more at the end":     text + indent + "- {egress_node: node-9, traffic: IPv6, segment_list: ['fc00::9']}\n",
			"one that goes":           strings.Replace(text, fmt.Sprintf("%s- {egress_node: node-3, traffic: IPv4, segment_list: ['fc00::2', 'fc00::2:4']}\n", indent), "", 1),
			"a line in an entry more": strings.Replace(text, indent+"  traffic: IPv6\n", indent+"  traffic: IPv6\n"+indent+"  preference: 7\n", 1),
		} {
			got, ok := before.next(now, me)
			if want := read(t, now); !ok || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, %+v, want %+v", what, ok, got, want)
			}
		}
	}
}

func TestWhatIsReadWhole(t *testing.T) {
	text := writtenListing(4, "")
	before := read(t, text)
	for what, now := range map[string]string{
		"another node":         strings.Replace(text, "node: node-1", "node: node-9", 1),
		"other SIDs":           strings.Replace(text, "fc00::d4", "fc00::d5", 1),
		"a name that is twice": strings.Replace(text, "egress_node: node-3, traffic", "egress_node: node-4, traffic", 1),
		"the end":              text + "node: node-1\n",
		"a document's end":     strings.Replace(text, "- egress_node: node-3", "...\n- egress_node: node-3", 1),
		"an open quote":        strings.Replace(text, "'fc00::2:4'", "'fc00::2:4", 1),
		"an open brace":        strings.Replace(text, "'fc00::2:4']}", "'fc00::2:4']", 1),
		"another indentation":  strings.Replace(text, "- egress_node: node-3", "   - egress_node: node-3", 1),
		"other line breaks":    strings.Replace(text, "- egress_node: node-3\n", "- egress_node: node-3\r", 1),
		"a fault":              strings.Replace(text, "egress_node: node-3\n", "egres_node: node-3\n", 1),
	} {
		if got, ok := before.next(now, me); ok {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if _, ok := read(t, "node: node-1\npolicies: [{egress_node: n, traffic: IPv4, segment_list: ['fc00::1']}]").next(text, me); ok {
		t.Error("entries in one line")
	}
}

// TestReadingIsWhole changes listings by chance: what is read of the change comes to
// what is read of all.
func TestReadingIsWhole(t *testing.T) {
	const changes = 20000
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"", "", "'", "\"", "{", "}", "[", "]", "- ", " ", "  ", "\n", "\n\n", ",", "|\n", ">-\n", "#", "&a ", "*a", "!!str ", "...\n", "---\n", "\r", "\u2028", "\t", "? ", ": ",
		"- {egress_node: node-77, traffic: IPv4, segment_list: ['fc00::77']}\n", "  preference: 9\n", "node: node-1\n", "  - x\n", "policies:\n", "fc00::a", "6"}
	texts := []string{writtenListing(3, ""), writtenListing(3, "  "), writtenListing(2, "") + "\n# end\n"}
	quick := 0
	for range changes {
		text := texts[r.IntN(len(texts))]
		before := read(t, text)
		for range 1 + r.IntN(2) {
			from := r.IntN(len(text))
			if r.IntN(2) == 0 { // a line's beginning
				from = strings.LastIndexByte(text[:from], '\n') + 1
			}
			to := min(len(text), from+r.IntN(2)*r.IntN(30))
			text = text[:from] + pieces[r.IntN(len(pieces))] + text[to:]
		}
		got, ok := before.next(text, me)
		if !ok {
			continue
		}
		quick++
		want, err := parseListing(text, me)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\n%+v, want %+v, %v", text, got, want, err)
		}
	}
	if quick < changes/50 {
		t.Errorf("of %d changes %d were read by themselves", changes, quick)
	}
}
