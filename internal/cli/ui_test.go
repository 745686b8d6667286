package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/testutil/browser"
)

// servedPage runs culvert ui and returns the address of its page, the secret, and what ends it.
func servedPage(t *testing.T, args ...string) (address, secret string, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	root := newRoot(&app{version: "v1.2.3", format: printer.Table, now: time.Now})
	root.SetArgs(append([]string{"ui"}, args...))
	root.SetOut(in)
	root.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		in.CloseWithError(io.EOF)
		done <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("culvert ui ended: %v", <-done)
	}
	address, secret, ok := strings.Cut(strings.TrimSpace(line), "/#token=")
	if !ok || !regexp.MustCompile(`^http://127\.0\.0\.1:\d+$`).MatchString(address) || len(secret) < 26 {
		t.Fatalf("culvert ui printed %q", line)
	}
	return address, secret, func() error { cancel(); return <-done }
}

// call calls a method by a page's address, and returns the status.
func call(t *testing.T, address, method string, headers map[string]string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+method, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		if k == "Host" {
			request.Host = v
		}
		request.Header.Set(k, v)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// Who has the secret sees what the daemon says. Others do not, and nobody changes anything.
func TestPage(t *testing.T) {
	f := start(t, "upf.yaml")
	address, secret, end := servedPage(t, "--socket", f.socket)
	with := map[string]string{"Authorization": "Bearer " + secret}
	const status = "/culvert.v1.Culvert/Status"
	if code, text := call(t, address, status, with); code != http.StatusOK || !strings.Contains(text, "v1.2.3") {
		t.Errorf("with the secret: %d %s", code, text)
	}
	if code, text := call(t, address, "/local/info", with); code != http.StatusOK || !strings.Contains(text, f.socket) {
		t.Errorf("info: %d %s", code, text)
	}
	if code, _ := call(t, address, "/local/engine", with); code != http.StatusNoContent {
		t.Errorf("without --engine: %d", code)
	}
	for name, row := range map[string]struct {
		method string
		with   map[string]string
		want   int
	}{
		"no secret":            {status, nil, http.StatusUnauthorized},
		"no secret, local":     {"/local/info", nil, http.StatusUnauthorized},
		"another secret":       {status, map[string]string{"Authorization": "Bearer " + strings.Repeat("A", len(secret))}, http.StatusUnauthorized},
		"another origin":       {status, map[string]string{"Authorization": "Bearer " + secret, "Origin": "https://evil.example"}, http.StatusForbidden},
		"another host":         {status, map[string]string{"Authorization": "Bearer " + secret, "Host": "evil.example"}, http.StatusForbidden},
		"a change":             {"/culvert.v1.Culvert/Apply", with, http.StatusForbidden},
		"a change by Delete":   {"/culvert.v1.Culvert/Delete", with, http.StatusForbidden},
		"the CNI plugin's API": {"/culvert.v1.Pods/AddPod", with, http.StatusForbidden},
		"the configuration":    {"/culvert.v1.Culvert/GetConfig", with, http.StatusForbidden},
	} {
		if code, _ := call(t, address, row.method, row.with); code != row.want {
			t.Errorf("%s: %d, want %d", name, code, row.want)
		}
	}
	if err := end(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if _, err := http.Get(address); err == nil {
		t.Error("the page is served after the command ended")
	}
}

// The address is loopback, and somebody has to be there.
func TestPageRefused(t *testing.T) {
	f := start(t, "upf.yaml")
	for name, args := range map[string][]string{
		"beyond loopback": {"ui", "--socket", f.socket, "--listen", "0.0.0.0:0"},
		"by name":         {"ui", "--socket", f.socket, "--listen", "upf.example:80"},
		"no port":         {"ui", "--socket", f.socket, "--listen", "127.0.0.1"},
	} {
		if r := command(t.Context(), "", args...); r.code != cmdline.ExitUsage {
			t.Errorf("%s: code %d, %s", name, r.code, r.stderr)
		}
	}
	if r := command(t.Context(), "", "ui", "--socket", "/nonexistent"); r.code == 0 || !strings.Contains(r.stderr, "no daemon at") {
		t.Errorf("without a daemon: %d %s", r.code, r.stderr)
	}
}

// All nodes are asked as culvert status --cluster asks them.
func TestPageOfCluster(t *testing.T) {
	f := fakeAgents{nodes: []connectivity.Node{{Name: "n2", Agent: connectivity.Container{Pod: "b"}}, {Name: "n1", Agent: connectivity.Container{Pod: "a"}}},
		answers: map[string]string{"a": `{"version":"v1","overlay":{"pods":3}}`}}
	s := httptest.NewServer(api.LocalPage("secret", http.NotFoundHandler(), map[string]func(context.Context) (any, error){"cluster": membersOf(f)}))
	defer s.Close()
	code, text := call(t, s.URL, "/local/cluster", map[string]string{"Authorization": "Bearer secret"})
	var got []member
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, text, err)
	}
	if len(got) != 2 || got[0].Node != "n1" || got[0].Status.Overlay.Pods != 3 || got[1].Status != nil || got[1].Problem == "" {
		t.Errorf("members: %s", text)
	}
}

