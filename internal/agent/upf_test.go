package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

const userPlaneFile = `
interfaces: [{name: eth0, roles: [n3, n4], peers: any}, {name: eth1, roles: [n6]}]
encapsulation: {source: "fc00::1"}
policies:
  - {name: south, segment_lists: [{segments: ["fc00:2::1"]}]}
  - {name: north, segment_lists: [{segments: ["fc00:3::1"]}]}
gtpu: {addresses: [192.0.2.2]}
upf:
  n4: [192.0.2.1]
  mss_clamp: true
  smfs: [127.92.0.0/24]
  ue_pools: [{network_instance: internet, prefixes: [10.45.0.0/24]}]
slices:
  - name: a
    snssai: {sst: 1}
    n9: N9
    rate_limit: {uplink: 1000, downlink: 2000}
`

// withN9 is the file with a way for its slice.
func withN9(n9 string) string { return strings.Replace(userPlaneFile, "N9", n9, 1) }

const (
	byGTPU   = "{transport: gtpu}"
	bySID    = `{transport: srv6, uplink: "fc00:2::2", local_sid: "fc00:1:0:9::/64"}`
	byPolicy = "{transport: srv6, mode: enhanced, uplink_policy: south}"
)

// prepareUserPlane has the daemon answer on the loopback interface, whose
// addresses no configuration may name.
func prepareUserPlane(t *testing.T, dir, n9 string, dp *fakeDataPath) *daemon {
	return prepareUPF(t, dir, withN9(n9), dp)
}

func prepareUPF(t *testing.T, dir, yaml string, dp *fakeDataPath) *daemon {
	d := prepare(t, dir, yaml, dp)
	d.open.server = func(c pfcp.Config) (*pfcp.Server, error) {
		c.Addresses = []netip.Addr{netip.MustParseAddr("127.92.0.1")}
		return pfcp.Open(c)
	}
	return d
}

