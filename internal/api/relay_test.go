package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/culvert-net/culvert/internal/api"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/config"
)

// soon are limits for tests.
var soon = api.RelayLimits{Patience: 10 * time.Second, Idle: time.Minute, Silence: time.Minute}

// wire is a stream to a relay in this process. Once it is dead, nothing comes through, and nobody
// is told.
type wire struct {
	net.Conn
	dead  atomic.Bool
	ended chan struct{} // the relay has
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if err != nil || !w.dead.Load() {
			return n, err
		}
	}
}

func (w *wire) Write(b []byte) (int, error) {
	if w.dead.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

// beside runs a relay to a socket, as a command in a pod does.
func beside(t *testing.T, socket string) *wire {
	ours, theirs := net.Pipe()
	w := &wire{Conn: ours, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		defer theirs.Close()
		if err := api.Relay(t.Context(), socket, theirs, theirs); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("relay: %v", err)
		}
	}()
	t.Cleanup(func() {
		ours.Close()
		<-w.ended
	})
	return w
}

// calling calls a node by a page for all nodes.
func calling(t *testing.T, limits api.RelayLimits, start func(ctx context.Context, node string) (net.Conn, error)) (address string, client culvertv1connect.CulvertClient) {
	t.Helper()
	s := httptest.NewServer(api.LocalPage("secret", limits.NewNodeProxy(start), nil))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL, culvertv1connect.NewCulvertClient(&http.Client{Transport: bearerOf{"secret"}}, s.URL+"/node/node-1")
}

// The page of a node calls its daemon by one relay, also for streams, which tell what changes.
func TestNodeProxy(t *testing.T) {
	path := socket(t)
	serve(t, config.API{Socket: path}, busy(t), nil)
	var started atomic.Int32
	_, client := calling(t, soon, func(_ context.Context, node string) (net.Conn, error) {
		if node != "node-1" {
			t.Errorf("a relay for %q", node)
		}
		started.Add(1)
		return beside(t, path), nil
	})
	if s, err := client.Status(t.Context(), &pb.StatusRequest{}); err != nil || s.GetVersion() == "" {
		t.Fatalf("%v, %v", s, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			stream, err := client.Watch(ctx, &pb.WatchRequest{View: "topology"})
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			for range 2 {
				if !stream.Receive() {
					t.Errorf("the stream ended: %v", stream.Err())
				}
			}
			if _, err := client.Status(ctx, &pb.StatusRequest{}); err != nil {
				t.Errorf("beside a stream: %v", err)
			}
		})
	}
	group.Wait()
	if n := started.Load(); n != 1 {
		t.Errorf("%d relays for one node", n)
	}
}

