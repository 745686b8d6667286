package topology

import (
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
		if err := WriteGraph(&b, topology, format); err != nil || b.String() != want {
			t.Errorf("%s: error %v, got:\n%s\nwant:\n%s", format, err, b.String(), want)
		}
	}
	wantError(t, WriteGraph(&strings.Builder{}, topology, "png"), "png", "mermaid")
}
