package daemon

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// wantError fails unless err says all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error: want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// program writes an executable file.
func program(t *testing.T, mode os.FileMode, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/nrf"), 0o755); err != nil { // a folder is no program
		t.Fatal(err)
	}
	program(t, 0o644, dir, "b/nrf") // and neither is what nobody may run
	program(t, 0o755, dir, ".git/nrf")
	program(t, 0o755, dir, "1/2/3/4/deep")
	want := program(t, 0o755, dir, "core/web/bin/nrf")
	if err := os.Symlink(want, filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	for name, where := range map[string]string{"nrf": want, "linked": filepath.Join(dir, "linked"), "deep": "", "culvert-test-none": ""} {
		if got := findProgram(dir, name); got != where {
			t.Errorf("%s is at %q: want %q", name, got, where)
		}
	}
	if got := findProgram(dir, "sh"); filepath.Base(got) != "sh" {
		t.Errorf("what is installed is at %q", got)
	}
}

func TestHavePrograms(t *testing.T) {
	l, dir := parse(t, fixture("core")), t.TempDir()
	wantError(t, HavePrograms(l, ""), "lab core", "--core")
	wantError(t, HavePrograms(l, filepath.Join(dir, "none")), "--core", "no folder")
	err := HavePrograms(l, dir)
	wantError(t, err, "no culvert-test-none or culvert-test-say", "no culvert-test-say, and neither")
	if n := strings.Count(err.Error(), "no culvert-test-none"); n != 1 {
		t.Errorf("%v", err)
	}
	program(t, 0o755, dir, "bin/culvert-test-say")
	if err := HavePrograms(l, dir); err != nil {
		t.Error(err)
	}
	none := parse(t, clusterOfOne)
	wantError(t, HavePrograms(none, dir), "--core", "lab cluster")
	if err := HavePrograms(none, ""); err != nil {
		t.Error(err)
	}
}

// TestSubscribe is a web console that takes only what it knows.
func TestSubscribe(t *testing.T) {
	var got map[string]any
	status := http.StatusCreated
	console := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.URL.Path == "/api/login":
			_, _ = w.Write([]byte(`{"access_token": "secret"}`))
		case r.URL.Path == "/api/subscriber/imsi-208930000000001/20893" && r.Header.Get("Token") == "secret":
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"cause": "because"}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer console.Close()
	s := parse(t, fixture("core")).Node("x").Subscribers
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != s.Free5GC.String() {
			t.Errorf("dials %s", address)
		}
		return new(net.Dialer).DialContext(ctx, network, console.Listener.Addr().String())
	}
	if err := subscribe(t.Context(), s, dial); err != nil {
		t.Fatal(err)
	}
	wantIn(t, got, `"permanentKeyValue":"8baf473f2f8fd09487cccbd7097c6862"`, `"sessionAmbr":{"downlink":"10 Mbps","uplink":"20 Mbps"}`,
		`"staticIpAddress":[{"ipv4Addr":"10.60.100.1"}]`, `"01010203":{"dnnInfos":[{"dnn":"internet"}]}`, `"mbrDL":"4 Mbps"`, `"chargingMethod":"Online"`,
		`"filter":"198.51.100.1/32"`)
	for _, status = range []int{http.StatusConflict, http.StatusInternalServerError} {
		wantError(t, subscribe(t.Context(), s, dial), "subscribers", "imsi-208930000000001", "because")
	}
	// Without a flow, a charge and an address of its own there is nothing of them.
	s.List[0].Sessions = []topology.Subscription{{SST: 1, SD: "ABCDEF", DNN: "x", Uplink: "1 Mbps", Downlink: "1 Mbps"}}
	status = http.StatusCreated
	if err := subscribe(t.Context(), s, dial); err != nil {
		t.Fatal(err)
	}
	wantIn(t, got, `"01abcdef":{"dnnInfos"`, `"ChargingDatas":null`, `"FlowRules":null`)
	if text, _ := json.Marshal(got); strings.Contains(string(text), "staticIpAddress") {
		t.Errorf("%s", text)
	}
}

// wantIn fails unless an object has all of the texts in its JSON.
func wantIn(t *testing.T, got map[string]any, texts ...string) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(texts, func(x string) bool { return !strings.Contains(string(text), x) }); i >= 0 {
		t.Errorf("no %s in %s", texts[i], text)
	}
}
