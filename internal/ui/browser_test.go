package ui_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/testutil/browser"
)

// Tokens of the tests.
const (
	operatorToken = "0123456789abcdef0123456789abcdef"
	viewerToken   = "fedcba9876543210fedcba9876543210"
)

// drain takes the filters of traces that an agent is asked for.
func drain(t *testing.T, a *apitest.Agent) {
	filters := a.Filters
	go func() {
		for {
			select {
			case <-filters:
			case <-t.Context().Done():
				return
			}
		}
	}()
}

// fake is a busy agent with an example's configuration, packets to trace, and a flow.
func fake(t *testing.T, example, name string) *apitest.Busy {
	t.Helper()
	c, err := config.Load(filepath.Join("../../examples", example))
	if err != nil {
		t.Fatal(err)
	}
	a := apitest.New(c)
	drain(t, a)
	text := func(usual string) string {
		if name != "" {
			return name
		}
		return usual
	}
	a.Events = []agent.TraceEvent{
		{Time: time.Now(), Interface: text("n3"), Reason: "HOP_LIMIT", Drop: true, Text: text("hop limit or TTL would become 0"), Verdict: "XDP_DROP", InLength: 118, In: apitest.GPDU(0x1000001), Session: 1, PDR: 1},
		{Time: time.Now(), Interface: text("n3"), Egress: text("n6"), Reason: "FORWARDED", Text: "sent on", Verdict: "XDP_REDIRECT", InLength: 118, OutLength: 70, In: apitest.GPDU(0x1000001),
			Out: apitest.GPDU(0x1000001)[62:], Session: 1, PDR: 1, Policy: text("by-the-firewall"), Adjacency: "192.0.2.77"},
	}
	a.PodFlows = []flow.Flow{{ID: 1, Source: flow.End{Pod: text("shop/web-1")}, Destination: flow.End{Pod: text("shop/db-0"), Port: 5432}, Protocol: "TCP", Verdict: "allowed", Packets: 7, Octets: 4200, First: time.Now(), Last: time.Now()}}
	if _, err := a.AddPod(pods.Attachment{ContainerID: "c1", Interface: "eth0"}, pods.Pod{Network: "culvert", Namespace: text("shop"), Name: text("web-1"), HostInterface: text("cv0")}); err != nil {
		t.Fatal(err)
	}
	b := apitest.NewBusy(a, 60)
	b.Name = name
	return b
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve serves the page of an agent, as the daemon does, and returns its address.
func serve(t *testing.T, a agent.Service) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	run(t, config.API{Listen: address, Page: true, TokenFile: write(t, "token", operatorToken), ViewerTokenFile: write(t, "viewer", viewerToken)}, a)
	return "http://" + address
}

// run serves an agent until the test ends, or the function that it returns is called.
func run(t *testing.T, c config.API, a agent.Service) (end func()) {
	t.Helper()
	handler := api.NewHandler(a, func(context.Context, api.Examination) ([]api.Finding, error) {
		return []api.Finding{{Name: "interfaces", Level: "warn", Detail: "n3: 1 queue for 4 CPUs", Fix: "more queues", Command: []string{"ethtool", "-L", "n3", "combined", "4"}},
			{Name: "kernel", Level: "ok", Detail: "6.12"}}, nil
	})
	s, err := api.Listen(c, handler, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { _ = handler.Run(ctx) }) // it has no error
	end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(end)
	return end
}

// open opens a browser for pages at an address.
func open(t *testing.T, address string) *browser.Browser {
	t.Helper()
	b := browser.New(t)
	b.Own = address
	return b
}

// views are what shows that a view has all that it shows.
var views = []struct{ name, ready string }{
	{"topology", `document.querySelectorAll(".box").length > 4 && [...document.querySelectorAll("td.n")].some(e => /^8\.\d+ Mbit/.test(e.textContent))`},
	{"sessions", `document.querySelectorAll("tbody tr").length == 25 && [...document.querySelectorAll("td.n")].some(e => /Mbit/.test(e.textContent))`},
	{"sessions/0x3c", `document.querySelector(".chart polyline")?.points.length > 1 && document.querySelector("main").innerText.includes("voice, color 100, path te:voice: valid")`},
	{"why", `document.querySelector(".findings") && [...document.querySelectorAll("button")].some(e => /^\d\d:/.test(e.textContent))`},
	{"paths", `document.querySelectorAll(".policy").length > 0 && /Mbit/.test(document.querySelector(".policy").innerText)`},
	{"cluster", `document.querySelectorAll("main p.empty").length == 1`},
}