// What the page does not call, and what is no node, starts no relay.
func TestNodeProxyRefuses(t *testing.T) {
	var started atomic.Int32
	address, _ := calling(t, soon, func(context.Context, string) (net.Conn, error) {
		started.Add(1)
		return nil, errors.New("no relay in this test")
	})
	secret := map[string]string{"Authorization": "Bearer secret"}
	for name, row := range map[string]struct {
		method, path string
		headers      map[string]string
		want         int
	}{
		"no secret":            {http.MethodPost, "/node/node-1/culvert.v1.Culvert/Status", nil, http.StatusUnauthorized},
		"another origin":       {http.MethodPost, "/node/node-1/culvert.v1.Culvert/Status", map[string]string{"Authorization": "Bearer secret", "Origin": "https://evil.example"}, http.StatusForbidden},
		"a change":             {http.MethodPost, "/node/node-1/culvert.v1.Culvert/Apply", secret, http.StatusForbidden},
		"the configuration":    {http.MethodPost, "/node/node-1/culvert.v1.Culvert/GetConfig", secret, http.StatusForbidden},
		"the CNI plugin's API": {http.MethodPost, "/node/node-1/culvert.v1.Pods/AddPod", secret, http.StatusForbidden},
		"another path":         {http.MethodPost, "/node/node-1/metrics", secret, http.StatusForbidden},
		"by GET":               {http.MethodGet, "/node/node-1/culvert.v1.Culvert/Status", secret, http.StatusMethodNotAllowed},
		"no node":              {http.MethodPost, "/culvert.v1.Culvert/Status", secret, http.StatusNotFound},
		"a port":               {http.MethodPost, "/node/node-1:80/culvert.v1.Culvert/Status", secret, http.StatusBadRequest},
		"a user":               {http.MethodPost, "/node/a@node-1/culvert.v1.Culvert/Status", secret, http.StatusBadRequest},
		"a path in the name":   {http.MethodPost, "/node/node-1%2F..%2Fx/culvert.v1.Culvert/Status", secret, http.StatusBadRequest},
		"a selector":           {http.MethodPost, "/node/node-1,metadata.name=x/culvert.v1.Culvert/Status", secret, http.StatusBadRequest},
		"capitals":             {http.MethodPost, "/node/Node/culvert.v1.Culvert/Status", secret, http.StatusBadRequest},
		"a long name":          {http.MethodPost, "/node/" + strings.Repeat("a", 254) + "/culvert.v1.Culvert/Status", secret, http.StatusBadRequest},
		"a node":               {http.MethodPost, "/node/" + strings.Repeat("a", 253) + "/culvert.v1.Culvert/Status", secret, http.StatusServiceUnavailable},
	} {
		request, err := http.NewRequestWithContext(t.Context(), row.method, address+row.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		for k, v := range row.headers {
			request.Header.Set(k, v)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != row.want {
			t.Errorf("%s: %s, want %d", name, answer.Status, row.want)
		}
	}
	if n := started.Load(); n != 1 {
		t.Errorf("%d relays were started, for one call that is allowed", n)
	}
}

// unauthorized is why an operator may not start a relay.
type unauthorized struct{}

func (unauthorized) Error() string        { return "you may not create pods/exec in kube-system" }
func (unauthorized) Is(target error) bool { return target == fs.ErrPermission }

// Whoever looks at a node is told why it does not answer, by calls and by streams.
func TestNodeUnreachable(t *testing.T) {
	says := func(text string) func(context.Context, string) (net.Conn, error) {
		return func(context.Context, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				_, _ = io.WriteString(theirs, text)
			}()
			return ours, nil
		}
	}
	for name, row := range map[string]struct {
		start func(context.Context, string) (net.Conn, error)
		code  connect.Code
		text  string
	}{
		"no pod":     {func(context.Context, string) (net.Conn, error) { return nil, errors.New("there is no pod on it") }, connect.CodeUnavailable, "there is no pod on it"},
		"no right":   {func(context.Context, string) (net.Conn, error) { return nil, unauthorized{} }, connect.CodePermissionDenied, "you may not create pods/exec in kube-system"},
		"it ends":    {says(""), connect.CodeUnavailable, "the agent on node-1 ended the stream"},
		"half":       {says("culvert re"), connect.CodeUnavailable, `answers "culvert re"`},
		"not ours":   {says("Welcome to Alpine Linux!"), connect.CodeUnavailable, `the pod on node-1 answers "Welcome to Alpin": it has no agent of this version`},
		"it is mute": {func(context.Context, string) (net.Conn, error) { ours, _ := net.Pipe(); return ours, nil }, connect.CodeUnavailable, "the agent on node-1 does not answer within 100ms"},
	} {
		limits := soon
		limits.Patience = 100 * time.Millisecond
		_, client := calling(t, limits, row.start)
		_, unary := client.Status(t.Context(), &pb.StatusRequest{})
		stream, err := client.Watch(t.Context(), &pb.WatchRequest{View: "topology"})
		if err == nil {
			stream.Receive()
			err = stream.Err()
			stream.Close()
		}
		for what, err := range map[string]error{"call": unary, "stream": err} {
			if connect.CodeOf(err) != row.code || !strings.Contains(err.Error(), row.text) {
				t.Errorf("%s, %s: %v, want %v: %s", name, what, err, row.code, row.text)
			}
		}
	}
}

// A node that dies while one watches ends the streams, also if nobody says so. Another call
// starts another relay.
func TestNodeDies(t *testing.T) {
	for name, die := range map[string]func(*wire){
		"its pod ends":  func(w *wire) { w.Close() },
		"it is cut off": func(w *wire) { w.dead.Store(true) },
	} {
		path := socket(t)
		serve(t, config.API{Socket: path}, busy(t), nil)
		wires := make(chan *wire, 10)
		limits := soon
		limits.Silence = 2 * time.Second
		_, client := calling(t, limits, func(context.Context, string) (net.Conn, error) {
			w := beside(t, path)
			wires <- w
			return w, nil
		})
		stream, err := client.Watch(t.Context(), &pb.WatchRequest{View: "topology"})
		if err != nil || !stream.Receive() {
			t.Fatalf("%s: %v, %v", name, err, stream.Err())
		}
		die(<-wires)
		for stream.Receive() { // what was under way
		}
		if stream.Err() == nil {
			t.Errorf("%s: the stream ends without an error", name)
		}
		stream.Close()
		if _, err := client.Status(t.Context(), &pb.StatusRequest{}); err != nil {
			t.Errorf("%s: another call: %v", name, err)
		}
	}
}

// A relay ends some time after nobody looks.
func TestRelayIdle(t *testing.T) {
	path := socket(t)
	serve(t, config.API{Socket: path}, busy(t), nil)
	wires := make(chan *wire, 1)
	limits := soon
	limits.Idle = 50 * time.Millisecond
	_, client := calling(t, limits, func(context.Context, string) (net.Conn, error) {
		w := beside(t, path)
		wires <- w
		return w, nil
	})
	if _, err := client.Status(t.Context(), &pb.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-(<-wires).ended:
	case <-time.After(time.Minute):
		t.Error("the relay goes on")
	}
}

// A relay ends with its input, with the daemon's connection, and with its context.
func TestRelay(t *testing.T) {
	if err := api.Relay(t.Context(), "/nonexistent", strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), "no daemon at /nonexistent") {
		t.Errorf("without a daemon: %v", err)
	}
	path := socket(t)
	serve(t, config.API{Socket: path}, busy(t), nil)
	var out bytes.Buffer
	if err := api.Relay(t.Context(), path, strings.NewReader(""), &out); err != nil || out.String() != "culvert relay 1\n" {
		t.Errorf("without input: %q, %v", out.String(), err)
	}
	out.Reset()
	open, _ := io.Pipe()
	if err := api.Relay(t.Context(), path, io.MultiReader(strings.NewReader("GET / HTTP/1.0\r\n\r\n"), open), &out); err != nil || !strings.Contains(out.String(), "404 Not Found") {
		t.Errorf("the daemon closes: %q, %v", out.String(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := api.Relay(ctx, path, open, io.Discard); err != nil {
		t.Errorf("its context ends: %v", err)
	}
}
