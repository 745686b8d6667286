package ambr

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func params() *Params { return Kind.New().(*Params) }

// The most over a window is found wherever it is, and a shorter time is its own window.
func TestMost(t *testing.T) {
	var seen []amount
	begun, octets := time.Unix(0, 0), uint64(0)
	for i := range 200 {
		seen = append(seen, amount{begun.Add(time.Duration(i) * 100 * time.Millisecond), octets})
		octets += 1000
		if i >= 50 && i < 60 {
			octets += 9000
		}
	}
	for window, want := range map[time.Duration]float64{
		time.Second:      10 * 10_000 * 8,
		10 * time.Second: (10*10_000 + 90*1000) * 8 / 10,
		time.Minute:      (10*10_000 + 189*1000) * 8 / 19.9,
	} {
		if got := most(seen, window); math.Abs(got-want) > 1 {
			t.Errorf("%v: %v bit/s, want %v", window, got, want)
		}
	}
}

// An interface's counters are of this namespace; what is not there is an error.
func TestCounted(t *testing.T) {
	if _, err := counted("lo", 0); err != nil {
		t.Error(err)
	}
	if _, err := counted("nowhere0", 0); err == nil || !strings.Contains(err.Error(), "nowhere0") {
		t.Errorf("%v, want an error that names the interface", err)
	}
}

func TestFlags(t *testing.T) {
	p := params()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Flags(f)
	if err := f.Parse([]string{"--rtt", "1ms,20ms", "--ambr", "7", "--time", "3s"}); err != nil {
		t.Fatal(err)
	}
	want := []experiment.Duration{experiment.Duration(time.Millisecond), experiment.Duration(20 * time.Millisecond)}
	if !slices.Equal(p.RTT, want) || !slices.Equal(p.AMBR, []int{7}) || f.Lookup("rtt").Value.String() != "1ms,20ms" {
		t.Errorf("%+v", p)
	}
	if err := f.Parse([]string{"--rtt", "1ms,soon"}); err == nil {
		t.Error("soon is a duration")
	}
}

func TestValidate(t *testing.T) {
	if err := params().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Params){
		"with.ambr[0]: 0 is out of range":    func(p *Params) { p.AMBR[0] = 0 },
		"with.ambr: there is none":           func(p *Params) { p.AMBR = nil },
		"with.rtt[1]: 2s is out of range":    func(p *Params) { p.RTT[1] = experiment.Duration(2 * time.Second) },
		"with.rtt: there is none":            func(p *Params) { p.RTT = nil },
		`with.direction[0]: there is no "n"`: func(p *Params) { p.Direction[0] = "n" },
		`with.traffic[3]: there is no "sctp"`: func(p *Params) {
			p.Traffic[3] = "sctp"
		},
		"with.congestion: it is empty":                    func(p *Params) { p.Congestion = "" },
		"with.time: 10ms is out of range":                 func(p *Params) { p.Time = experiment.Duration(10 * time.Millisecond) },
		"tcp uplink, 20 Mbit/s, RTT 500µs is there twice": func(p *Params) { p.AMBR[1] = 20 },
	} {
		p := params()
		change(p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What a run claims and prints is what was measured.
func TestRows(t *testing.T) {
	p := params()
	run := &result.Run{}
	at := point{traffics[0], downlink, 100, 20 * time.Millisecond}
	begun := time.Unix(0, 0)
	for _, s := range at.samples(sent{bits: 95e7, took: 10 * time.Second, retransmits: 3, refused: 2}, []amount{{begun, 0}, {begun.Add(10 * time.Second), 126_000_000}}) {
		m := result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit, Samples: []float64{s.Value}}
		if s.Baseline != nil {
			m.Baseline = []float64{*s.Baseline}
		}
		run.Measurements = append(run.Measurements, m)
	}
	want := row{Traffic: "tcp", Direction: downlink, AMBR: 100, RTT: 20, Goodput: 95, GoodputShare: 0.95, PassedShare: 1.008, MostShare: 1.008, Retransmits: 3, Refused: 2, N: 1}
	if got := rows(run); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	claims := strings.Join(p.Claims(run), "\n")
	for _, text := range []string{"at least 95.0 % of the AMBR (tcp downlink, 100 Mbit/s, RTT 20 ms)", "more than 100.8 % of the AMBR go"} {
		if !strings.Contains(claims, text) {
			t.Errorf("%s\nlacks %q", claims, text)
		}
	}
}
