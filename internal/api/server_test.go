package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apiserve"
	"github.com/culvert-net/culvert/internal/api/apitest"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/srv6"
)

func load(t *testing.T, name string) *config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join("../../examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve starts a server of an agent; it ends with the test.
func serve(t *testing.T, c config.API, a agent.Service, examine api.Examiner) *api.Server {
	t.Helper()
	return apiserve.Serve(t, c, api.NewHandler(a, examine))
}

func socket(t *testing.T) string { return filepath.Join(t.TempDir(), "run", "c.sock") }

func dial(t *testing.T, e api.Endpoint) *api.Client {
	t.Helper()
	c, err := api.NewClient(e)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start is a server on a socket, its agent, and a client.
func start(t *testing.T, example string) (*apitest.Agent, *api.Client, string) {
	t.Helper()
	a, path := apitest.New(load(t, example)), socket(t)
	serve(t, config.API{Socket: path}, a, func(_ context.Context, e api.Examination) ([]api.Finding, error) {
		return []api.Finding{{Name: "interfaces", Level: "warn", Detail: examined(e), Fix: "ip link", Command: []string{"ip", "link"}}}, nil
	})
	return a, dial(t, api.Endpoint{Socket: path}), path
}

func examined(e api.Examination) string {
	text := fmt.Sprint(e.Interfaces, e.GTPUOverIPv4)
	if m := e.Overlay; m != nil {
		text += fmt.Sprint(" ", m.Uplinks, m.Address)
		for _, n := range m.Nodes {
			text += " " + n.Name
		}
		if f := m.Faults; f != nil {
			text += fmt.Sprint(" ", f.Self, f.Refused, f.Partly, f.NoPath, f.Paths)
		}
	}
	return text
}

// What the agent says arrives as it was said.
func TestReads(t *testing.T) {
	for _, example := range []string{"gateway-a.yaml", "gtpu.yaml", "edge.yaml", "headend.yaml", "overlay.yaml"} {
		t.Run(example, func(t *testing.T) {
			a, c, _ := start(t, example)
			ctx := t.Context()
			same := func(what string) func(got, want any, errs ...error) {
				return func(got, want any, errs ...error) {
					t.Helper()
					if err := errors.Join(errs...); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
					}
				}
			}
			gotStatus, err1 := c.Status(ctx)
			wantStatus, err2 := a.Status()
			same("status")(gotStatus, wantStatus, err1, err2)
			both(t, "interfaces", c.Interfaces, a.Interfaces)
			both(t, "locators", c.Locators, a.Locators)
			both(t, "SIDs", c.SIDs, a.SIDs)
			both(t, "policies", c.Policies, a.Policies)
			both(t, "candidate paths", c.CandidatePaths, a.CandidatePaths)
			if example == "headend.yaml" {
				both(t, "BGP peers", c.BGPPeers, a.BGPPeers)
			} else if _, err := c.BGPPeers(ctx, ""); !errors.Is(err, agent.ErrNotBGP) && (err == nil || !strings.Contains(err.Error(), "speaks no BGP")) {
				t.Errorf("BGP peers of a node that speaks none: %v", err)
			}
			if example == "overlay.yaml" {
				both(t, "nodes", c.Nodes, a.Nodes)
			} else if _, err := c.Nodes(ctx, ""); !errors.Is(err, pods.ErrNoCluster) && (err == nil || !strings.Contains(err.Error(), "in no cluster")) {
				t.Errorf("nodes of a node that is in no cluster: %v", err)
			}
			both(t, "steering", c.Steerings, a.Steerings)
			both(t, "tunnels", c.Tunnels, a.Tunnels)
			both(t, "adjacencies", c.Adjacencies, a.Adjacencies)
			both(t, "outcomes", c.Outcomes, a.Outcomes)
			running, err := c.Running(ctx)
			same("running")(running, a.Running(), err)
		})
	}
}

func TestAnnouncements(t *testing.T) {
	a, c, _ := start(t, "../internal/cli/testdata/announce.yaml")
	both(t, "announcements", c.Announcements, a.Announcements)
	_, c, _ = start(t, "edge.yaml")
	if _, err := c.Announcements(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "announces no UE prefixes") {
		t.Errorf("of a node that announces none: %v", err)
	}
}

func TestNATs(t *testing.T) {
	a, c, _ := start(t, "../internal/cli/testdata/nat.yaml")
	both(t, "NATs", c.NATs, func() ([]agent.NATStatus, error) { return a.NATs("") })
	got, err := c.NATs(t.Context(), "10.45.0.2")
	if want, _ := a.NATs("10.45.0.2"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("of a UE: %+v, %v", got, err)
	}
	_, c, _ = start(t, "edge.yaml")
	if _, err := c.NATs(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no UE pool has a NAT") {
		t.Errorf("of a node that has none: %v", err)
	}
}

func both[T any](t *testing.T, what string, got func(context.Context, string) ([]T, error), want func() ([]T, error)) {
	t.Helper()
	g, err1 := got(t.Context(), "")
	w, err2 := want()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if len(g) != len(w) {
		t.Fatalf("%s: %d, want %d", what, len(g), len(w))
	}
	for i := range g {
		if !reflect.DeepEqual(g[i], w[i]) {
			t.Errorf("%s[%d]:\ngot  %+v\nwant %+v", what, i, g[i], w[i])
		}
	}
}

func TestShow(t *testing.T) {
	_, c, _ := start(t, "edge.yaml")
	ctx := t.Context()
	for _, key := range []string{"2001:db8:101:1::/64", "2001:db8:101:1::99/64"} {
		if sids, err := c.SIDs(ctx, key); err != nil || len(sids) != 1 || sids[0].Behavior != srv6.End {
			t.Errorf("%s: %v, %v", key, sids, err)
		}
	}
	if s, err := c.Steerings(ctx, "customer0.7"); err != nil || len(s) != 1 || s[0].Policy != "wire" {
		t.Errorf("steering: %v, %v", s, err)
	}
	_, err := c.Policies(ctx, "silver")
	if !errors.Is(err, desired.ErrNotFound) || !strings.Contains(err.Error(), `there is no policy "silver"`) {
		t.Errorf("unknown policy: %v", err)
	}
}

func TestChanges(t *testing.T) {
	a, c, _ := start(t, "edge.yaml")
	ctx := t.Context()
	fragment, err := config.Decode([]byte("sids: [{sid: '2001:db8:101:77::/64', behavior: End}]"))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := c.Add(ctx, fragment)
	want := []desired.Change{{Op: desired.OpAdd, Kind: desired.KindSID, Key: "2001:db8:101:77::/64"}}
	if err != nil || !reflect.DeepEqual(changes, want) {
		t.Fatalf("add: %v, %v", changes, err)
	}
	sids, err := c.SIDs(ctx, "2001:db8:101:77::/64")
	if err != nil || len(sids) != 1 || sids[0].Origin != desired.OriginAPI {
		t.Fatalf("after add: %v, %v", sids, err)
	}
	changes, err = c.Delete(ctx, []desired.Ref{{Kind: desired.KindSID, Key: "2001:db8:101:77::5/64"}})
	want[0].Op = desired.OpDelete
	if err != nil || !reflect.DeepEqual(changes, want) {
		t.Fatalf("delete: %v, %v", changes, err)
	}

	other := load(t, "edge.yaml")
	other.SIDs = other.SIDs[1:]
	before := a.Running()
	changes, err = c.Apply(ctx, other, true)
	want = []desired.Change{{Op: desired.OpDelete, Kind: desired.KindSID, Key: "2001:db8:101:1::/64"}}
	if err != nil || !reflect.DeepEqual(changes, want) || !reflect.DeepEqual(a.Running(), before) {
		t.Fatalf("dry run: %v, %v", changes, err)
	}
	if _, err = c.Apply(ctx, other, false); err != nil || len(a.Running().SIDs) != len(before.SIDs)-1 {
		t.Fatalf("apply: %v", err)
	}
}

// check asks the daemon with this socket what is wrong with a configuration.
func check(t *testing.T, path string, c *config.Config) ([]config.Error, error) {
	t.Helper()
	m := &pb.Config{}
	if err := message.Encode(c, m); err != nil {
		t.Fatal(err)
	}
	client := culvertv1connect.NewCulvertClient(&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}, "http://culvert")
	response, err := client.Check(t.Context(), &pb.CheckRequest{Config: m})
	if err != nil {
		return nil, err
	}
	return message.DecodeList[config.Error](response)
}

