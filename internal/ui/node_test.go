package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/config"
)

// relay is a stream to a relay in this process. Its reads fail as those of one in a pod do.
type relay struct {
	net.Conn
	err error
}

func (r *relay) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if errors.Is(err, io.EOF) && r.err != nil {
		err = r.err
	}
	return n, err
}

// relayTo starts a relay to a socket.
func relayTo(t *testing.T, socket string) net.Conn {
	ours, theirs := net.Pipe()
	r := &relay{Conn: ours}
	go func() {
		defer theirs.Close()
		r.err = api.Relay(t.Context(), socket, theirs, theirs)
	}()
	return r
}

// refused is that an operator may not run commands in pods.
type refused struct{}

func (refused) Error() string {
	return "your rights in the cluster do not suffice: you may not create pods/exec in kube-system"
}
func (refused) Is(target error) bool { return target == fs.ErrPermission }

// statusOf is what culvert status says of an example's agent.
func statusOf(t *testing.T, example string) member {
	t.Helper()
	s, err := fake(t, example, "").Status()
	if err != nil {
		t.Fatal(err)
	}
	return member{Status: &s}
}

// Who chooses a node sees its own page, until the node dies, and again when it is back.
func TestNode(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "c.sock")
	a := fake(t, "upf.yaml", "")
	end := run(t, config.API{Socket: socket}, a)
	one := statusOf(t, "upf.yaml")
	one.Node = "node-1"
	nodes := api.DefaultRelayLimits.NewNodeProxy(func(context.Context, string) (net.Conn, error) { return relayTo(t, socket), nil })
	address, fragment := localPage(t, nodes, answers{"info": map[string]any{"target": "all nodes", "cluster": true}, "cluster": []member{one, {Node: "node-2", Problem: "there is no pod on it"}}})
	b := open(t, address)
	b.Visit(t, address+fragment, 1280, 900, false)
	b.Wait(t, `document.querySelectorAll("tbody tr").length == 2`)
	b.Deeds() // before the page knew that it is of a cluster, it asked for a topology
	var links []string
	b.Ask(t, `[...document.querySelectorAll("tbody a")].map(e => e.textContent + " " + e.href)`, &links)
	if want := []string{"node-1 " + address + "/?node=node-1#/topology"}; !slices.Equal(links, want) {
		t.Fatalf("links are %q, want %q", links, want)
	}
	for _, v := range views {
		b.Visit(t, address+"/?node=node-1#/"+v.name, 1280, 900, false)
		b.Wait(t, v.ready)
		b.Wait(t, `document.querySelector(".where")?.innerText == "node-1" && document.querySelector("nav a").innerText == "All nodes"`)
	}
	b.Visit(t, address+"/?node=node-1#/topology", 360, 740, false)
	b.Wait(t, views[0].ready)
	var over int
	b.Ask(t, `document.documentElement.scrollWidth - document.documentElement.clientWidth`, &over)
	if over > 0 {
		t.Errorf("on a phone the page is %d pixels wider than the window", over)
	}
	b.Visit(t, address+"/?node=node-1#/topology", 1280, 900, true)
	b.Wait(t, views[0].ready)
	judge(t, b)
	b.Picture(t, "node")
	if deeds := b.Deeds(); len(deeds) > 0 {
		t.Errorf("the page did %q", deeds)
	}
	end()
	b.Wait(t, `document.querySelector(".problem")?.innerText.includes("No daemon at")`)
	judge(t, b)
	b.Picture(t, "node-gone")
	run(t, config.API{Socket: socket}, a)
	b.Wait(t, `!document.querySelector(".problem")`)
	b.Wait(t, views[0].ready)
}

// Who has no right to run commands in pods is told so, and the page does not try again.
func TestNodeRefused(t *testing.T) {
	var tries atomic.Int32
	nodes := api.DefaultRelayLimits.NewNodeProxy(func(context.Context, string) (net.Conn, error) {
		tries.Add(1)
		return nil, refused{}
	})
	address, fragment := localPage(t, nodes, answers{"info": map[string]any{"target": "all nodes", "cluster": true}, "cluster": []member{}})
	b := open(t, address)
	b.Visit(t, address+fragment, 1280, 900, false)
	b.Wait(t, `document.querySelector(".empty")`)
	b.Visit(t, address+"/?node=node-1#/topology", 1280, 900, false)
	b.Wait(t, `document.querySelector(".problem")?.innerText.includes("you may not create pods/exec in kube-system")`)
	judge(t, b)
	before := tries.Load()
	time.Sleep(5 * time.Second) // the page tries again every two seconds where that helps
	if after := tries.Load(); before != 1 || after != 1 {
		t.Errorf("%d tries, then %d", before, after)
	}
}

// A node's name is text, also in an address. What is no name is asked nothing.
func TestNodeHostile(t *testing.T) {
	nodes := api.DefaultRelayLimits.NewNodeProxy(func(_ context.Context, node string) (net.Conn, error) {
		t.Errorf("a relay for %q", node)
		return nil, errors.New("no relay")
	})
	bad := statusOf(t, "overlay.yaml")
	bad.Node = hostile
	address, fragment := localPage(t, nodes, answers{"info": map[string]any{"target": "all nodes", "cluster": true}, "cluster": []member{bad}})
	b := open(t, address)
	b.Visit(t, address+fragment, 1280, 900, false)
	b.Wait(t, `document.querySelectorAll("tbody a").length == 1`)
	name, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	harmless := func(where string) {
		t.Helper()
		var state struct {
			Hacked, Seen bool
			Extra        int
		}
		b.Ask(t, fmt.Sprintf(`({Hacked: "hacked" in window, Seen: document.body.textContent.includes(%s), Extra: document.querySelectorAll("#page img, #page script, #page iframe, a[href^='javascript']").length})`, name), &state)
		if state.Hacked || !state.Seen || state.Extra > 0 {
			t.Errorf("%s: %+v", where, state)
		}
	}
	harmless("in the list")
	var link string
	b.Ask(t, fmt.Sprintf(`(a => new URL(a.href).origin == location.origin && new URL(a.href).searchParams.get("node") == %s ? a.href : "it leads to " + a.href)(document.querySelector("tbody a"))`, name), &link)
	if !strings.HasPrefix(link, address+"/?node=") {
		t.Fatal(link)
	}
	b.Visit(t, link, 1280, 900, false)
	b.Wait(t, `document.querySelector(".where") && document.querySelector(".problem, .empty")`)
	harmless("in the address")
	for _, deed := range b.Deeds() {
		if !strings.Contains(deed, "Failed to load resource") { // of calls that are refused
			t.Errorf("the page did %q", deed)
		}
	}
}

// The page that a daemon serves is of that daemon, whatever its address says.
func TestNodeOfDaemon(t *testing.T) {
	address := serve(t, fake(t, "upf.yaml", ""))
	b := open(t, address)
	b.Visit(t, address+"/?node=node-1#/topology", 1280, 900, false)
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // it goes to another address meanwhile
		var search string
		err := b.Try(`location.search`, &search)
		if err == nil && search == "" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the page stays at %q: %v", search, err)
		}
	}
}
