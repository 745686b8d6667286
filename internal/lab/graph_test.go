package lab

import (
	"encoding/json"
	"strings"
	"testing"
)

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
