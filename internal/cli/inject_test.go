package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// listener is a headend: preferences of what it is told, by color.
type listener struct {
	mu    sync.Mutex
	paths map[uint32]bgp.Path
}

func (l *listener) Put(p bgp.Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths[p.Color] = p
}

func (l *listener) Withdraw(a srpolicy.Advertised) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.paths, a.Color)
}

func (l *listener) Complete(netip.Addr)       {}
func (*listener) Speaks(netip.Addr, []string) {}

func (l *listener) waits(t *testing.T, what string, holds func(map[uint32]bgp.Path) bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		ok := holds(l.paths)
		l.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatalf("after 30 s still not so: %s: %+v", what, l.paths)
}

const onePath = "  - {color: %d, endpoint: 'fd11::1000', headends: [%s], preference: %d, segment_lists: [{segments: ['fcff:3::1', 'fcdd::1']}]}\n"

func TestInject(t *testing.T) {
	told := &listener{paths: map[uint32]bgp.Path{}}
	headend, err := bgp.Start(t.Context(), bgp.Config{ASN: 65001, RouterID: netip.MustParseAddr("10.0.0.5"), Port: 1179, Restart: time.Minute,
		Listen: []netip.Addr{netip.MustParseAddr("127.96.0.5")}, Log: slog.New(slog.DiscardHandler),
		Peers: []bgp.Peer{{Address: netip.MustParseAddr("127.96.0.9"), ASN: 65009, Passive: true, Local: netip.MustParseAddr("127.96.0.5")}}}, told)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(headend.Stop)
	file := filepath.Join(t.TempDir(), "paths.yaml")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("paths:\n"+strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf(onePath, 100, "10.0.0.5", 200), fmt.Sprintf(onePath, 101, "10.0.0.77", 200))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan result, 1)
	go func() {
		done <- command(ctx, "", "policy", "inject", "--to", "bgp", "127.96.0.5:1179", "--asn", "65009", "--peer-asn", "65001",
			"--router-id", "10.0.0.9", "--source", "127.96.0.9", "--file", file)
	}()
	told.waits(t, "the first list is told", func(p map[uint32]bgp.Path) bool { return p[100].Preference == 200 })
	write(fmt.Sprintf(onePath, 100, "10.0.0.5", 250), fmt.Sprintf(onePath, 102, "10.0.0.5", 50))
	told.waits(t, "it follows the file", func(p map[uint32]bgp.Path) bool { return p[100].Preference == 250 && p[102].Preference == 50 })
	write(fmt.Sprintf(onePath, 100, "10.0.0.5", 300), "  - {color: 7}\n")
	time.Sleep(time.Second) // a file with an error changes nothing
	told.waits(t, "what is told stays", func(p map[uint32]bgp.Path) bool { return p[100].Preference == 250 })
	write(fmt.Sprintf(onePath, 102, "10.0.0.5", 50))
	told.waits(t, "what is taken out is withdrawn", func(p map[uint32]bgp.Path) bool { return len(p) == 1 && p[102].Preference == 50 })
	cancel()
	r := <-done
	want := `add color 100, endpoint fd11::1000, distinguisher 0, preference 200: fcff:3::1,fcdd::1
add color 101, endpoint fd11::1000, distinguisher 0, preference 200: fcff:3::1,fcdd::1
replace color 100, endpoint fd11::1000, distinguisher 0, preference 250: fcff:3::1,fcdd::1
add color 102, endpoint fd11::1000, distinguisher 0, preference 50: fcff:3::1,fcdd::1
withdraw color 101, endpoint fd11::1000, distinguisher 0
withdraw color 100, endpoint fd11::1000, distinguisher 0
`
	if r.code != cmdline.ExitOK || r.stdout != want {
		t.Errorf("exit %d:\n%s, want\n%s", r.code, r.stdout, want)
	}
	for _, part := range []string{"culvert: 127.96.0.5 listens (AS 65001, router ID 10.0.0.5)", "the routes stay as they were advertised", "line 3: paths[1].endpoint"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, r.stderr)
		}
	}
	told.waits(t, "a headend keeps what it was told", func(p map[uint32]bgp.Path) bool { return p[102].Preference == 50 })
}

// A peer that does not listen is reported once, not at each attempt to connect.
func TestInjectToNobody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paths.yaml")
	if err := os.WriteFile(file, []byte("paths:\n"+fmt.Sprintf(onePath, 100, "10.0.0.5", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	r := command(ctx, "", "policy", "inject", "--to", "bgp", "127.96.0.6:1179", "--asn", "65009", "--router-id", "10.0.0.9", "--file", file)
	const want = "culvert: 127.96.0.6 does not listen yet: is it there, and is this host among its bgp.peers, with AS 65009?\n"
	if r.code != cmdline.ExitOK || r.stderr != want {
		t.Errorf("exit %d, %q, want %q", r.code, r.stderr, want)
	}
}

func TestInjectRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paths.yaml")
	if err := os.WriteFile(file, []byte("paths:\n"+fmt.Sprintf(onePath, 1, "10.0.0.5", 1)+fmt.Sprintf(onePath, 1, "'::1'", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	bounded := filepath.Join(t.TempDir(), "bounded.yaml")
	const path = "paths: [{color: 4, endpoint: 'fd11::1', delay_bound: 15ms, segment_lists: [{segments: ['fcdd::1']}]}]"
	if err := os.WriteFile(bounded, []byte(path), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"::1 --asn 1 --file B --router-id 10.0.0.9": "line 1: paths[0].delay_bound: BGP carries no constraint of delays",
		"":                                     "takes one PEER or more",
		"::1 --asn 1 --router-id 10.0.0.9":     "--file, --asn and --router-id are missing",
		"::1 --file F --router-id 10.0.0.9":    "--file, --asn and --router-id are missing",
		"::1 --asn 1 --file F --router-id ::1": "--router-id \"::1\"",
		"nobody --asn 1 --file F --router-id 10.0.0.9":        "\"nobody\" is not a peer",
		"::1 --to mail --asn 1 --file F --router-id 10.0.0.9": "--to \"mail\": give bgp or kube",
		"--to kube":                         "--file is missing",
		"--to kube --file F --as secret":    "--as \"secret\": give configmap or srv6policy",
		"--to kube --file F --as configmap": "line 2: paths[0].color: 1 is none of a cluster's",
		"--to kube --file F node-1":         "paths[1].headends[0]: \"::1\" is no node's name",
		"::1 --asn 1 --file F --router-id 10.0.0.9 --password-file /none": "--password-file: open /none",
		"::1 --asn 1 --file /none --router-id 10.0.0.9":                   "/none",
		"::1 --asn 1 --file F --router-id 10.0.0.9":                       "line 3: paths[1].distinguisher: color, endpoint and distinguisher are those of [0]",
		"::1 --asn 1 --file F --router-id 10.0.0.9 --source x":            "--source \"x\"",
	} {
		r := command(t.Context(), "", append([]string{"policy", "inject"}, strings.Fields(strings.NewReplacer(" F ", " "+file+" ", " B ", " "+bounded+" ").Replace(args))...)...)
		if r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d, %q, want %q", args, r.code, r.stderr, want)
		}
	}
}
