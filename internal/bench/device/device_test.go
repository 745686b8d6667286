package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

func TestDeviceValidate(t *testing.T) {
	if err := newDevice().Validate(); err != nil {
		t.Error(err)
	}
	for says, break1 := range map[string]func(*Experiment){
		"with.rx: it is missing beside tx":         func(d *Experiment) { d.TX = "eth1" },
		"with.tx: it is missing beside rx":         func(d *Experiment) { d.RX = "eth1" },
		"eth1 is the interface that sends, too":    func(d *Experiment) { d.TX, d.RX = "eth1", "eth1" },
		`there is no network namespace "nowhere"`:  func(d *Experiment) { d.TX, d.RX, d.RXNetns = "eth1", "eth1", "nowhere" },
		"there is nothing to measure":              func(d *Experiment) { d.Against = nil },
		`there is no built-in device "windows"`:    func(d *Experiment) { d.Against = []string{"windows"} },
		`there is no built-in device "kernel/foo"`: func(d *Experiment) { d.Against = []string{"kernel", "kernel/foo"} },
		`there is no template "ipx"`:               func(d *Experiment) { d.Template = "ipx" },
		"with.expect: open /nothing.yaml":          func(d *Experiment) { d.Expect = "/nothing.yaml" },
		`with.sizes[1]: "63" is no size`:           func(d *Experiment) { d.Sizes = []string{"64", "63"} },
		"with.sizes: there is none":                func(d *Experiment) { d.Sizes = nil },
		"with.final: goal \"NDR\": durations":      func(d *Experiment) { d.Final = 1 },
		"below the loss ratio":                     func(d *Experiment) { d.Width = 0.001 },
		"with.latency[0]: 1.5 is none":             func(d *Experiment) { d.Latency = []float64{1.5} },
		"with.curve[0]: 0 is too little":           func(d *Experiment) { d.Curve = []float64{0} },
		"with.mac: where does the device receive?": func(d *Experiment) { d.TX, d.RX = "eth1", "eth2" },
		`there is no method "pigeon"`:              func(d *Experiment) { d.Method = "pigeon" },
	} {
		d := newDevice()
		break1(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	d := newDevice()
	d.TX, d.RX, d.TXNetns, d.RXNetns, d.MAC = "eth1", "eth1", "/proc/self/ns/net", "", traffic.MAC(node.MAC(1))
	if err := d.Validate(); err != nil {
		t.Errorf("the same name in two namespaces: %v", err)
	}
}

// What can be chosen by name can be sent, in every size.
func TestDeviceTemplates(t *testing.T) {
	all := templates()
	for _, f := range Forwarders() {
		f.Sent.Name = f.name
		all = append(all, f.Sent)
	}
	for _, one := range all {
		for _, size := range []string{"64", "512", "1518", "imix"} {
			sent, err := Sized(one, size)
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
	b := &deviceBench{Experiment: d}
	b.Warn = func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	m := &probing{deviceBench: b, point: point{Target{"device", "a to b"}, "64"}, trials: made}
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
