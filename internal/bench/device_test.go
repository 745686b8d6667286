package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

func TestDeviceValidate(t *testing.T) {
	if err := newDevice().Validate(); err != nil {
		t.Error(err)
	}
	for says, break1 := range map[string]func(*device){
		"with.rx: it is missing beside tx":         func(d *device) { d.TX = "eth1" },
		"with.tx: it is missing beside rx":         func(d *device) { d.RX = "eth1" },
		"eth1 is the interface that sends, too":    func(d *device) { d.TX, d.RX = "eth1", "eth1" },
		`there is no network namespace "nowhere"`:  func(d *device) { d.TX, d.RX, d.RXNetns = "eth1", "eth1", "nowhere" },
		"there is nothing to measure":              func(d *device) { d.Against = nil },
		`there is no built-in device "windows"`:    func(d *device) { d.Against = []string{"windows"} },
		`there is no built-in device "kernel/foo"`: func(d *device) { d.Against = []string{"kernel", "kernel/foo"} },
		`there is no template "ipx"`:               func(d *device) { d.Template = "ipx" },
		"with.expect: open /nothing.yaml":          func(d *device) { d.Expect = "/nothing.yaml" },
		`with.sizes[1]: "63" is no size`:           func(d *device) { d.Sizes = []string{"64", "63"} },
		"with.sizes: there is none":                func(d *device) { d.Sizes = nil },
		"with.final: goal \"NDR\": durations":      func(d *device) { d.Final = 1 },
		"below the loss ratio":                     func(d *device) { d.Width = 0.001 },
		"with.latency[0]: 1.5 is none":             func(d *device) { d.Latency = []float64{1.5} },
		"with.curve[0]: 0 is too little":           func(d *device) { d.Curve = []float64{0} },
		"with.mac: where does the device receive?": func(d *device) { d.TX, d.RX = "eth1", "eth2" },
		`there is no method "pigeon"`:              func(d *device) { d.Method = "pigeon" },
	} {
		d := newDevice()
		break1(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	d := newDevice()
	d.TX, d.RX, d.TXNetns, d.RXNetns, d.MAC = "eth1", "eth1", "/proc/self/ns/net", "", traffic.MAC(macOf(1))
	if err := d.Validate(); err != nil {
		t.Errorf("the same name in two namespaces: %v", err)
	}
}

// What can be chosen by name can be sent, in every size.
func TestDeviceTemplates(t *testing.T) {
	all := templates()
	for _, f := range forwarders() {
		f.sent.Name = f.name
		all = append(all, f.sent)
	}
	for _, one := range all {
		for _, size := range []string{"64", "512", "1518", "imix"} {
			sent, err := sized(one, size)
			if err == nil {
				err = sent.Check()
			}
			if err != nil {
				t.Errorf("%s, %s: %v", one.Name, size, err)
			}
		}
	}
}

func TestDevicePoints(t *testing.T) {
	d := newDevice()
	d.Against, d.Sizes = []string{"kernel/end", "kernel/end", "culvert"}, []string{"64", "imix"}
	var got []string
	for _, p := range d.points() {
		got = append(got, p.id())
	}
	want := []string{
		"kernel end, 64", "kernel end, imix", "culvert h_encaps_red, 64", "culvert h_encaps_red, imix", "culvert end, 64", "culvert end, imix",
		"culvert end_dt6, 64", "culvert end_dt6, imix", "culvert gtpu_encap, 64", "culvert gtpu_encap, imix", "culvert gtpu_decap, 64", "culvert gtpu_decap, imix",
		"veth, 64", "veth, imix",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	d.TX, d.RX, d.Against = "a", "b", nil
	if got := d.points(); len(got) != 2 || got[0].id() != "device a to b, 64" {
		t.Errorf("%v", got)
	}
}

// madeUp is a device, and a generator, of which everything is known.
type madeUp struct {
	capacity, generator float64 // packets/s
	wrong               uint64  // of each trial's packets, that came out otherwise
}

func (m madeUp) Limit(context.Context, traffic.Template) (float64, error) {
	return m.generator, nil
}

func (m madeUp) Run(_ context.Context, t traffic.Trial) (traffic.Outcome, error) {
	rate := t.Rate
	if rate == 0 || rate > m.generator {
		rate = m.generator
	}
	sent := uint64(rate * t.Duration.Seconds())
	out := min(sent, uint64(m.capacity*t.Duration.Seconds()))
	o := traffic.Outcome{Sent: sent, Received: out, Lost: sent - out, Rate: rate, AtLimit: rate < t.Rate, Octets: 60 * out, Corrupt: m.wrong, Faults: []string{"the TEID is 7"}}
	o.Latency = &result.Histogram{Unit: "ns", Lower: []uint64{100, 200}, Upper: []uint64{101, 201}, Count: []uint64{9, 1}}
	if out == 0 {
		return o, traffic.ErrNothing
	}
	return o, nil
}

// probe measures a made-up device, and returns its samples and warnings.
func probe(t *testing.T, made madeUp) (samples map[string]float64, warnings []string, err error) {
	t.Helper()
	d := newDevice()
	d.Latency, d.Curve = []float64{0.5}, []float64{0.5, 2}
	b := &deviceBench{device: d}
	b.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	m := &probing{deviceBench: b, point: point{target{"device", "a to b"}, "64"}, trials: made}
	if err = m.all(t.Context()); err == nil {
		m.warnOfFaults()
	}
	samples = map[string]float64{}
	for _, s := range m.out {
		samples[strings.TrimSpace(s.Metric+" "+s.Labels["load"]+s.Labels["rate"])] = s.Value
		if s.Metric == "latency" && s.Histogram.Total() != 10 {
			t.Errorf("the histogram of latency has %d packets, want 10", s.Histogram.Total())
		}
	}
	return samples, warnings, err
}

func TestProbe(t *testing.T) {
	got, warnings, err := probe(t, madeUp{capacity: 1e6, generator: 5e6})
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	for metric, want := range map[string]float64{
		"generator_limit": 5e6, "ndr": 1e6, "pdr": 1e6, "ndr_bits": 64 * 8e6, "latency 50 %": 100, "latency_p99 50 %": 200,
		"loss 0.5": 0, "loss 2": 0.5,
	} {
		if v, ok := got[metric]; !ok || v < want*0.98 || v > want*1.02 {
			t.Errorf("%s: %v, want %v", metric, v, want)
		}
	}
}

// A generator that is slower than the device gives no figure of the device, and
// says so.
func TestProbeGeneratorLimited(t *testing.T) {
	got, warnings, err := probe(t, madeUp{capacity: 5e6, generator: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"ndr", "pdr", "ndr_bits", "loss 2"} {
		if v, ok := got[metric]; ok {
			t.Errorf("%s is %v", metric, v)
		}
	}
	if got["ndr_at_least"] != 1e6 || len(warnings) != 2 || !strings.Contains(warnings[0], "the generator was the limit") {
		t.Errorf("%v, %q", got, warnings)
	}
}

// A packet that comes out wrong is no packet that came through.
func TestProbeFaultyDevice(t *testing.T) {
	got, warnings, err := probe(t, madeUp{capacity: 1e6, generator: 5e6, wrong: 30})
	if err != nil {
		t.Fatal(err)
	}
	if got["ndr"] != 0 || !slices.ContainsFunc(warnings, func(w string) bool {
		return strings.Contains(w, "came out otherwise than expected: the TEID is 7")
	}) {
		t.Errorf("%v, %q", got, warnings)
	}
	if _, _, err := probe(t, madeUp{capacity: 1e6, generator: 5e6, wrong: 1e9}); err == nil || !strings.Contains(err.Error(), "every packet came out otherwise than was expected: the TEID is 7") {
		t.Errorf("all wrong: %v", err)
	}
	if _, _, err := probe(t, madeUp{generator: 5e6}); !errors.Is(err, traffic.ErrNothing) {
		t.Errorf("a device that forwards nothing: %v", err)
	}
}

// needTwoCPUs: built-in devices have one of their own.
func needTwoCPUs(t *testing.T) {
	t.Helper()
	needRoot(t)
	if cpus, err := allowedCPUs(); err != nil || len(cpus) < 2 {
		t.Skipf("needs two CPUs, one for the device and one for the generator: there are %v (%v)", cpus, err)
	}
}

// nothingOf says that nothing is left of nodes.
func nothingOf(t *testing.T, nodes ...string) {
	t.Helper()
	for _, n := range nodes {
		for _, path := range []string{"/run/netns/" + runName() + "-" + n + "-node", "/run/netns/" + runName() + "-" + n + "-around", "/sys/fs/bpf/" + runName() + "-" + n + "-node"} {
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left (%v)", path, err)
			}
		}
	}
}

// execute runs `culvert bench ARGS` and returns the run that it left in dir.
func execute(ctx context.Context, dir string, args ...string) (*result.Run, error) {
	c := Command()
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	c.SilenceUsage = true
	c.SetArgs(append(args, "--dir", dir, "--culvert", culvert))
	err := c.ExecuteContext(ctx)
	r, readErr := result.Read(dir)
	if err == nil {
		err = readErr
	}
	return r, err
}

func TestDeviceAgainst(t *testing.T) {
	needTwoCPUs(t)
	r, err := execute(t.Context(), t.TempDir(), "device", "--quick", "--against", "kernel/vxlan,culvert/h_encaps_red", "--sizes", "imix", "--rounds", "1")
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"kernel vxlan", "culvert h_encaps_red"} {
		of := result.Labels{"what": what}
		if len(r.Select("pdr", of))+len(r.Select("pdr_at_least", of)) != 1 || len(r.Select("generator_limit", of)) != 1 {
			t.Errorf("%s: %v", what, r.Measurements)
		}
	}
	if r.Environment.DataPath == "" {
		t.Error("nobody says what build of Culvert it was")
	}
	nothingOf(t, kernelDevice, culvertDevice, veth)
}

// between makes a namespace whose two interfaces a and b are those of a device
// of the user's, in another namespace.
func between(t *testing.T, forward bool) (ns namespace, mac string) {
	t.Helper()
	needRoot(t)
	n, err := newNetwork(runName()+"-user", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.delete(); err != nil {
			t.Error(err)
		}
	})
	if !forward {
		if err := n.node.script("route flush table main"); err != nil {
			t.Fatal(err)
		}
	}
	return n.around, macOf(1).String()
}

func userDevice(ns namespace, mac string, more ...string) []string {
	return append([]string{
		"device", "--quick", "--against=", "--sizes", "64", "--rounds", "1", "--tx", "g0", "--rx", "s0",
		"--tx-netns", ns.name, "--rx-netns", ns.path(), "--mac", mac,
	}, more...)
}

// A device of the user's that has no XDP at all is measured by AF_PACKET.
func TestDeviceOfTheUser(t *testing.T) {
	ns, mac := between(t, true)
	r, err := execute(t.Context(), t.TempDir(), userDevice(ns, mac)...)
	if err != nil {
		t.Fatal(err)
	}
	of := result.Labels{"what": "device g0 to s0"}
	if len(r.Select("ndr", of))+len(r.Select("ndr_at_least", of)) != 1 {
		t.Errorf("%v", r.Measurements)
	}
}

func TestDeviceErrors(t *testing.T) {
	ns, mac := between(t, true)
	for says, args := range map[string][]string{
		"there is no such interface":    append(userDevice(ns, mac), "--rx", "s1"),
		"has no Ethernet header":        append(userDevice(ns, mac), "--rx", "lo"),
		"does not send live frames":     userDevice(ns, mac, "--method", "live"),
		"every packet came out":         userDevice(ns, mac, "--expect", "gtpu"),
		"no network namespace \"gone\"": append(userDevice(ns, mac), "--tx-netns", "gone"),
	} {
		if _, err := execute(t.Context(), t.TempDir(), args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q, got %v", says, err)
		}
	}
}

func TestReceiverSeesNothing(t *testing.T) {
	ns, mac := between(t, false)
	if _, err := execute(t.Context(), t.TempDir(), userDevice(ns, mac)...); !errors.Is(err, traffic.ErrNothing) || !strings.Contains(err.Error(), "does the device forward to it") {
		t.Errorf("%v", err)
	}
}

// Whoever stops a run keeps what was measured, and the machine as it was.
func TestDeviceStopped(t *testing.T) {
	needTwoCPUs(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // when the first point is there
		for ctx.Err() == nil {
			if text, err := os.ReadFile(filepath.Join(dir, "journal.jsonl")); err == nil && strings.Contains(string(text), `"metric"`) {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r, err := execute(ctx, dir, "device", "--quick", "--against", "kernel/forward,kernel/end", "--sizes", "64,1518", "--rounds", "1")
	if !errors.Is(err, experiment.ErrStopped) {
		t.Fatal(err)
	}
	if r == nil || r.Complete || len(r.Measurements) == 0 {
		text, _ := json.Marshal(r)
		t.Errorf("what is left: %s", text)
	}
	nothingOf(t, kernelDevice, veth)
}
