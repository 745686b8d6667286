package gnb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/probe"
	"github.com/culvert-net/culvert/internal/smf"
)

var (
	gnbN3  = netip.MustParseAddr("10.1.0.1")
	upfN3  = netip.MustParseAddr("10.1.0.254")
	target = netip.MustParseAddr("198.51.100.1")
)

// world is a UPF that is none of ours: the responder of package smf has its N4, a GTP-U
// endpoint its N3, and the kernel behind that is the data network.
type world struct {
	gnb, upf namespace.Named
	name     string // of UEs
	n4       netip.AddrPort
	endpoint *gtpulink.Endpoint
}

func newWorld(t *testing.T) *world {
	t.Helper()
	id := fmt.Sprintf("g%d", os.Getpid())
	w := &world{gnb: namespace.Named{Name: id + "-gnb"}, upf: namespace.Named{Name: id + "-upf"}, name: id + "-"}
	for _, n := range []namespace.Named{w.gnb, w.upf} {
		if err := n.Create("a test"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Delete("a test"); err != nil {
				t.Error(err)
			}
		})
	}
	must(t, namespace.IPBatch([]string{"link add name n3 netns " + w.gnb.Name + " type veth peer name n3 netns " + w.upf.Name}))
	must(t, w.gnb.Batch([]string{"address add 10.1.0.1/24 dev n3", "link set n3 up"}))
	must(t, w.upf.Batch([]string{"address add 10.1.0.254/24 dev n3", "link set n3 up"}))
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs N4 and N3 of the UPF until the test ends.
func (w *world) serve(t *testing.T) {
	t.Helper()
	var r *smf.Responder
	must(t, w.upf.Do(func() (err error) {
		if r, err = smf.ListenResponder(netip.AddrPortFrom(upfN3, smf.Port)); err != nil {
			return err
		}
		// TEIDs of the responder count up from 1.
		w.endpoint, err = gtpulink.Open([]gtpulink.Link{{Device: "dn", Local: upfN3, Remote: gnbN3, TEID: 1, RemoteTEID: 1, Container: gtpulink.Downlink, QFI: 9}})
		return err
	}))
	w.endpoint.Refuse = true
	w.n4 = netip.AddrPortFrom(upfN3, smf.Port)
	must(t, w.upf.Batch([]string{"link set dn up", "address add 198.51.100.1/32 dev dn", "route add 10.45.0.0/24 dev dn"}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- r.Serve(ctx) }()
	go func() { ended <- w.endpoint.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
	})
}

// options make a session at the UPF.
func (w *world) options() Options {
	return Options{
		SMF: &smf.Options{UPF: w.n4, Timeout: 100 * time.Millisecond}, N4Namespace: w.gnb.Name, Namespace: w.gnb.Name, N3: gnbN3, Name: w.name, Usage: true,
		Spec: smf.Spec{UE4: netip.MustParsePrefix("10.45.0.2/32"), QFI: 9},
	}
}

// given is a session that somebody else made.
func (w *world) given(teid uint32) Options {
	return Options{
		Namespace: w.gnb.Name, N3: gnbN3, Name: w.name,
		Given: []Session{{UE4: netip.MustParseAddr("10.45.0.2"), UPF: FTEID{upfN3, teid}, GNB: FTEID{gnbN3, 7}, QFI: 9}},
	}
}

// wantNothing fails if a UE's namespace is left.
func (w *world) wantNothing(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(namespace.NamespaceDir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), w.name) && e.Name() != w.gnb.Name && e.Name() != w.upf.Name {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	if out, err := w.gnb.Output("ip", "-o", "link"); err != nil || strings.Contains(string(out), ": "+w.name) {
		t.Errorf("left behind, %v: %s", err, out)
	}
}

func quickPing(to netip.Addr) Ping {
	return Ping{To: to, Count: 3, Interval: 10 * time.Millisecond, Size: 56, Wait: 300 * time.Millisecond}
}