// What is refused says why, and changes nothing.
func TestRefused(t *testing.T) {
	a, c, path := start(t, "edge.yaml")
	ctx, before := t.Context(), a.Running()
	bad := &config.Config{SIDs: []srv6.LocalSID{{SID: netip.MustParsePrefix("2001:db8:101:77::/64"), Behavior: srv6.EndT}}}
	for name, call := range map[string]func() error{
		"add":   func() error { _, err := c.Add(ctx, bad); return err },
		"apply": func() error { _, err := c.Apply(ctx, bad, false); return err },
	} {
		list, ok := errors.AsType[config.Errors](call())
		if !ok || len(list) != 1 || !strings.HasSuffix(list[0].Field, "].table") || list[0].Fix == "" {
			t.Errorf("%s: %v", name, list)
		}
	}
	list, err := check(t, path, bad)
	if err != nil || len(list) != 1 || list[0].Field != "sids[0].table" {
		t.Errorf("check: %v, %v", list, err)
	}
	if list, err = check(t, path, load(t, "edge.yaml")); err != nil || len(list) == 0 || !strings.Contains(list[0].Problem, "customer0") {
		t.Errorf("check of interfaces: %v, %v", list, err)
	}
	for _, test := range []struct {
		ref  desired.Ref
		want error
	}{
		{desired.Ref{Kind: desired.KindPolicy, Key: "gold"}, desired.ErrConflict},
		{desired.Ref{Kind: desired.KindPolicy, Key: "none"}, desired.ErrNotFound},
		{desired.Ref{Kind: "colour", Key: "none"}, desired.ErrNotFound},
	} {
		if _, err := c.Delete(ctx, []desired.Ref{test.ref}); !errors.Is(err, test.want) {
			t.Errorf("delete %v: %v, want %v", test.ref, err, test.want)
		}
	}
	if _, err := c.Add(ctx, &config.Config{}); err == nil || !strings.Contains(err.Error(), "holds no resource") {
		t.Errorf("empty add: %v", err)
	}
	if _, err := c.Delete(ctx, nil); err == nil || !strings.Contains(err.Error(), "names no resource") {
		t.Errorf("empty delete: %v", err)
	}
	if !reflect.DeepEqual(a.Running(), before) {
		t.Error("what was refused has changed something")
	}
}