var axe = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command("../../tools/web.sh", "install").CombinedOutput(); err != nil {
		return "", fmt.Errorf("tools/web.sh install: %w: %s", err, out)
	}
	text, err := os.ReadFile("web/node_modules/axe-core/axe.min.js")
	return string(text), err
})

// judge lets axe-core look at a page. It may find nothing at all.
func judge(t *testing.T, b *browser.Browser) {
	t.Helper()
	script, err := axe()
	if err != nil {
		t.Fatal(err)
	}
	var found string
	err = chromedp.Run(b.Ctx, chromedp.Evaluate(script+"; undefined", nil),
		chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => ({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary)}))))`,
			&found, chromedp.EvalAsValue, awaited))
	if err != nil {
		t.Fatal(err)
	}
	if found != "[]" {
		t.Errorf("axe-core: %s", found)
	}
}

// Each view shows what it should, in both themes and on a phone, fetches nothing from
// elsewhere, and axe-core finds nothing.
func TestViews(t *testing.T) {
	address := serve(t, fake(t, "upf.yaml", ""))
	b := open(t, address)
	enter(t, b, address, operatorToken)
	for _, w := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"phone", 360, 740, false}} {
		for _, v := range views {
			b.Visit(t, address+"/#/"+v.name, w.width, w.height, w.dark)
			b.Wait(t, v.ready)
			if w.width > 360 { // the document is the same on a phone
				judge(t, b)
			}
			var over int
			b.Ask(t, `document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over)
			if over > 0 {
				t.Errorf("%s, %s: the page is %d pixels wider than the window", v.name, w.name, over)
			}
			b.Picture(t, w.name+"-"+strings.ReplaceAll(v.name, "/", "-"))
		}
	}
	if deeds := b.Deeds(); len(deeds) > 0 {
		t.Errorf("the page did: %q", deeds)
	}
}

// enter gives a token to the page that asks for one.
func enter(t *testing.T, b *browser.Browser, address, token string) {
	t.Helper()
	b.Visit(t, address+"/", 1280, 900, false)
	b.Wait(t, `document.querySelector("#token")`)
	judge(t, b)
	if err := chromedp.Run(b.Ctx, chromedp.SendKeys("#token", token+"\n")); err != nil {
		t.Fatal(err)
	}
	b.Wait(t, `document.querySelector("nav")`)
	// Refused calls are logged by the browser; they are what makes the page ask.
	refused := slices.DeleteFunc(b.Deeds(), func(s string) bool { return strings.Contains(s, "401") })
	if len(refused) > 0 {
		t.Errorf("before the token the page did: %q", refused)
	}
}

// text is what a page says.
func text(t *testing.T, b *browser.Browser) (s string) {
	t.Helper()
	b.Ask(t, `document.body.innerText`, &s)
	return s
}

func find(t *testing.T, b *browser.Browser, by, value string) {
	t.Helper()
	err := chromedp.Run(b.Ctx, chromedp.SetValue(".search select", by), chromedp.Evaluate(`document.querySelector(".search select").dispatchEvent(new Event("change", {bubbles: true}))`, nil),
		chromedp.Evaluate(`(e => { e.value = ""; e.dispatchEvent(new Event("input", {bubbles: true})) })(document.querySelector("#find"))`, nil),
		chromedp.SendKeys("#find", value+"\n"))
	if err != nil {
		t.Fatal(err)
	}
}

// Sessions are found by UE, SEID and TEID, and paged.
func TestSearch(t *testing.T) {
	address := serve(t, fake(t, "upf.yaml", ""))
	b := open(t, address)
	enter(t, b, address, operatorToken)
	b.Visit(t, address+"/#/sessions", 1280, 900, false)
	row := func(n int) string {
		return fmt.Sprintf(`document.querySelectorAll("tbody tr").length == 1 && document.querySelector("tbody tr").innerText.includes("10.45.0.%d/32")`, n)
	}
	b.Wait(t, `document.querySelectorAll("tbody tr").length == 25`)
	find(t, b, "ue", "10.45.0.7")
	b.Wait(t, row(7))
	find(t, b, "seid", "0x9")
	b.Wait(t, row(9))
	find(t, b, "teid", "0x1000003")
	b.Wait(t, row(3))
	find(t, b, "ue", "10.46.0.1")
	b.Wait(t, `document.querySelector(".empty")?.innerText.includes("No session matches")`)
	find(t, b, "seid", "x")
	b.Wait(t, `document.querySelector("#find-problem")?.innerText.includes("Give a SEID")`)
	b.Visit(t, address+"/?again#/sessions", 1280, 900, false)
	for _, first := range []string{"0x1", "0x1a", "0x33"} {
		b.Wait(t, fmt.Sprintf(`document.querySelector("tbody td")?.innerText == %q`, first))
		b.Ask(t, `[...document.querySelectorAll(".pages button")].at(-1).click()`, nil)
	}
	b.Wait(t, `document.querySelectorAll("tbody tr").length == 10 && [...document.querySelectorAll(".pages button")].at(-1).disabled`)
}