// dial is an SMF of the daemon's.
func dial(t *testing.T) *smf.Client {
	t.Helper()
	c, err := smf.Dial(smf.Options{
		UPF: netip.MustParseAddrPort("127.92.0.1:8805"), Local: netip.MustParseAddrPort("127.92.0.9:8805"), NodeID: "smf.example",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func established(t *testing.T, c *smf.Client) {
	t.Helper()
	establish(t, c, 1)
}

func establish(t *testing.T, c *smf.Client, count int) {
	t.Helper()
	g, err := c.Add(smf.Spec{
		Count:    count,
		ChooseUE: "ipv4", NetworkInstance: "internet", DNN: "internet", SNSSAI: slice.SNSSAI{SST: 1}, QFI: 9,
		Access: &smf.Tunnel{Address: netip.MustParseAddr("127.92.0.20"), TEID: 0x1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(context.Context, smf.Pace) (smf.Result, error){g.Establish, g.Forward} {
		if r, err := step(t.Context(), smf.Pace{}); err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
	}
}

// uplink is how the only session's uplink packets are forwarded.
func (d *daemon) uplink(t *testing.T) datapath.Forwarding {
	t.Helper()
	for _, r := range d.dp.rules() {
		if r.Direction == datapath.Uplink {
			return r.Forward
		}
	}
	t.Fatal("there is no uplink rule")
	return datapath.Forwarding{}
}

// traceOne returns the first packet of some that a filter takes.
func traceOne(t *testing.T, d *daemon, filter TraceFilter, packets ...event.TraceEvent) (first TraceEvent) {
	t.Helper()
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- d.Trace(t.Context(), filter, func(e TraceEvent) error { first = e; return enough })
	}()
	for _, p := range packets {
		d.dp.traced <- p
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return first
}

// An SMF sets a session up, its slice moves from one transport to the next, and
// the daemon is started anew: the session goes along.
func TestUserPlane(t *testing.T) {
	dp, dir := newFake(), t.TempDir()
	d := prepareUserPlane(t, dir, byGTPU, dp).start(t, links("eth0", "eth1"))
	if !slices.Equal(dp.settings.UEPools, []netip.Prefix{prefix("10.45.0.0/24")}) || !slices.Contains(dp.settings.Protected, prefix("192.0.2.1/32")) ||
		!dp.settings.MSSClamp || dp.settings.RateBurst != 190*time.Millisecond {
		t.Errorf("settings: %+v", dp.settings)
	}
	c := dial(t)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	established(t, c)
	if f := d.uplink(t); f.Kind != datapath.ForwardTable || f.Slice != 1 {
		t.Errorf("as the SMF says: %+v", f)
	}
	if dp.slices[1] != [2]uint64{1000, 2000} {
		t.Errorf("rates: %v", dp.slices)
	}

	apply := func(n9 string) {
		t.Helper()
		if _, err := d.Apply(t.Context(), parse(t, withN9(n9)), false); err != nil {
			t.Fatal(err)
		}
	}
	apply(bySID)
	if f := d.uplink(t); f.Kind != datapath.ForwardSRv6 || f.Remote != netip.MustParseAddr("fc00:2::2") || !dp.sessionSIDs[prefix("fc00:1:0:9::/64")] {
		t.Errorf("by SRv6: %+v, SIDs %v", f, dp.sessionSIDs)
	}
	dp.log()
	apply(byPolicy)
	if f := d.uplink(t); f.Kind != datapath.ForwardPolicy || f.Flow.Policy != "south" || len(dp.sessionSIDs) != 0 {
		t.Errorf("by a policy: %+v, SIDs %v", f, dp.sessionSIDs)
	}
	if changes, err := d.Apply(t.Context(), parse(t, withN9(byGTPU)), true); err != nil || len(changes) != 1 || changes[0].Kind != desired.KindSlice {
		t.Errorf("dry run: %v, %v", changes, err)
	}

	list, total, err := d.Sessions(SessionFilter{Slice: "a", UE: netip.MustParseAddr("10.45.0.1")})
	if err != nil || total != 1 || list[0].DNN != "internet" || list[0].Association != "smf.example" {
		t.Fatalf("sessions: %+v, %d, %v", list, total, err)
	}
	whole, _, err := d.Sessions(SessionFilter{SEID: &list[0].SEID})
	if err != nil || len(whole[0].PDRs) == 0 || len(whole[0].Rules) == 0 {
		t.Errorf("one session: %+v, %v", whole, err)
	}
	if a, err := d.Associations(); err != nil || len(a) != 1 || a[0].Node != "smf.example" || !a[0].Up || a[0].Sessions != 1 {
		t.Errorf("associations: %+v, %v", a, err)
	}
	if s, err := d.Slices(); err != nil || len(s) != 1 || s[0].Sessions != 1 || s[0].Uplink.Packets != 1 {
		t.Errorf("slices: %+v, %v", s, err)
	}
	ofUE := traceOne(t, d, TraceFilter{UE: netip.MustParseAddr("10.45.0.1")},
		event.TraceEvent{Session: list[0].SEID + 1, In: ipFrame("10.45.0.9", "192.0.2.9")}, event.TraceEvent{Session: list[0].SEID, In: ipFrame("192.0.2.9", "198.51.100.1")})
	if ofUE.Session != list[0].SEID {
		t.Errorf("the trace of a UE: %+v", ofUE)
	}
	status, err := d.Status()
	if err != nil || status.UPF == nil || status.UPF.Sessions != 1 || status.UPF.Pools[0].Used != 1 {
		t.Errorf("status: %+v, %v", status.UPF, err)
	}
	stats := d.core.upf.upf.Stats()
	stats.BufferOverflow.Store(2)
	stats.BufferOverflowBytes.Store(84)
	metrics := scraped(t, d.Agent)
	for _, line := range []string{
		fmt.Sprintf(`culvert_drops_total{reason="buffer_full"} %d`, 2+reason.BufferFull), // beside what the data path drops `culvert_drops_total{reason="n4_rate_limited"} 0`, `culvert_pfcp_events_total{event="rate_limited"} 0`,
		"culvert_sessions 1", `culvert_associations{state="up"} 1`, `culvert_slice_sessions{slice="a"} 1`,
		`culvert_pfcp_responses_total{cause="1",message="session establishment response"} 1`, `culvert_ue_pool_used{prefix="10.45.0.0/24"} 1`,
		"culvert_journal_failing 0",
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}

	if err := d.core.upf.upf.Close(); err != nil { // its journal
		t.Fatal(err)
	}
	status, err = d.Status()
	if err != nil || status.UPF.Journal == "" || !strings.Contains(scraped(t, d.Agent), "culvert_journal_failing 1\n") {
		t.Errorf("a closed journal: %+v, %v", status.UPF, err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dp.sessions = nil // as if the pins had gone
	d = prepareUserPlane(t, dir, byPolicy, dp).start(t, links("eth0", "eth1"))
	if f := d.uplink(t); f.Flow.Policy != "south" {
		t.Errorf("after a restart: %+v", f)
	}
	before := c.Groups()[0]
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := before.Delete(ctx, smf.Pace{}); err != nil || r.Err() != nil || r.Requests != 1 {
		t.Errorf("the SMF deletes its session: %v, %v", err, r.Err())
	}
	if n := len(dp.rules()); n != 0 {
		t.Errorf("%d rules are left", n)
	}
}

// Who is listened to changes while sessions are up; what SMFs know the node by does
// not.
func TestUserPlaneChanges(t *testing.T) {
	dp := newFake()
	d := prepareUserPlane(t, t.TempDir(), byGTPU, dp).start(t, links("eth0", "eth1"))
	c := dial(t)
	associates := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := c.Associate(ctx)
		return err == nil
	}
	if !associates() {
		t.Fatal("the SMF is not listened to")
	}
	apply := func(from, to string) error {
		_, err := d.Apply(t.Context(), parse(t, strings.Replace(withN9(byGTPU), from, to, 1)), false)
		return err
	}
	if err := apply("smfs: [127.92.0.0/24]", "smfs: [127.92.1.0/24]"); err != nil || associates() {
		t.Errorf("another SMF is listened to: %v", err)
	}
	if err := apply("mss_clamp: true", "mss_clamp: false\n  rate_burst: 40"); err != nil || !associates() || dp.settings.MSSClamp || dp.settings.RateBurst != 40*time.Millisecond {
		t.Errorf("back again, without MSS clamp, with a burst of 40 ms: %v, %+v", err, dp.settings)
	}
	for _, c := range [][2]string{{"n4: [192.0.2.1]", "n4: [192.0.2.9]"}, {"mss_clamp: true", "node_id: upf9.example"}} {
		err := apply(c[0], c[1])
		field := "upf." + c[1][:strings.IndexByte(c[1], ':')]
		if !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "restart") {
			t.Errorf("%s: %v, want an error that names %s and a restart", c[1], err, field)
		}
	}
	if !associates() {
		t.Error("what was refused changed something")
	}
}

// TestRefusedPools: what pools cannot become while the daemon runs, a dry run and an apply refuse with the
// field and the fix, and change nothing.
func TestRefusedPools(t *testing.T) {
	dp := newFake()
	d := prepareUserPlane(t, t.TempDir(), byGTPU, dp).start(t, links("eth0", "eth1"))
	dp.held = netip.MustParsePrefix("10.45.0.0/24")
	before := dp.content()
	for pools, want := range map[string]string{
		"prefixes: [10.46.0.0/24]":                                    "upf.ue_pools: pool 10.45.0.0/24: sessions have addresses of it (fix: keep the pool, or release them first)",
		"prefixes: [10.45.0.0/24], nat: {addresses: 203.0.113.16/28}": "upf.ue_pools[0].nat: the daemon started with room for 0 public addresses (limits.nat_addresses), and the pools need 16 (fix: restart it with this configuration)",
	} {
		next := parse(t, strings.Replace(withN9(byGTPU), "prefixes: [10.45.0.0/24]", pools, 1))
		for _, dryRun := range []bool{true, false} {
			_, err := d.Apply(t.Context(), next, dryRun)
			list, _ := errors.AsType[config.Errors](err)
			if len(list) != 1 || list.Error() != want {
				t.Errorf("%s, dry run %t: %v\nwant %s", pools, dryRun, err, want)
			}
		}
	}
	if dp.content() != before {
		t.Error("what was refused changed something")
	}
}

// The log says that everybody may send: at the start, and after a change to that.
func TestWarnsOfAnySMF(t *testing.T) {
	closed := withN9(byGTPU)
	open := strings.Replace(closed, "[127.92.0.0/24]", "any", 1)
	for _, tt := range []struct {
		start, apply string
		want         int
	}{{closed, closed, 0}, {closed, open, 1}, {open, open, 1}} {
		d := prepareUserPlane(t, t.TempDir(), byGTPU, newFake())
		var out bytes.Buffer
		d.log = slog.New(slog.NewTextHandler(&out, nil))
		if err := os.WriteFile(filepath.Join(d.dir, "culvert.yaml"), []byte(tt.start), 0o600); err != nil {
			t.Fatal(err)
		}
		d.start(t, links("eth0", "eth1"))
		if _, err := d.Apply(t.Context(), parse(t, tt.apply), false); err != nil {
			t.Fatal(err)
		}
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "upf.smfs allows every sender"); n != tt.want {
			t.Errorf("%d warnings, want %d:\n%s", n, tt.want, &out)
		}
	}
}

// Whether a node is a user plane function is decided at its start.
func TestUserPlaneAtStart(t *testing.T) {
	d := start(t)
	if _, err := d.Apply(t.Context(), parse(t, withN9(byGTPU)), false); !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("became one: %v", err)
	}
	if _, _, err := d.Sessions(SessionFilter{}); !errors.Is(err, ErrNotUPF) {
		t.Errorf("sessions: %v", err)
	}
	if _, err := d.Associations(); !errors.Is(err, ErrNotUPF) {
		t.Errorf("associations: %v", err)
	}
}

// A start with room for fewer sessions than there are is refused before anything is touched.
func TestFewerSessionsThanThereAre(t *testing.T) {
	dp, dir := newFake(), t.TempDir()
	withLimit := func(n int) *daemon {
		return prepareUPF(t, dir, strings.Replace(withN9(byGTPU), "10.45.0.0/24", "10.45.0.0/29", 1)+fmt.Sprintf("limits: {sessions: %d}\n", n), dp)
	}
	d := withLimit(64).start(t, links("eth0", "eth1"))
	c := dial(t)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	establish(t, c, 5)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dp.log()
	err := withLimit(4).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "limits.sessions is 4, and there are 5 sessions: set it to at least 5") {
		t.Errorf("with too few: %v", err)
	}
	if calls := dp.log(); !slices.Equal(calls, []string{"close"}) {
		t.Errorf("the data path was touched: %q", calls)
	}
	d = withLimit(5).start(t, links("eth0", "eth1"))
	if list, total, err := d.Sessions(SessionFilter{}); err != nil || total != 5 {
		t.Errorf("%d sessions, %v: %v", total, err, list)
	}
}

// SMFs wait for the journal and for the data path: not for one after the other.
func TestSessionsAreReadMeanwhile(t *testing.T) {
	dp := newFake()
	d := prepareUserPlane(t, t.TempDir(), byGTPU, dp)
	d.open.dataPath = func(dataplane.Options, *bbolt.DB) (*dataPath, error) {
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(filepath.Join(d.dir, "state.db.sessions")); err == nil {
				return dp.joined(), nil
			}
		}
		return nil, errors.New("nobody read the journal")
	}
	d.start(t, links("eth0", "eth1"))
}

// The packets of a session's rules take the policies of their classes. The session names them,
// and the candidate path that they have.
func TestPoliciesOfASession(t *testing.T) {
	dp, dir := newFake(), t.TempDir()
	const n9 = "{transport: srv6, mode: enhanced, uplink_policy: south, downlink_policy: north}"
	file := strings.NewReplacer(`{name: north, `, `{name: north, color: 100, endpoint: "fc00:3::9", `,
		`{name: south, `, `{name: south, color: 10, endpoint: "fc00:3::9", `, `"fc00:2::1"`, `"fc00:2::1", "fc00:3::1"`).Replace(withN9(n9)) +
		"traffic_classes: [{name: voice, color: 100, match: {slices: [SLICE], qfis: [QFI]}}]\n"
	file = strings.Replace(file, "SLICE", "a", 1)
	d := prepareUPF(t, dir, strings.Replace(file, "QFI", "9", 1), dp).start(t, towards("fc00:2::/32", "fc00:3::/32", "fc00:4::/32"))
	c := dial(t)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	established(t, c)
	session := func() SessionStatus {
		t.Helper()
		list, _, err := d.Sessions(SessionFilter{UE: netip.MustParseAddr("10.45.0.1")})
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		one, _, err := d.Sessions(SessionFilter{SEID: &list[0].SEID})
		if err != nil || len(one[0].PDRs) != 2 {
			t.Fatalf("%+v, %v", one, err)
		}
		return one[0]
	}
	check := func(what, up string, path srpolicy.Verdict) {
		t.Helper()
		for _, pdr := range session().PDRs {
			want, p := "north", pdr.Policy
			if strings.HasPrefix(pdr.Words, "uplink") {
				want = up
			}
			if p == nil || p.Name != want {
				t.Fatalf("%s: PDR %d takes %+v, want %s", what, pdr.PDR, p, want)
			}
			if want != "north" {
				continue
			}
			p.Verdict.Why = ""
			if p.Color != 100 || p.Endpoint != netip.MustParseAddr("fc00:3::9") || p.Verdict != path {
				t.Errorf("%s: %+v", what, p)
			}
		}
	}
	own := srpolicy.Verdict{Preference: srpolicy.DefaultPreference, Valid: true, Active: true}
	check("by QFI", "north", own)
	apply := func(text string) {
		t.Helper()
		if _, err := d.Apply(t.Context(), parse(t, text), false); err != nil {
			t.Fatal(err)
		}
	}
	apply(strings.Replace(file, "QFI", "8", 1))
	check("another flow", "south", own)
	apply(strings.Replace(file, "QFI", "9", 1) + `candidate_paths: [{name: spare, policy: north, preference: 200, segment_lists: [{segments: ["fc00:4::1", "fc00:3::1"]}]}]`)
	check("another path", "north", srpolicy.Verdict{Path: "spare", Preference: 200, Valid: true, Active: true})
	// A path by BGP touches its policy only, and leaves slices and classes as they are.
	q := observed.NewQueue()
	h, err := observed.NewBGP(observed.Config{}, &observed.State{}, q, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h.Put(bgp.Path{Advertised: srpolicy.Advertised{Color: 100, Endpoint: netip.MustParseAddr("fc00:3::9"), Preference: 300, SegmentLists: []srpolicy.SegmentList{
		{Weight: 1, Segments: []netip.Addr{netip.MustParseAddr("fc00:4::1"), netip.MustParseAddr("fc00:3::1")}}}}, Source: bgp.Source{ASN: 65001, Node: netip.MustParseAddr("10.0.0.1")}})
	if _, err := d.core.observeAll(q.Take()); err != nil {
		t.Fatal(err)
	}
	for _, pdr := range session().PDRs {
		if p := pdr.Policy; p.Name != "north" || p.Class != "voice" || p.Verdict.Preference != 300 {
			t.Errorf("a path by BGP: %s takes %+v", pdr.Words, p)
		}
	}
	// Without a valid path the slice's policy is taken, or none.
	policies := func() (up, down *PDRPolicy) {
		for _, pdr := range session().PDRs {
			if strings.HasPrefix(pdr.Words, "uplink") {
				up = pdr.Policy
			} else {
				down = pdr.Policy
			}
		}
		return up, down
	}
	d.watcher.options.OnChange(towards("fc00:2::/32"))
	d.says(t, "its last path is gone", func() bool {
		up, down := policies()
		return up.Name == "south" && up.Class == "voice" && up.Verdict.Valid &&
			down.Name == "north" && !down.Verdict.Valid && strings.Contains(down.Verdict.Why, "no route")
	})
	apply(strings.NewReplacer("QFI", "9", "color: 100, match", "color: 100, strict: true, match").Replace(file))
	if up, _ := policies(); up.Name != "" || up.Class != "voice" {
		t.Errorf("strict: %+v", up)
	}
	list, err := d.Classes()
	if want := "no valid policy of color 100 leads to 1 of its endpoints: there its packets are dropped"; err != nil || len(list) != 1 || list[0].Problem != want {
		t.Errorf("classes: %+v, %v", list, err)
	}
	if way := dp.sessionWays[class.SessionFlow{Slice: "a", Policy: "south", QFI: 9}]; way != (class.Way{Class: "voice"}) {
		t.Errorf("the data path has %+v", dp.sessionWays)
	}
	apply(withN9(byGTPU))
	if one := session(); one.PDRs[0].Policy != nil || one.PDRs[1].Policy != nil {
		t.Errorf("by GTP-U: %+v", one.PDRs)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
}
