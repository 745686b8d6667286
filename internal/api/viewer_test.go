package api_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/config"
)

var viewer = strings.Repeat("v", 32)

// page serves a busy agent's page and API with both tokens, and returns its address.
func page(t *testing.T, a agent.Service) string {
	t.Helper()
	c := config.API{Listen: "127.0.0.1:0", Page: true, TokenFile: write(t, "token", token, 0o600), ViewerTokenFile: write(t, "viewer", viewer, 0o600)}
	return "http://" + serve(t, c, a, func(context.Context, api.Examination) ([]api.Finding, error) { return nil, nil }).Addresses()[0].String()
}

func busy(t *testing.T) *apitest.Busy {
	t.Helper()
	a := apitest.New(load(t, "upf.yaml"))
	a.Events = []agent.TraceEvent{{Time: time.Now(), Interface: "n3", Reason: "HOP_LIMIT", Drop: true, Text: "too many hops", InLength: 118, In: apitest.GPDU(0x1000001), Session: 1, Adjacency: "10.45.0.1"}}
	return apitest.NewBusy(a, 3)
}

type bearerOf struct{ token string }

func (b bearerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// A viewer may call what is listed, and nothing else: what is new is refused until somebody
// decides what a viewer must not see of it.
func TestViewerMay(t *testing.T) {
	address := page(t, busy(t))
	may := []string{"Status", "ListInterfaces", "ListPolicies", "ListClasses", "ListCandidatePaths", "ListOutcomes", "ListSlices", "ListBGPPeers",
		"ListNodes", "ListAssociations", "ListSessions", "ListPods", "Doctor", "Watch", "Flows"}
	methods := pb.File_culvert_v1_culvert_proto.Services().ByName("Culvert").Methods()
	refused := 0
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/culvert.v1.Culvert/"+name, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+viewer)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if got := answer.StatusCode != http.StatusForbidden; got != slices.Contains(may, name) {
			t.Errorf("%s: %s", name, answer.Status)
		}
		if answer.StatusCode == http.StatusForbidden {
			refused++
		}
	}
	if refused != methods.Len()-len(may) {
		t.Errorf("%d of %d methods are refused", refused, methods.Len())
	}
}

// A viewer that tries to change something changes nothing.
func TestViewerChangesNothing(t *testing.T) {
	a := busy(t)
	address := strings.TrimPrefix(page(t, a), "http://")
	c := dial(t, api.Endpoint{Address: address, TokenFile: write(t, "v", viewer, 0o600)})
	before := a.Running()
	for what, call := range map[string]func() error{
		"apply":  func() error { _, err := c.Apply(t.Context(), &config.Config{}, false); return err },
		"add":    func() error { _, err := c.Add(t.Context(), load(t, "edge.yaml")); return err },
		"delete": func() error { _, err := c.Delete(t.Context(), []desired.Ref{{Kind: "slice", Key: "a"}}); return err },
		"explain": func() error {
			_, err := c.Explain(t.Context(), "n3", [][]byte{apitest.GPDU(1)})
			return err
		},
		"trace": func() error {
			return c.Trace(t.Context(), agent.TraceFilter{}, nil, func(agent.TraceEvent) error { return nil })
		},
		"the configuration": func() error { _, err := c.Running(t.Context()); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("a viewer may do this: %s", what)
		}
	}
	if len(a.Running().Slices) != len(before.Slices) {
		t.Error("something has changed")
	}
}

// secrets are texts that say whose session or packet it is.
var secrets = []string{"10.45.0.", "16777217", "0x1000001", "2001:db8:f::", `"cpSeid"`, "198.51.100.9"}

// told checks what a message says to an operator and to a viewer.
func told(t *testing.T, what string, operator, viewer proto.Message) {
	t.Helper()
	text := func(m proto.Message) string { return protojson.Format(m) }
	if !slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(text(operator), s) }) {
		t.Errorf("%s: an operator sees no identity, so the test looks at nothing: %s", what, text(operator))
	}
	for _, s := range secrets {
		if strings.Contains(text(viewer), s) {
			t.Errorf("%s: a viewer sees %s: %s", what, s, text(viewer))
		}
	}
}