// A slice highlights the links that its packets may take, and dims others.
func TestHighlight(t *testing.T) {
	address := serve(t, fake(t, "upf.yaml", ""))
	b := open(t, address)
	enter(t, b, address, operatorToken)
	b.Visit(t, address+"/#/topology", 1280, 900, false)
	b.Wait(t, `document.querySelectorAll(".box").length > 4`)
	b.Ask(t, `[...document.querySelectorAll("button.choice")].find(e => e.textContent == "b").click()`, nil)
	b.Wait(t, `document.querySelectorAll(".link.lit").length > 0`)
	lit := func() (ids []string) {
		b.Ask(t, `[...document.querySelectorAll(".link.lit title")].map(e => e.textContent.replace(/:.*/, ""))`, &ids)
		return ids
	}
	if got := lit(); !slices.Contains(got, "port n9 to policy by-the-firewall") || slices.Contains(got, "node to port n6") {
		t.Errorf("slice b goes over SRv6: highlighted are %q", got)
	}
}

// Captured packets, of a UE, show their steps.
func TestExplain(t *testing.T) {
	a := fake(t, "upf.yaml", "")
	filters := make(chan agent.TraceFilter, 100) // the view looks for drops, too
	a.Filters = filters
	address := serve(t, a)
	b := open(t, address)
	enter(t, b, address, operatorToken)
	b.Visit(t, address+"/#/why", 1280, 900, false)
	b.Wait(t, `document.querySelector("#capture")`)
	b.Ask(t, `(() => { const e = document.querySelector("#capture-ue"); e.value = "10.45.0.1"; e.dispatchEvent(new Event("input", {bubbles: true})) })()`, nil)
	b.Ask(t, `document.querySelector("#capture").click()`, nil)
	b.Wait(t, `document.querySelectorAll(".picks button").length == 2`)
	b.Ask(t, `document.querySelectorAll(".picks button")[1].click()`, nil)
	b.Wait(t, `document.querySelector(".picks ~ .journey .good")`)
	var steps []string
	b.Ask(t, `[...document.querySelectorAll(".picks ~ .journey b")].map(e => e.textContent)`, &steps)
	if want := []string{"Received by n3", "Session", "SR policy", "Next hop", "Sent by n6"}; !slices.Equal(steps, want) {
		t.Errorf("steps are %q, want %q", steps, want)
	}
	ofUE := false
	for len(filters) > 0 {
		f := <-filters
		ofUE = ofUE || f.UE == netip.MustParseAddr("10.45.0.1")
	}
	if !ofUE {
		t.Error("the capture is not of the UE")
	}
	judge(t, b)
	b.Picture(t, "explain")
	b.Ask(t, `document.querySelector("#capture").click()`, nil)
	b.Wait(t, `[...document.querySelectorAll("p")].some(e => e.textContent == "Stopped after 2 packets.")`)
}

// A packet that is pasted is explained; what is no packet is refused in words.
func TestExplainPasted(t *testing.T) {
	address := serve(t, fake(t, "upf.yaml", ""))
	b := open(t, address)
	enter(t, b, address, operatorToken)
	b.Visit(t, address+"/#/why", 1280, 900, false)
	b.Wait(t, `document.querySelectorAll("#paste-interface option").length > 2`)
	paste := func(text string) {
		b.Ask(t, fmt.Sprintf(`(() => { const e = document.querySelector("#paste-text"); e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})) })()`, text), nil)
		b.Wait(t, `!document.querySelector("#paste").disabled`)
		b.Ask(t, `document.querySelector("#paste").click()`, nil)
	}
	paste("hello")
	b.Wait(t, `[...document.querySelectorAll(".problem")].some(e => e.innerText.includes("no packet"))`)
	paste("0000  " + hex.EncodeToString(apitest.GPDU(7)[:16]) + "\n0010  " + hex.EncodeToString(apitest.GPDU(7)[16:]))
	b.Wait(t, `document.querySelector("ul[aria-label='Pasted packets'] ~ .journey")?.innerText.includes("teid 0x7")`)
	judge(t, b)
	b.Picture(t, "explain-pasted")
}

