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