// A ping goes through a UPF and comes back; afterwards nothing is left.
func TestPing(t *testing.T) {
	w := newWorld(t)
	w.serve(t)
	a, err := Attach(t.Context(), w.options())
	must(t, err)
	s := &a.Sessions[0]
	if a.Association.NodeID != upfN3.String() || s.UPF != (FTEID{upfN3, 1}) || s.GNB.TEID == 0 || s.Namespace != w.name+"1" || s.UPSEID == 0 {
		t.Errorf("%+v", a)
	}
	must(t, w.endpoint.Tunnel(gtpulink.Request{Device: "dn", To: gnbN3, TEID: s.GNB.TEID}, nil))
	p := quickPing(target)
	answers := 0
	p.Answered = func(int, time.Duration) { answers++ }
	r, err := a.Ping(t.Context(), s, p)
	if err != nil || r.Sent != 3 || r.Received != 3 || answers != 3 || r.Min <= 0 || r.Mean < r.Min || r.Max < r.Mean || r.Findings != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if r.GTPU.Sent != 3 || r.GTPU.Received != 3 || r.GTPU.Containers != 3 || r.GTPU.QFI != 9 {
		t.Errorf("G-PDUs: %+v", r.GTPU)
	}
	var response gtpulink.Response
	must(t, w.endpoint.Stats(gtpulink.Request{}, &response))
	if l := response.Stats.Links["dn"]; l.Received != 3 || l.Containers != 3 || l.QFI != 9 {
		t.Errorf("the UPF got %+v", l)
	}
	// The UPF sends to another TEID: it gets Error Indications, and the UE nothing.
	must(t, w.endpoint.Tunnel(gtpulink.Request{Device: "dn", To: gnbN3, TEID: s.GNB.TEID + 1}, nil))
	r, err = a.Ping(t.Context(), s, quickPing(target))
	must(t, err)
	must(t, w.endpoint.Stats(gtpulink.Request{}, &response))
	if r.Received != 0 || r.Unknown != 3 || response.Stats.Links["dn"].Refused != 3 || !strings.Contains(strings.Join(r.Findings, "\n"), "3 G-PDUs came for TEIDs of no session") {
		t.Errorf("%+v, the UPF got %+v", r, response.Stats)
	}
	out := &strings.Builder{}
	cmd := exec.Command("ip", "-br", "address", "show", "dev", s.Namespace)
	cmd.Stdout = out
	if err := a.Run(t.Context(), s, cmd); err != nil || !strings.Contains(out.String(), "10.45.0.2/32") {
		t.Errorf("%v: %s", err, out)
	}
	must(t, a.Close())
	w.wantNothing(t)
	<-a.Ended()
	if a.Err() != nil {
		t.Error(a.Err())
	}
}

// Where packets go missing is said by what is known.
func TestFindings(t *testing.T) {
	w := newWorld(t)
	look := func(o Options, want string) {
		t.Helper()
		a, err := Attach(t.Context(), o)
		must(t, err)
		r, err := a.Ping(t.Context(), &a.Sessions[0], quickPing(target))
		if text := strings.Join(r.Findings, "\n"); err != nil || r.Received != 0 || !strings.Contains(text, want) {
			t.Errorf("%q, %v: want %q", text, err, want)
		}
		must(t, a.Close())
		w.wantNothing(t)
	}
	look(w.given(1), "10.1.0.254 sent the gNB an ICMP error, unreachable")
	must(t, w.upf.Batch([]string{"route add blackhole 10.1.0.1"}))
	look(w.given(1), "does not answer GTP-U Echo Requests")
	look(w.given(1), "n3 is a veth without GRO")
	must(t, w.upf.Batch([]string{"route delete blackhole 10.1.0.1"}))
	w.serve(t)
	look(w.given(2), "does not know TEID 0x2")
	must(t, w.upf.Batch([]string{"address delete 198.51.100.1/32 dev dn"}))
	look(w.given(1), "N3 is not to blame")
}