// A member of a cluster shows pods, flows and verdicts.
func TestCluster(t *testing.T) {
	address := serve(t, fake(t, "overlay.yaml", ""))
	b := open(t, address)
	enter(t, b, address, operatorToken)
	b.Visit(t, address+"/#/cluster", 1280, 900, false)
	b.Wait(t, `["shop/web-1", "shop/db-0:5432", "node-2"].every(s => document.body.innerText.includes(s))`)
	judge(t, b)
	b.Picture(t, "cluster-member")
	b.Visit(t, address+"/#/topology", 1280, 900, true)
	b.Wait(t, `document.querySelectorAll(".box.member").length == 2`)
	b.Picture(t, "dark-topology-cluster")
}

// The page says which NetworkPolicy decides, and what is wrong with a question.
func TestVerdict(t *testing.T) {
	address := serve(t, fake(t, "overlay.yaml", ""))
	b := open(t, address)
	enter(t, b, address, operatorToken)
	b.Visit(t, address+"/#/cluster", 1280, 900, false)
	b.Wait(t, `document.querySelector("#verdict")`)
	ask := func(from, to, port string) {
		for name, value := range map[string]string{"from": from, "to": to, "port": port} {
			b.Ask(t, fmt.Sprintf(`(() => { const e = document.querySelector("#verdict-%s"); e.value = %q; e.dispatchEvent(new Event("input", {bubbles: true})) })()`, name, value), nil)
		}
		b.Ask(t, `new Promise(f => requestAnimationFrame(f))`, nil) // the page has taken them over
		b.Ask(t, `document.querySelector("#verdict").click()`, nil)
	}
	said := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".verdict")].some(e => e.innerText.startsWith(%q))`, text)
	}
	ask("db", "web", "80")
	b.Wait(t, said("Allowed from default/db to default/web."))
	judge(t, b)
	ask("db", "web", "81")
	b.Wait(t, said("Dropped from default/db to default/web."))
	ask("db", "nobody", "80")
	b.Wait(t, `[...document.querySelectorAll(".problem")].some(e => e.innerText.includes("nobody"))`)
}

// What a viewer's page knows holds no identity: not on the screen, and not in the answers.
func TestViewer(t *testing.T) {
	address := serve(t, fake(t, "upf.yaml", ""))
	b := open(t, address)
	enter(t, b, address, viewerToken)
	for _, v := range views {
		b.Visit(t, address+"/#/"+v.name, 1280, 900, false)
		b.Wait(t, v.ready)
		for _, secret := range []string{"10.45.0.", "0x100000", "198.51.100.9", "2001:db8:f::9"} {
			if said := text(t, b); strings.Contains(said, secret) {
				t.Errorf("%s shows %s to a viewer:\n%s", v.name, secret, said)
			}
		}
	}
	b.Visit(t, address+"/?again#/sessions", 1280, 900, false)
	b.Wait(t, `document.querySelectorAll("tbody tr").length == 25`)
	find(t, b, "ue", "10.45.0.7")
	b.Wait(t, `document.querySelector(".problem")?.innerText.includes("search by SEID or slice")`)
}

// hostile is a name that ends whatever it may stand in, and tries to run.
const hostile = `<img src=x onerror="window.hacked=1">"><script>window.hacked=1</script>javascript:window.hacked=1//'"</title></textarea>${window.hacked=1}{{7*7}}`

// Names that others choose are text, whatever they hold.
func TestHostileNames(t *testing.T) {
	for _, example := range []string{"upf.yaml", "overlay.yaml"} {
		address := serve(t, fake(t, example, hostile))
		b := open(t, address)
		enter(t, b, address, operatorToken)
		seen := 0
		for _, v := range []string{"topology", "sessions", "sessions/0x1", "why", "paths", "cluster"} {
			b.Visit(t, address+"/#/"+v, 1280, 900, false)
			b.Wait(t, `document.querySelectorAll("main td, main .empty, main .box").length > 0`)
			name, err := json.Marshal(hostile)
			if err != nil {
				t.Fatal(err)
			}
			var state struct {
				Hacked, Seen bool
				Extra        int
			}
			b.Ask(t, fmt.Sprintf(`({Hacked: "hacked" in window, Seen: document.body.textContent.includes(%s), Extra: document.querySelectorAll("#page img, #page script, #page iframe, a[href^='javascript']").length})`, name), &state)
			if state.Hacked || state.Extra > 0 {
				t.Errorf("%s, %s: %+v", example, v, state)
			}
			if state.Seen {
				seen++
			}
		}
		if seen < 3 {
			t.Errorf("%s: %d views show the name: the test looks at nothing", example, seen)
		}
		if deeds := b.Deeds(); len(deeds) > 0 {
			t.Errorf("%s: the page did %q", example, deeds)
		}
	}
}