// The page shows what a running engine plans for a network that it measures, and what it cannot do.
func TestPageOfEngine(t *testing.T) {
	c, err := config.Parse([]byte(squarePolicies))
	if err != nil {
		t.Fatal(err)
	}
	dir, listen := t.TempDir(), freePort(t)
	socket, file := filepath.Join(dir, "a.sock"), filepath.Join(dir, "network.yaml")
	serve(t, apitest.New(c), socket)
	network := strings.NewReplacer("SOCKET", socket, "LISTEN", listen).Replace(impossible)
	if err := os.WriteFile(file, []byte(network), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- command(ctx, "", "te", "run", file) }()
	waitForState(t, listen, func(s loop.State) bool { return s.Plan != nil })
	address, secret, endPage := servedPage(t, "--socket", socket, "--engine", listen)
	b := browser.New(t)
	b.Own = address
	b.Visit(t, address+"/#token="+secret, 1280, 900, false)
	b.Wait(t, `document.querySelector("nav")`)
	b.Visit(t, address+"/#/paths", 1280, 900, false)
	b.Wait(t, `["a to e", "no path leads there", "changes headends", "10 Mbit/s"].every(s => document.body.innerText.includes(s)) && document.querySelectorAll("meter").length == 16`)
	end() // the engine goes, and the page says so
	if r := <-ended; r.code != cmdline.ExitOK {
		t.Errorf("the engine: exit %d: %s", r.code, r.stderr)
	}
	b.Wait(t, `document.querySelector("[role=alert]")?.innerText.includes("engine at")`)
	if err := endPage(); err != nil {
		t.Error(err)
	}
}

// fakeRelays run culvert ui relay in this process.
type fakeRelays struct {
	t       *testing.T
	sockets map[string]string // of daemons, by the name of the node
}

func (f fakeRelays) AgentOn(_ context.Context, node string) (connectivity.Container, error) {
	if f.sockets[node] == "" {
		return connectivity.Container{}, fmt.Errorf("there is no pod of the DaemonSet culvert on %s", node)
	}
	return connectivity.Container{Pod: node}, nil
}

func (f fakeRelays) Dial(ctx context.Context, in connectivity.Container, program ...string) net.Conn {
	if program[0] != connectivity.Program {
		f.t.Errorf("runs %q", program)
	}
	ours, theirs := net.Pipe()
	root := newRoot(&app{version: "v1.2.3", format: printer.Table, now: time.Now})
	root.SetArgs(append(program[1:], "--socket", f.sockets[in.Pod]))
	root.SetIn(theirs)
	root.SetOut(theirs)
	root.SetErr(io.Discard)
	go func() {
		defer theirs.Close()
		if err := root.ExecuteContext(ctx); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			f.t.Errorf("%q: %v", program, err)
		}
	}()
	return ours
}

// Each node of a cluster answers for itself, by a relay in its pod.
func TestPageOfNode(t *testing.T) {
	upf, edge := start(t, "upf.yaml"), start(t, "edge.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	nodes := api.DefaultRelayLimits.NewNodeProxy(relayOn(ctx, fakeRelays{t, map[string]string{"upf": upf.socket, "edge": edge.socket}}))
	s := httptest.NewServer(api.LocalPage("secret", nodes, nil))
	defer s.Close()
	with := map[string]string{"Authorization": "Bearer secret"}
	for node, want := range map[string]string{"upf": "\"upf\"", "edge": "\"interfaces\""} {
		code, text := call(t, s.URL, "/node/"+node+"/culvert.v1.Culvert/Status", with)
		if code != http.StatusOK || !strings.Contains(text, want) || strings.Contains(text, "\"upf\"") != (node == "upf") {
			t.Errorf("%s: %d %s", node, code, text)
		}
	}
	if code, text := call(t, s.URL, "/node/other/culvert.v1.Culvert/Status", with); code != http.StatusServiceUnavailable || !strings.Contains(text, "no pod of the DaemonSet culvert on other") {
		t.Errorf("a node without an agent: %d %s", code, text)
	}
}

// The relay says when it is there, and ends with its input. Without a daemon it says why.
func TestRelayCommand(t *testing.T) {
	f := start(t, "upf.yaml")
	if r := command(t.Context(), "", "ui", "relay", "--socket", f.socket); r.code != 0 || !strings.HasPrefix(r.stdout, "culvert relay 1\n") {
		t.Errorf("%d %q %s", r.code, r.stdout, r.stderr)
	}
	if r := command(t.Context(), "", "ui", "relay", "--socket", "/nonexistent"); r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, "no daemon at /nonexistent") {
		t.Errorf("without a daemon: %d %q %s", r.code, r.stdout, r.stderr)
	}
}