// What fails leaves nothing, and says which flag is wrong.
func TestAttachFails(t *testing.T) {
	w := newWorld(t)
	w.serve(t)
	for want, change := range map[string]func(*Options){
		"--n3: 10.1.0.9 is no address":             func(o *Options) { o.N3 = netip.MustParseAddr("10.1.0.9") },
		"--netns: there is no network namespace":   func(o *Options) { o.Namespace = "nowhere" },
		"--n4-netns: there is no":                  func(o *Options) { o.N4Namespace = "nowhere" },
		"UDP port 2152 of 10.1.0.254 already":      func(o *Options) { o.N3, o.Namespace = upfN3, w.upf.Name },
		"no answer: does a UPF listen on 10.1.0.1": func(o *Options) { o.SMF.UPF = netip.MustParseAddrPort("10.1.0.123:8805") },
		"without an address of the family":         func(o *Options) { o.N3 = netip.MustParseAddr("2001:db8::1") },
	} {
		o := w.options()
		change(&o)
		a, err := Attach(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
		if a != nil {
			must(t, a.Close())
		}
		w.wantNothing(t)
	}
}

// A namespace that somebody else made is left alone; one that a killed process left is
// replaced.
func TestNamespaces(t *testing.T) {
	w := newWorld(t)
	n := namespace.Named{Name: w.name + "1"}
	refused := func(mark, want string) {
		t.Helper()
		must(t, n.Create(mark))
		if _, err := Attach(t.Context(), w.given(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
		if got, ok, err := n.Mark(); got != mark || !ok || err != nil {
			t.Errorf("mark %q, %v, %v: want it left alone", got, ok, err)
		}
		must(t, n.Delete(mark))
	}
	refused("somebody else's", "did not make")
	refused(markPrefix+"1", "belongs to process 1")
	ended := exec.Command("true")
	must(t, ended.Run())
	must(t, n.Create(fmt.Sprint(markPrefix, ended.Process.Pid)))
	a, err := Attach(t.Context(), w.given(1))
	must(t, err)
	must(t, a.Close())
	w.wantNothing(t)
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--n3 is missing":     func(o *Options) { o.N3 = netip.Addr{} },
		"--count: 0":          func(o *Options) { o.Given = nil },
		"--count: 257":        func(o *Options) { o.Given = slices.Repeat(o.Given, 257) },
		"--name":              func(o *Options) { o.Name = strings.Repeat("x", 13) },
		"--mtu: 100":          func(o *Options) { o.MTU = 100 },
		"IPv6 needs 1280":     func(o *Options) { o.MTU, o.Given[0].UE6 = 1000, upfN3 },
		"--ue is missing":     func(o *Options) { o.Given[0].UE4 = netip.Addr{} },
		"--n3-upf is missing": func(o *Options) { o.Given[0].UPF.Address = netip.Addr{} },
		"--teid, --gnb-teid":  func(o *Options) { o.Given[0].GNB.TEID = 0 },
		"different families":  func(o *Options) { o.Given[0].UPF.Address = netip.IPv6Loopback() },
	} {
		o := (&world{}).given(1)
		change(&o)
		if err := o.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	o := (&world{}).given(1)
	if err := o.Complete(); err != nil || o.Name != "ue" || o.MTU != 1400 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWithInterface(t *testing.T) {
	for from, want := range map[string]string{"2001:db8:1:2::": "2001:db8:1:2::1", "2001:db8:1:2::9": "2001:db8:1:2::9"} {
		if got := withInterface(netip.MustParseAddr(from)); got.String() != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
	if withInterface(netip.Addr{}).IsValid() {
		t.Error("an address of nothing")
	}
}

// find names the first place that the evidence does not exclude.
func TestFind(t *testing.T) {
	s := &Session{UPF: FTEID{upfN3, 0x11}, GNB: FTEID{gnbN3, 7}}
	yes, no := true, false
	sent := gtpulink.LinkStats{Sent: 5}
	back := probe.ICMPError{From: upfN3, Type: 3, Code: 1}
	for _, tt := range []struct {
		e    Evidence
		want string
	}{
		{Evidence{}, "no route to 10.1.0.254"},
		{Evidence{GTPU: gtpulink.LinkStats{Sent: 5, Refused: 1}, Echo: &yes}, "does not know TEID 0x11"},
		{Evidence{GTPU: sent, Echo: &no}, "Echo Requests"},
		{Evidence{GTPU: gtpulink.LinkStats{Sent: 5, Received: 1}, Echo: &yes, Errors: []probe.ICMPError{back, back}}, "1 G-PDU came back"},
		{Evidence{GTPU: sent, Echo: &yes}, "N3 is not to blame"},
		{Evidence{GTPU: sent, Echo: &yes, Usage: &Usage{}}, "ue_source"},
		{Evidence{GTPU: sent, Echo: &yes, Usage: &Usage{Uplink: 420}}, "420 octets up and 0 down"},
		{Evidence{GTPU: sent, Echo: &yes, Usage: &Usage{420, 84}}, "84 octets down: they were lost on their way to the gNB at 10.1.0.1"},
	} {
		list := tt.e.find(s)
		if got := list[len(list)-1]; !strings.Contains(got, tt.want) || len(list) != 1+min(len(tt.e.Errors), 1) {
			t.Errorf("%q: want %q last", list, tt.want)
		}
	}
}

func TestFromState(t *testing.T) {
	r, err := smf.ListenResponder(netip.MustParseAddrPort("127.0.0.9:0"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	c, err := smf.Dial(smf.Options{UPF: r.Addr(), Local: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	defer c.Close()
	_, err = c.Associate(ctx)
	must(t, err)
	add := func(spec smf.Spec) {
		g, err := c.Add(spec)
		must(t, err)
		result, err := g.Establish(ctx, smf.Pace{})
		must(t, errors.Join(err, result.Err()))
	}
	one := smf.Spec{Name: "one", UE4: netip.MustParsePrefix("10.45.0.2/32"), UE6: netip.MustParsePrefix("2001:db8:45::/64"), QFI: 5, Access: &smf.Tunnel{Address: gnbN3, TEID: 7}}
	add(one)
	list, n3, err := FromState(c.Save(), "")
	want := Session{
		UE4: netip.MustParseAddr("10.45.0.2"), UE6: netip.MustParseAddr("2001:db8:45::1"), QFI: 5,
		UPF: FTEID{netip.MustParseAddr("127.0.0.9"), 1}, GNB: FTEID{gnbN3, 7}, SEID: 1, UPSEID: 1,
	}
	if err != nil || n3 != gnbN3 || len(list) != 1 || list[0] != want {
		t.Errorf("%+v, %s, %v: want %+v", list, n3, err, want)
	}
	other := one
	other.Name, other.Access = "other", &smf.Tunnel{Address: upfN3, TEID: 7}
	add(other)
	nobody := one
	nobody.Name, nobody.Access = "nobody", nil
	add(nobody)
	for name, want := range map[string]string{"": "choose a group by --sessions", "nobody": "no tunnel of a gNB", "none": `no established session of group "none"`} {
		if _, _, err := FromState(c.Save(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if list, _, err = FromState(c.Save(), "one"); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