func TestErrors(t *testing.T) {
	a, c, _ := start(t, "edge.yaml")
	for _, want := range []error{pods.ErrNotReady, agent.ErrBusy, desired.ErrConflict, desired.ErrInvalid, desired.ErrNotFound} {
		a.Err = fmt.Errorf("%w: and why", want)
		if _, err := c.Status(t.Context()); !errors.Is(err, want) || !strings.Contains(err.Error(), "and why") {
			t.Errorf("status: %v, want %v", err, want)
		}
		if err := c.Trace(t.Context(), agent.TraceFilter{}, nil, nil); !errors.Is(err, want) {
			t.Errorf("trace: %v, want %v", err, want)
		}
	}
}

// JSON over HTTP is for people with curl: a misspelled field is an error.
func TestJSON(t *testing.T) {
	a, _, path := start(t, "edge.yaml")
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	contentType := "application/json"
	post := func(method, body string) (int, string) {
		t.Helper()
		r, err := client.Post("http://culvert/culvert.v1.Culvert/"+method, contentType, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
	code, text := post("ListSIDs", `{"key": "2001:db8:101:d46::/64"}`)
	if code != 200 || !strings.Contains(text, `"behavior":"End.DT46"`) {
		t.Errorf("list: %d %s", code, text)
	}
	before := a.Running()
	for i, body := range []string{
		`{"config": {"sids": [{"sid": "2001:db8:101:77::/64", "behaviour": "End"}]}}`,
		`{"config": {"sids": [{"sid": "2001:db8:101:77::/64", "behavior": "End", "table": "main"}]}}`,
		`{"config": {}, "confg": {}}`, `{"confg": {}}`, `{}`, `{}`, `[]`, `{`,
	} {
		contentType = []string{"application/json", "application/json; charset=utf-8"}[i%2]
		if code, text := post("Add", body); code != 400 || !strings.Contains(text, "invalid_argument") {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	if !reflect.DeepEqual(a.Running(), before) {
		t.Error("what was refused has changed something")
	}
	if code, text := post("Add", `{"config": {"sids": [{"sid": "2001:db8:101:77::/64", "behavior": "End"}]}}`); code != 200 {
		t.Errorf("add: %d %s", code, text)
	}
}

// gRPC needs HTTP/2, on a socket without TLS.
func TestGRPC(t *testing.T) {
	_, _, path := start(t, "edge.yaml")
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	client := culvertv1connect.NewCulvertClient(&http.Client{Transport: &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}, "http://culvert", connect.WithGRPC())
	m, err := client.Status(t.Context(), &pb.StatusRequest{})
	if err != nil || m.GetVersion() != "v1.2.3" {
		t.Errorf("%v, %v", m, err)
	}
	_, err = client.Add(t.Context(), &pb.AddRequest{Config: &pb.Config{Sids: []*pb.LocalSID{{Sid: "2001:db8::/64"}}}})
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || ce.Code() != connect.CodeInvalidArgument || len(ce.Details()) != 1 {
		t.Fatalf("%v", err)
	}
	detail, err := ce.Details()[0].Value()
	if p, ok := detail.(*pb.Problem); err != nil || !ok || !strings.HasSuffix(p.GetField(), "].behavior") || p.GetFix() == "" {
		t.Errorf("%v, %v", detail, err)
	}
}

func TestTrace(t *testing.T) {
	a, c, _ := start(t, "edge.yaml")
	sid := netip.MustParsePrefix("2001:db8:101:1::/64")
	event := func(teid uint32, sid netip.Prefix) agent.TraceEvent {
		return agent.TraceEvent{
			Time: apitest.Started, Interface: "core0", SID: sid, Target: "policy", Policy: "gold", Egress: "core1",
			SegmentList: []netip.Addr{netip.MustParseAddr("2001:db8:111:1::")}, Adjacency: "2001:db8:12::2",
			Reason: "FORWARDED", Text: "sent on", Verdict: "XDP_REDIRECT",
			InLength: 130, OutLength: 130, In: apitest.GPDU(teid), Out: apitest.GPDU(teid + 1),
		}
	}
	a.Events = []agent.TraceEvent{event(1, sid), event(10, netip.Prefix{}), event(20, netip.MustParsePrefix("2001:db8:101:2::/64"))}
	teid := func(n uint32) *uint32 { return &n }
	for _, test := range []struct {
		filter agent.TraceFilter
		want   []int
	}{
		{agent.TraceFilter{Interface: "core0", Drops: true, Source: netip.MustParsePrefix("10.0.0.0/8")}, []int{0, 1, 2}},
		{agent.TraceFilter{SID: netip.MustParsePrefix("2001:db8:101::/48")}, []int{0, 2}},
		{agent.TraceFilter{SID: netip.MustParsePrefix("2001:db8:101:1::7/128")}, []int{0}},
		{agent.TraceFilter{TEID: teid(10)}, []int{1}},
		{agent.TraceFilter{TEID: teid(11)}, []int{1}}, // sent
		{agent.TraceFilter{TEID: teid(0)}, nil},
		{agent.TraceFilter{TEID: teid(20), SID: sid}, nil},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		var got []agent.TraceEvent
		started := false
		err := c.Trace(ctx, test.filter, func() { started = true }, func(e agent.TraceEvent) error {
			if got = append(got, e); len(got) == len(test.want) {
				cancel()
			}
			return nil
		})
		cancel()
		if err != nil || !started || len(got) != len(test.want) {
			t.Fatalf("%+v: started %v, %d events, %v", test.filter, started, len(got), err)
		}
		for i, n := range test.want {
			if !reflect.DeepEqual(got[i], a.Events[n]) {
				t.Errorf("%+v:\ngot  %+v\nwant %+v", test.filter, got[i], a.Events[n])
			}
		}
		if seen := <-a.Filters; !reflect.DeepEqual(seen, test.filter) {
			t.Errorf("the agent got %+v, want %+v", seen, test.filter)
		}
	}
	errStop := errors.New("stop")
	if err := c.Trace(t.Context(), agent.TraceFilter{}, nil, func(agent.TraceEvent) error { return errStop }); !errors.Is(err, errStop) {
		t.Errorf("stopped trace: %v", err)
	}
}

func TestDoctor(t *testing.T) {
	for _, test := range []struct {
		example    string
		interfaces []string
		want       string
	}{
		{"edge.yaml", nil, "[customer0 core0 core1] false"},
		{"upf.yaml", []string{"lo"}, "[lo] true"},
		{"overlay.yaml", nil, "[] false [eth0] 2001:db8::1 node-2 node-3 [] [] [node-3: prefix 10.244.2.0/24 is already claimed by node-2] [] []"},
	} {
		_, c, _ := start(t, test.example)
		got, err := c.Doctor(t.Context(), test.interfaces)
		want := []api.Finding{{Name: "interfaces", Level: "warn", Detail: test.want, Fix: "ip link", Command: []string{"ip", "link"}}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", test.example, got, err)
		}
	}
}

func TestSocket(t *testing.T) {
	a, _, path := start(t, "edge.yaml")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the socket: %v, %v", entries, err)
	}
	if _, err := api.Listen(config.API{Socket: path}, api.NewHandler(a, nil), slog.Default()); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("second daemon: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the second daemon took the first one's socket away")
	}
}

// One that is ending is waited for.
func TestSocketOfOneThatEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	first, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	first.SetUnlinkOnClose(false)
	time.AfterFunc(200*time.Millisecond, func() { first.Close() })
	var log strings.Builder
	a := apitest.New(load(t, "edge.yaml"))
	s, err := api.Listen(config.API{Socket: path}, api.NewHandler(a, nil), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if !strings.Contains(log.String(), "waiting for it to end") {
		t.Errorf("the log says %q", log.String())
	}
}

// A daemon that was killed leaves its socket; anything else at its place is
// not ours to remove.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	a := apitest.New(load(t, "edge.yaml"))
	s, err := api.Listen(config.API{Socket: path}, api.NewHandler(a, nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close: %v", err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(config.API{Socket: path}, api.NewHandler(a, nil), slog.Default()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("the file: %q, %v", data, err)
	}
}

func TestNoDaemon(t *testing.T) {
	_, err := dial(t, api.Endpoint{Socket: filepath.Join(t.TempDir(), "none")}).Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no daemon at") {
		t.Errorf("%v", err)
	}
}
