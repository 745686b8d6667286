package frr

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// read parses a file of testdata: what isisd 8.4.4 printed on r1 of four routers, with two
// links between r1 and r2, one each of r1-r3 and r2-r3, and one without link-params to r4.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParse(t *testing.T) {
	got, left, err := Parse([]byte(read(t, "database.json")))
	if err != nil || len(left) != 0 {
		t.Fatal(err, left)
	}
	var nodes []string
	for _, n := range got.Nodes {
		nodes = append(nodes, n.Name)
	}
	if strings.Join(nodes, " ") != "r1 r2 r3 r4" {
		t.Errorf("nodes %v", nodes)
	}
	if len(got.Links) != 8 {
		t.Fatalf("%d directions of links, want 8: %+v", len(got.Links), got.Links)
	}
	want := te.Link{From: "r1", To: "r2", Name: "2001:db8:120::120", Metric: 10, Capacity: 10e9, Delay: 1200 * time.Microsecond, Affinity: 5}
	if !reflect.DeepEqual(got.Links[0], want) {
		t.Errorf("%+v\nwant %+v", got.Links[0], want)
	}
	want.From, want.To = want.To, want.From
	if !reflect.DeepEqual(got.Links[3], want) {
		t.Errorf("the other direction: %+v\nwant %+v", got.Links[3], want)
	}
	if l := got.Links[5]; l.From != "r2" || l.To != "r3" || l.Delay != 5*time.Millisecond {
		t.Errorf("%+v", l)
	}
}

// FRR keys links by the last 64 bits of an address: of links that share them one is left,
// between the wrong routers.
func TestConfusedLinksAreLeftOut(t *testing.T) {
	got, left, err := Parse([]byte(read(t, "same_identifiers.json")))
	if err != nil || len(got.Nodes) != 4 || len(got.Links) != 0 {
		t.Fatalf("%v %+v", err, got)
	}
	if len(left) != 3 || !strings.Contains(left[0].Why, "other direction is missing") || !strings.Contains(left[1].Why, "equal last 64 bits") || left[1].What != "link r2 to r1 (FRR's edge 2)" {
		t.Errorf("left out %+v", left)
	}
}

// Each fault takes out what it is of, and says so.
func TestFaultsAreLeftOut(t *testing.T) {
	whole := read(t, "database.json")
	for _, tt := range []struct {
		name, old, new, why string
		nodes, links        int
	}{
		{"a vertex that goes", `"vertex-id":3,` + "\n" + `        "status":"Sync"`, `"vertex-id":3,"status":"Orphan"`, `its status is "Orphan"`, 3, 4},
		{"an edge that goes", `"edge-id":288,` + "\n" + `        "status":"Sync"`, `"edge-id":288,"status":"Delete"`, `its status is "Delete"`, 4, 6},
		{"no host name", `"name":"r3"`, `"name":""`, "it has no host name", 3, 4},
		{"one host name twice", `"name":"r3"`, `"name":"r2"`, "vertex 2 has its host name too", 3, 4},
		{"no addresses", `"local-address-v6":"2001:db8:120::120",`, "", "it has no addresses", 4, 6},
		{"a loop", `"remote-vertex-id":3`, `"remote-vertex-id":1`, "it ends where it begins", 4, 6},
		{"no metric", `"metric":10,`, "", "it has no metric", 4, 7},
		{"negative", `"delay":1200`, `"delay":-1`, "negative", 4, 7},
	} {
		text := strings.Replace(whole, tt.old, tt.new, 1)
		if text == whole {
			t.Errorf("%s changes nothing", tt.name)
		}
		got, left, err := Parse([]byte(text))
		if err != nil || len(got.Nodes) != tt.nodes || len(got.Links) != tt.links {
			t.Errorf("%s: %v, %d nodes and %d links, want %d and %d", tt.name, err, len(got.Nodes), len(got.Links), tt.nodes, tt.links)
		}
		if len(left) == 0 || !strings.Contains(left[0].Why, tt.why) {
			t.Errorf("%s: left out %v, want %q", tt.name, left, tt.why)
		}
	}
	for text, want := range map[string]string{
		"% Unknown command": "FRR's database: invalid character",
		"{}":                "ted is missing (fix: configure mpls-te on",
	} {
		if _, _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
