package golden_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/golden"
)

const file = `# A comment that stays.
config:
  interfaces: [{name: n3, roles: [any]}]
network:
  ports: [{name: n3, ifindex: 10}]
rows:
  - name: good
    in: # so does this one
      - ethernet: {}
      - ipv4: {src: 10.0.0.1, dst: 10.0.0.2}
  - name: bad
    of: good
    with: {ipv4: {ttl: 1}}
    after: 300ms
    append: "ffff"
    patch: [{at: 0, data: "0a0b"}]
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "end.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRowsChangeRows(t *testing.T) {
	f, err := golden.Load(write(t, file))
	if err != nil {
		t.Fatal(err)
	}
	good, ifindex := f.Rows[0].Input()
	bad, _ := f.Rows[1].Input()
	if ifindex != 10 || len(good) != 34 || good[22] != 64 {
		t.Errorf("interface %d, frame %x", ifindex, good)
	}
	if f.Rows[0].Wait() != 0 || f.Rows[1].Wait() != 300*time.Millisecond {
		t.Errorf("waits %v and %v", f.Rows[0].Wait(), f.Rows[1].Wait())
	}
	if len(bad) != 36 || bad[22] != 1 || bad[0] != 0x0a || bad[1] != 0x0b || bad[35] != 0xff {
		t.Errorf("changed frame %x", bad)
	}
}

func TestUpdateKeepsTheRest(t *testing.T) {
	path := write(t, file)
	wants := []golden.Want{
		{Verdict: "passed", Counters: map[string]model.Counter{"outcome passed": {Packets: 1, Bytes: 34}}},
		{Verdict: "dropped", Reason: "hop_limit", Punt: &golden.Punt{Kind: model.PuntICMP, Type: 3, L3: 14, Data: packet.Hex{2, 0}}, Out: make([]byte, 40),
			Copies: []golden.Punt{{Kind: model.PuntDuplicate, Session: 1, Rule: 2, L3: 50}},
			Events: []model.Event{{Session: 1, Rule: 2, Kind: model.EventNotify}}},
	}
	if err := golden.Update(path, wants); err != nil {
		t.Fatal(err)
	}
	f, err := golden.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := f.Rows[0].Want.Counters["outcome passed"]; c.Bytes != 34 {
		t.Errorf("counter %v", c)
	}
	if w := f.Rows[1].Want; w.Reason != "hop_limit" || !reflect.DeepEqual(w.Punt, wants[1].Punt) || len(w.Out) != 40 ||
		!reflect.DeepEqual(w.Copies, wants[1].Copies) || !slices.Equal(w.Events, wants[1].Events) {
		t.Errorf("want %+v", w)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, comment := range []string{"# A comment that stays.", "# so does this one"} {
		if !strings.Contains(string(text), comment) {
			t.Errorf("%q is gone", comment)
		}
	}
	if err := golden.Update(path, wants[:1]); err == nil {
		t.Error("one want for two rows was taken")
	}
}

func TestLoadRefuses(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"after: 300ms", "after: soon"}:                               "soon",
		{"name: bad", "name: good"}:                                   "the name is taken",
		{"of: good", "of: nothing"}:                                   "no row above",
		{"with: {ipv4: {ttl", "with: {udp: {ttl"}:                     "none of the layers",
		{"with: {ipv4: {ttl", "with: {ipv4: {hops"}:                   "hops",
		{"append:", "port: n9\n    append:"}:                          "none is named",
		{"interfaces: [{name: n3, roles: [any]}]", "interface: [n3]"}: "config",
		{"ifindex: 10", "index: 10"}:                                  "network",
	} {
		_, err := golden.Load(write(t, strings.Replace(file, change[0], change[1], 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", change[1], err, want)
		}
	}
	if _, err := golden.LoadAll(t.TempDir()); err == nil {
		t.Error("a directory without files was taken")
	}
}
