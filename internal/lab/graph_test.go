package lab

import (
	"encoding/json"
	"strings"
	"testing"
)

const ring = `name: ring
summary: three in a ring, one alone
nodes:
  - {name: a, kind: host, role: first}
  - {name: b, kind: kernel}
  - {name: c, kind: kernel}
  - {name: d, kind: host}
links:
  - ends: [{node: a, name: ab, addresses: [10.0.0.1/24, 10.0.0.3/24, "fd00::1/64"]}, {node: b, name: ba}]
  - ends: [{node: b, name: bc}, {node: c, name: cb}]
  - ends: [{node: c, name: ca}, {node: a, name: ac}]
`

func TestGraph(t *testing.T) {
	topology, err := Parse([]byte(ring))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"text": `a (host: first)
+-- ab 10.0.0.1/24 fd00::1/64 ---- ba: b (kernel)
|   +-- bc ---- cb: c (see below)
+-- ac ---- ca: c (kernel)
d (host)
`,
		"dot": `graph "ring" {
  rankdir=LR;
  node [shape=box];
  "a" [label="a\nhost: first"];
  "b" [label="b\nkernel"];
  "c" [label="c\nkernel"];
  "d" [label="d\nhost"];
  "a" -- "b" [taillabel="ab 10.0.0.1/24 fd00::1/64", headlabel="ba"];
  "b" -- "c" [taillabel="bc", headlabel="cb"];
  "c" -- "a" [taillabel="ca", headlabel="ac"];
}
`,
		"mermaid": `graph LR
  a["a<br>host: first"]
  b["b<br>kernel"]
  c["c<br>kernel"]
  d["d<br>host"]
  a ---|"ab - ba"| b
  b ---|"bc - cb"| c
  c ---|"ca - ac"| a
`,
		"table": `NODE  INTERFACE  ADDRESSES                           PEER  INTERFACE  ADDRESSES
a     ab         10.0.0.1/24 10.0.0.3/24 fd00::1/64  b     ba         
b     bc                                             c     cb         
c     ca                                             a     ac         
`,
	}
	for format, want := range tests {
		var b strings.Builder
		if err := writeGraph(&b, topology, format); err != nil || b.String() != want {
			t.Errorf("%s: error %v, got:\n%s\nwant:\n%s", format, err, b.String(), want)
		}
	}
	wantError(t, writeGraph(&strings.Builder{}, topology, "png"), "png", "mermaid")
}

func TestGraphJSON(t *testing.T) {
	out, _, err := execute(t, "graph", "kernel", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Lab   string
		Nodes []struct{ Name, Kind string }
		Links []struct{ Ends []struct{ Node, Name string } }
	}
	if err := json.Unmarshal([]byte(out), &g); err != nil || g.Lab != "kernel" || len(g.Nodes) != 5 || len(g.Links) != 4 {
		t.Errorf("error %v, %+v", err, g)
	}
}

func TestListCommand(t *testing.T) {
	out, _, err := execute(t, "list", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list []listing
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) < 4 {
		t.Errorf("error %v, %+v", err, list)
	}
	if out, _, err = execute(t, "list"); err != nil || !strings.HasPrefix(out, "NAME") || !strings.Contains(out, "gateway") {
		t.Errorf("error %v, %s", err, out)
	}
	_, _, err = execute(t, "list", "-o", "xml")
	wantError(t, err, "xml", "table, json, yaml")
}

func TestReport(t *testing.T) {
	r := &Report{Lab: "x", Checks: []Result{
		{Name: "good", Pass: true, Detail: "d <&>", Sent: 3, Received: 3},
		{Name: "bad", Sent: 3, Received: 1, Lost: 2, Detail: "2 of 3 lost"},
	}, Kernel: "6.6", Seconds: 2}
	var b strings.Builder
	if err := writeReport(&b, r, "table"); err != nil {
		t.Fatal(err)
	}
	want := `CHECK  SENT  RECEIVED  LOST  RESULT  DETAIL
good   3     3         0     pass    d <&>
bad    3     1         2     FAIL    2 of 3 lost

x: 1 of 2 checks passed in 2 s (Linux 6.6)
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
	b.Reset()
	if err := writeReport(&b, r, "json"); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{`"lab": "x"`, `"pass": false`, `"name": "bad"`, `"detail": "d <&>"`, `"lost": 2`} {
		if !strings.Contains(b.String(), w) {
			t.Errorf("no %s in %s", w, b.String())
		}
	}
}
