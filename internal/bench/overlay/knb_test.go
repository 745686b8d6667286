package overlay

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
)

func knb() *KNB { return KNBKind.New().(*KNB) }

func TestKNBValidate(t *testing.T) {
	if err := knb().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*KNB){
		`with.variants[0]: there is no "gre"`:  func(k *KNB) { k.Variants = []string{"gre"} },
		`with.families[0]: there is no "ipx"`:  func(k *KNB) { k.Families = []string{"ipx"} },
		`with.cases[1]: there is no "p2phttp"`: func(k *KNB) { k.Cases = []string{caseIdle, "p2phttp"} },
		"with.time: 1s is out of range":        func(k *KNB) { k.Time = experiment.Duration(time.Second) },
		"with.time: 2.5s is out of range":      func(k *KNB) { k.Time = experiment.Duration(2500 * time.Millisecond) },
		"with.datagram: 1500 is out of range":  func(k *KNB) { k.Datagram = 1500 },
	} {
		k := knb()
		change(k)
		if err := k.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Idling has no family, and who knows no Services is not asked for them.
func TestKNBPlan(t *testing.T) {
	k := knb()
	k.Families = Families()
	plan, err := k.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, p := range plan.Points {
		ids = append(ids, p.ID)
	}
	want := []string{"idle, ipv4", "p2ptcp, ipv4", "p2ptcp, ipv6", "p2pudp, ipv4", "p2pudp, ipv6", "p2stcp, ipv4", "p2stcp, ipv6", "p2sudp, ipv4", "p2sudp, ipv6"}
	if !slices.Equal(ids, want) {
		t.Errorf("points %v, want %v", ids, want)
	}
	each := time.Duration(k.Time) + takesKNB
	if p2p, p2s := plan.Points[1].Takes, plan.Points[5].Takes; p2p != 4*each || p2s != 3*each {
		t.Errorf("%v from pod to pod, %v to a Service, of %v each", p2p, p2s, each)
	}
}

// A second less of TCP is asked for, because iperf3 adds what it leaves out.
func TestIperfArguments(t *testing.T) {
	for of, want := range map[string]string{
		caseP2PTCP: "-J -c 10.0.0.1 -t 9 -O 1", caseP2SUDP: "-J -c 10.0.0.1 -t 10 -u -b 0 -l 1372",
	} {
		if got := strings.Join(iperfArguments("10.0.0.1", of, 10*time.Second, 1372), " "); got != want {
			t.Errorf("%s: %s, want %s", of, got, want)
		}
	}
}

// Each figure has what it shows; only what differs for certain is claimed.
func TestKNBSamples(t *testing.T) {
	k := knb()
	byLabels := map[string]*result.Measurement{}
	run := &result.Run{Version: result.Version, Figures: k.Figures()}
	for round := range 9 {
		for _, p := range k.points() {
			seen := map[string]hosts{}
			for _, v := range k.measured(p.of) {
				h := hosts{bits: 2e9 + 1e6*float64(round), used: 1000, agents: [2]float64{80, 0}}
				h.cpu = [2]proc.States{{User: 1, Nice: 0, System: 2, IOWait: 0.5, Steal: 0.5, Idle: 6}, {System: 1, Idle: 1}}
				if v.name == vxlan {
					h.bits /= 2
				}
				seen[v.name] = h
			}
			for _, s := range knbSamples(p, k.measured(p.of), seen) {
				key := s.Metric + s.Labels[labelName] + s.Labels[labelCase] + s.Labels[labelHost] + s.Labels[labelState] + s.Labels[labelOf]
				if byLabels[key] == nil {
					byLabels[key] = &result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit}
				}
				m := byLabels[key]
				m.Samples = append(m.Samples, s.Value)
				if s.Baseline != nil {
					m.Baseline = append(m.Baseline, *s.Baseline)
				}
			}
		}
	}
	for key, want := range map[string]float64{
		"knb_cpusrv6idleclienttotal": 40, "knb_cpusrv6p2ptcpclientsystem": 20, "knb_cpuflatp2sudpservertotal": 50,
		"knb_memorysrv6p2ptcpclientagent": 80, "knb_memoryflatidlemachine": 1000, "knb_bandwidthvxlanp2stcp": 1e9,
	} {
		if m := byLabels[key]; m == nil || m.Samples[0] != want {
			t.Errorf("%s: %+v, want %v first", key, m, want)
		}
	}
	if byLabels["knb_memorysrv6p2ptcpserveragent"] != nil || byLabels["knb_bandwidthipipp2stcp"] != nil || byLabels["knb_bandwidthflatidle"] != nil {
		t.Error("there are figures of what nobody measured")
	}
	for _, m := range byLabels {
		run.Measurements = append(run.Measurements, *m)
	}
	if err := run.Check(); err != nil {
		t.Error(err)
	}
	for _, f := range run.Figures {
		if len(run.Select(f.Metric, f.Where)) == 0 {
			t.Errorf("figure %s shows nothing", f.ID)
		}
	}
	checkKNBRows(t, run)
	claims := strings.Join(k.Claims(run), "\n")
	if !strings.Contains(claims, "p2ptcp, ipv4: vxlan reaches 0.50 (") || strings.Contains(claims, "srv6") || strings.Contains(claims, "p2s") {
		t.Errorf("claims:\n%s", claims)
	}
}

// checkKNBRows: a row for each case and variant, in the words of knb.
func checkKNBRows(t *testing.T, run *result.Run) {
	t.Helper()
	rows := knbRows(run)
	i := slices.IndexFunc(rows, func(r KNBRow) bool { return r.Case == caseP2PTCP && r.Name == vxlan })
	if len(rows) != 4+4+4+3+3 || i < 0 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	r := rows[i]
	if r.Family != ipv4 || r.Gbit != 1.002 || r.Ratio != 0.5 || r.Client.CPU["total"] != 40 || r.Server.CPU["system"] != 50 || r.Client.Agent != 80 || r.Server.Agent != 0 || r.RAM != 1000 || r.N != 9 {
		t.Errorf("%+v", r)
	}
	var out bytes.Buffer
	if err := PrintKNBTable(&out, nil, run); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if !strings.HasPrefix(lines[0], "case    name") || !slices.ContainsFunc(lines, func(l string) bool {
		return strings.Join(strings.Fields(l), " ") == "p2ptcp vxlan ipv4 1.00 0.500 0.500 to 0.500 0.0 % 40 10 20 5 50 0 50 0 80.0, - 1000"
	}) {
		t.Errorf("table:\n%s", out.String())
	}
}
