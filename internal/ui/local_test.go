package ui_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/te"
)

type answers map[string]any

// local serves the page of an agent as culvert ui does, and returns its address with the secret.
func local(t *testing.T, a agent.Service, of answers) (address, fragment string) {
	t.Helper()
	return localPage(t, api.NewHandler(a, nil), of)
}

func localPage(t *testing.T, calls http.Handler, of answers) (address, fragment string) {
	t.Helper()
	functions := map[string]func(context.Context) (any, error){}
	for name, v := range of {
		functions[name] = func(context.Context) (any, error) { return v, nil }
	}
	s := httptest.NewServer(api.LocalPage("secret", calls, functions))
	t.Cleanup(func() {
		s.CloseClientConnections() // of streams
		s.Close()
	})
	return s.URL, "/#token=secret"
}

// The secret in the address opens the page, and leaves the address at once.
func TestSecret(t *testing.T) {
	address, fragment := local(t, fake(t, "upf.yaml", ""), answers{"info": map[string]any{"target": "/run/culvert.sock"}})
	b := open(t, address)
	b.Visit(t, address+fragment, 1280, 900, false)
	b.Wait(t, `document.querySelectorAll(".box").length > 4 && document.body.innerText.includes("/run/culvert.sock")`)
	var where string
	b.Ask(t, `location.href + document.cookie + JSON.stringify(localStorage)`, &where)
	if where != address+"/#/topology{}" {
		t.Errorf("the page is at %s", where)
	}
	if deeds := b.Deeds(); len(deeds) > 0 {
		t.Errorf("the page did %q", deeds)
	}
}

// What the engine plans is shown before and after.
func TestEngine(t *testing.T) {
	state := loop.State{At: time.Now(), Apply: true, Word: "1 demand moves", Plan: &engine.Plan{
		Why: "r1-r2 would be at 95 %", Now: 0.95, Then: 0.6, Best: 0.55, Steps: 1,
		Moves: []engine.Move{{Demand: te.Demand{Key: te.Key{Headend: "r1", Endpoint: "r4", Color: 100}}, Now: "100 % by the IGP", Then: "60 % by r3, 40 % by the IGP", Step: 1}},
		Links: []engine.Link{{Link: "r1-r2", Capacity: 1e9, Now: 0.95, Then: 0.6}, {Link: "r1-r3", Capacity: 1e9, Now: 0.05, Then: 0.4}},
	}}
	address, fragment := local(t, fake(t, "headend.yaml", ""), answers{"info": map[string]any{"target": "r1", "engine": true}, "engine": state})
	b := open(t, address)
	b.Visit(t, address+fragment, 1280, 900, false)
	b.Wait(t, `document.querySelector("nav")`)
	b.Visit(t, address+"/#/paths", 1280, 900, true)
	b.Wait(t, `["95 % now, 60 % after the plan", "60 % by r3", "r1-r2 would be at 95 %", "1 Gbit/s"].every(s => document.body.innerText.includes(s)) && document.querySelectorAll("meter").length == 4`)
	judge(t, b)
	b.Picture(t, "dark-engine")
}

// member is a node, as culvert ui says it.
type member struct {
	Node    string        `json:"node"`
	Problem string        `json:"problem,omitempty"`
	Status  *agent.Status `json:"status,omitempty"`
}

// One page has all nodes of a cluster, those with a problem first.
func TestMembers(t *testing.T) {
	status, err := fake(t, "overlay.yaml", "").Status()
	if err != nil {
		t.Fatal(err)
	}
	status.Resources[desired.KindPolicy] = 17
	fine := status
	own := *status.Overlay
	own.Problems = nil
	fine.Overlay = &own
	address, fragment := localPage(t, http.NotFoundHandler(), answers{"info": map[string]any{"target": "all nodes", "cluster": true},
		"cluster": []member{{Node: "node-1", Status: &fine}, {Node: "node-2", Problem: "there is no pod on it"}, {Node: "node-3", Status: &status}}})
	b := open(t, address)
	b.Visit(t, address+fragment, 1280, 900, false)
	b.Wait(t, `document.querySelectorAll("tbody tr").length == 3`)
	var rows []string
	b.Ask(t, `[...document.querySelectorAll("tbody tr")].map(e => e.children[0].innerText + " " + e.children[1].innerText + " " + e.children[6].innerText)`, &rows)
	if len(rows) != 3 || rows[0] != "node-2 there is no pod on it " || rows[2] != "node-1 ready 17" {
		t.Errorf("rows are %q", rows)
	}
	judge(t, b)
	b.Picture(t, "members")
}
