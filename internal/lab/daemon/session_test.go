package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
)

// TestSessionTunnel asks a program that shows sessions as culvert does.
func TestSessionTunnel(t *testing.T) {
	dir := t.TempDir()
	in := &instance.Instance{Topology: parse(t, fixture("core")), Name: "l", Culvert: filepath.Join(dir, "culvert")}
	script := `#!/bin/sh
case "$*" in
"session --ue 10.60.0.1 "*) echo '[{"seid": "18446744073709551615"}]';;
"session show 18446744073709551615 "*) cat "` + dir + `/rules";;
"session --ue 10.60.0.2 "*) echo '[]';;
*) echo "no $*" >&2; exit 1;;
esac
`
	if err := os.WriteFile(in.Culvert, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	rules := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "rules"), []byte(`{"seid": "1", "rules": {"pdrs": [`+text+`], "fars": [{"forwarding": {"destination": 1}}, {"forwarding": {"outer": {"addr": "10.0.0.1", "teid": 1}}}]}}`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	upf, ue, gnb := in.Node("upf"), netip.MustParseAddr("10.60.0.1"), &in.Node("gnb").GTPU[0]
	const core, access = `{"pdi": {"source": 1, "teid": 9, "teid4": "10.0.0.9"}}`, `{"pdi": {"source": 0, "teid": 7, "teid4": "10.0.0.2"}}`
	rules(core + "," + access)
	at, teid, err := SessionTunnel(t.Context(), in, upf, ue, gnb)
	if err != nil || teid != 7 || at != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("%v, %d, %v", at, teid, err)
	}
	for _, other := range []gtpulink.Link{{Local: gnb.Local, TEID: 2}, {Local: ue, TEID: 1}} {
		_, _, err = SessionTunnel(t.Context(), in, upf, ue, &other)
		wantError(t, err, "10.60.0.1", "no FAR", other.Local.String())
	}
	rules(core)
	_, _, err = SessionTunnel(t.Context(), in, upf, ue, gnb)
	wantError(t, err, "10.60.0.1", "no PDR")
	_, _, err = SessionTunnel(t.Context(), in, upf, netip.MustParseAddr("10.60.0.2"), gnb)
	wantError(t, err, "0 sessions of 10.60.0.2")
	_, _, err = SessionTunnel(t.Context(), in, upf, netip.MustParseAddr("10.60.0.3"), gnb)
	wantError(t, err, "no session")
}