// Identities of UEs are masked by the server.
func TestViewerSeesNoIdentity(t *testing.T) {
	a := busy(t)
	go func() {
		for {
			select {
			case <-a.Filters:
			case <-t.Context().Done():
				return
			}
		}
	}()
	address := page(t, a)
	client := func(token string) culvertv1connect.CulvertClient {
		return culvertv1connect.NewCulvertClient(&http.Client{Transport: bearerOf{token}}, address)
	}
	seid := uint64(1)
	for what, request := range map[string]*pb.ListSessionsRequest{"sessions": {}, "a session": {Seid: &seid}} {
		o, err := client(token).ListSessions(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		v, err := client(viewer).ListSessions(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if len(v.GetSessions()) != len(o.GetSessions()) {
			t.Errorf("%s: a viewer sees %d of %d", what, len(v.GetSessions()), len(o.GetSessions()))
		}
		told(t, what, o, v)
	}
	for _, request := range []*pb.ListSessionsRequest{{Ue: "10.45.0.1"}, {Teid: 0x1000001}} {
		if _, err := client(viewer).ListSessions(t.Context(), request); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("a viewer finds by %v: %v", request, err)
		}
	}
	for what, request := range map[string]*pb.WatchRequest{"a session is watched": {View: "sessions", Seids: []uint64{1}}, "drops are watched": {View: "drops"}} {
		has := func(m *pb.WatchResponse) bool { return len(m.GetSessions()) > 0 || len(m.GetDrops().GetExamples()) > 0 }
		told(t, what, watched(t, client(token), request, has), watched(t, client(viewer), request, has))
	}
}

// watched is the first message of a view that has something.
func watched(t *testing.T, c culvertv1connect.CulvertClient, r *pb.WatchRequest, has func(*pb.WatchResponse) bool) *pb.WatchResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := c.Watch(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if m := stream.Msg(); has(m) {
			return m
		}
	}
	t.Fatalf("%v: %v", r, stream.Err())
	return nil
}

// A page of somebody else uses neither the page nor the API, even with the right token.
func TestForeignPage(t *testing.T) {
	address := page(t, busy(t))
	for name, row := range map[string]struct {
		path, host string
		headers    map[string]string
		want       int
	}{
		"ours":                        {"/culvert.v1.Culvert/Status", "", map[string]string{"Origin": address}, http.StatusOK},
		"ours, as a browser says":     {"/culvert.v1.Culvert/Status", "", map[string]string{"Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		"not a browser":               {"/culvert.v1.Culvert/Status", "", nil, http.StatusOK},
		"by the name localhost":       {"/culvert.v1.Culvert/Status", "localhost:1", nil, http.StatusOK},
		"another origin":              {"/culvert.v1.Culvert/Status", "", map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		"another port":                {"/culvert.v1.Culvert/Status", "", map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		"an opaque origin":            {"/culvert.v1.Culvert/Status", "", map[string]string{"Origin": "null"}, http.StatusForbidden},
		"cross-site":                  {"/culvert.v1.Culvert/Status", "", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"a name that leads here":      {"/culvert.v1.Culvert/Status", "evil.example:80", nil, http.StatusForbidden},
		"the page, by such a name":    {"/", "evil.example", nil, http.StatusForbidden},
		"such a name, own origin":     {"/culvert.v1.Culvert/Status", "evil.example", map[string]string{"Origin": "http://evil.example"}, http.StatusForbidden},
		"a name like loopback":        {"/culvert.v1.Culvert/Status", "127.0.0.1.evil.example", nil, http.StatusForbidden},
		"pods, which is the socket's": {"/culvert.v1.Pods/AddPod", "", nil, http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+row.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		if row.host != "" {
			request.Host = row.host
		}
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
		if answer.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other origins may read the answer", name)
		}
	}
}

// The files need no token; without api.page nothing is served.
func TestPageIsOff(t *testing.T) {
	get := func(address string) *http.Response {
		answer, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	on := get(page(t, busy(t)) + "/")
	csp := on.Header.Get("Content-Security-Policy")
	if on.StatusCode != http.StatusOK || !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("%s, policy %q", on.Status, csp)
	}
	s := serve(t, config.API{Listen: "127.0.0.1:0"}, busy(t), nil)
	if off := get("http://" + s.Addresses()[0].String() + "/"); off.StatusCode != http.StatusNotFound {
		t.Errorf("without api.page: %s", off.Status)
	}
}

// With TLS, the names of the certificate are ours.
func TestHostsOfCertificate(t *testing.T) {
	cert, key := certificate(t)
	s := serve(t, config.API{Listen: "127.0.0.1:0", Page: true, TLSCert: cert, TLSKey: key, TokenFile: write(t, "token", token, 0o600)}, busy(t), nil)
	for host, want := range map[string]int{"127.0.0.1": http.StatusOK, "agents.culvert": http.StatusOK, "agents.culvert:8443": http.StatusOK, "evil.example": http.StatusForbidden} {
		request, err := http.NewRequest(http.MethodGet, "https://"+s.Addresses()[0].String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		if got := status(t, cert, request); got != want {
			t.Errorf("%s: %d, want %d", host, got, want)
		}
	}
}
