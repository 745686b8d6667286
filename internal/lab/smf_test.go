package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/pfcp/smf"
)

// The labs run this program as their SMFs too: here it is as much of `culvert
// smf run SCENARIO --control` as they use.
func runSMF(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	scenario, err := smf.ParseScenario(text)
	if err != nil {
		return err
	}
	options, err := scenario.Options()
	if err != nil {
		return err
	}
	client, err := smf.Dial(options)
	if err != nil {
		return err
	}
	runner, err := smf.NewRunner(client, scenario)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, step := range scenario.Steps {
		if err := out.Encode(runner.Do(ctx, step)); err != nil {
			return err
		}
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		step, err := scenario.ParseStep(in.Bytes())
		if err != nil {
			return err
		}
		if err := out.Encode(runner.Do(ctx, step)); err != nil {
			return err
		}
	}
	return nil
}

// TestSMF drives SMFs against a UPF that accepts everything, and sees every
// check about them pass and fail where it must.
func TestSMF(t *testing.T) {
	in := open(t, parse(t, withSMF), unique("n4"))
	if err := in.up(t.Context(), "", quiet); err != nil {
		t.Fatal(err)
	}
	var upf *smf.Responder
	err := in.namespace(in.node("upf")).Do(func() (err error) {
		upf, err = smf.ListenResponder(netip.MustParseAddrPort("10.4.0.1:8805"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := upf.Serve(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	report, err := (&runner{instance: in, progress: quiet}).run(t.Context(), []string{""})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ // "": passes
		"sessions": "", "no report comes": "", "a report must come": "want 1", "refused": "no urr", "not before": "no urr", "not after": "no urr",
		"usage of nobody": "no usage", "no handover": "no End Marker", "no limit": "nothing was held back", "nothing is kept": "longest gap",
	}
	for _, c := range report.Checks {
		if words := want[c.Name]; c.Pass != (words == "") || !strings.Contains(c.Detail, words) {
			t.Errorf("%s: pass %v, %s", c.Name, c.Pass, c.Detail)
		}
	}
	// Three and one establishments, as many that tell the tunnel (of "two"
	// none), two modifications, and two associations.
	if c := report.Checks[0]; c.Sent != 2+3+3+1+3+1 || c.Lost != 0 {
		t.Errorf("%+v", c)
	}
	in.wantReferences(t)
}

// wantReferences looks at what the SMFs were told of each other's tunnels.
func (in *instance) wantReferences(t *testing.T) {
	t.Helper()
	ask := func(name string) smf.Info {
		t.Helper()
		result, err := in.step(t.Context(), in.smf(name), map[string]any{"do": "show"})
		if err != nil || len(result.Sessions) == 0 {
			t.Fatalf("%s: %+v, %v", name, result, err)
		}
		return result.Sessions[0]
	}
	one, two := ask("one"), ask("two")
	if one.Next == nil || one.Next.TEID != two.Access.TEID || two.Peer == nil || two.Peer.TEID != one.Core.TEID {
		t.Errorf("one %+v, two %+v", one, two)
	}
	p, _ := in.process(in.smf("two").node, "two")
	if err := p.stop(9, answerTime); err != nil {
		t.Fatal(err)
	}
	if _, err := in.step(t.Context(), in.smf("two"), map[string]any{"do": "show"}); err == nil {
		t.Error("an SMF that has ended answered")
	}
}

func TestResolve(t *testing.T) {
	lookup := func(text string, ipv6 bool) (netip.Addr, uint32, error) {
		if text == "none" {
			return netip.Addr{}, 0, errors.New("there is none")
		}
		if ipv6 {
			return netip.MustParseAddr("2001:db8::1"), 7, nil
		}
		return netip.MustParseAddr("192.0.2.1"), 7, nil
	}
	step := map[string]any{"do": "modify", "change": map[string]any{
		"core": map[string]any{"fteid": "x/y/core", "interface": "n9"}, "other": map[string]any{"fteid": "x/y/core", "ipv6": true}}}
	before := fmt.Sprint(step)
	got, err := resolve(step, lookup)
	want := map[string]any{"do": "modify", "change": map[string]any{
		"core": map[string]any{"address": "192.0.2.1", "teid": uint32(7), "interface": "n9"}, "other": map[string]any{"address": "2001:db8::1", "teid": uint32(7)}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if after := fmt.Sprint(step); after != before {
		t.Errorf("the step itself became %s", after)
	}
	_, err = resolve(map[string]any{"access": map[string]any{"fteid": "none"}}, lookup)
	wantError(t, err, "there is none")
}

func TestParseSMF(t *testing.T) {
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"no SMFs", "kind: smf", "kind: host", []string{"nodes[2]", "smfs"}},
		{"scenario", "role: intermediate", "role: middle", []string{"nodes[2]", "smfs[0]", "role", "middle"}},
		{"unknown field", "urr: {volume_threshold", "urr: {volume_treshold", []string{"smfs[0]", "volume_treshold"}},
		{"no UPF", "upf: 10.4.0.1", "timeout: 1s", []string{"smfs[0]", "UPF"}},
		{"SMF twice", "name: two", "name: one", []string{"smfs[1]", "twice"}},
		{"unknown SMF", "smf: one, step: {do: associate}", "smf: three, step: {do: associate}", []string{"checks[0]", "event", "three"}},
		{"unknown step", "{do: associate}", "{do: asociate}", []string{"checks[0]", "asociate", "associate"}},
		{"unknown field of a step", "now: true", "nov: true", []string{"checks[0]", "nov"}},
		{"unknown sessions", "core: {fteid: two/ue/access}", "core: {fteid: two/eu/access}", []string{"checks[0]", "two", "eu"}},
		{"no side", "fteid: one/ue/access", "fteid: one/ue/left", []string{"checks[0]", "fteid", "one/ue/left", "access"}},
		{"tunnel of nobody", "device: g, fteid", "device: h, fteid", []string{"checks[0]", "gnb", "h"}},
		{"wait", "for: 1ms", "for: 0s", []string{"checks[1]", "wait", "for"}},
		{"report", "kind: restarted", "kind: restated", []string{"checks[1]", "reports", "restated", "restarted"}},
		{"report of nobody", "reports: [{smf: one, kind: restarted", "reports: [{smf: six, kind: restarted", []string{"checks[1]", "six"}},
		{"usage of nobody", "usage: {smf: one, sessions: ue}", "usage: {smf: one, sessions: eu}", []string{"checks[6]", "usage", "eu"}},
		{"usage of the other side", "kind: udp, from: gnb, at: upf, to: 10.0.0.2, expect: {usage", "kind: udp, from: upf, at: gnb, to: 10.0.0.1, expect: {usage", []string{"checks[6]", "usage", "GTP-U"}},
		{"handover", "from: g, to: g", "from: g, to: h", []string{"checks[7]", "handover", "h"}},
		{"rate", "kbit_s: 8000, tolerance: 10", "kbit_s: 8000", []string{"checks[8]", "rate", "tolerance"}},
		{"overlay of no apply", "{do: wait, for: 1ms}", "{do: wait, for: 1ms, overlay: x}", []string{"checks[1]", "overlay", "wait"}},
		{"step of no SMF's", "{do: wait, for: 1ms}", "{do: wait, for: 1ms, smf: one}", []string{"checks[1]", "smf", "wait"}},
		{"apply at no daemon", "{do: wait, for: 1ms}", "{do: apply, node: upf}", []string{"checks[1]", "upf", "culvert"}},
		{"no transports", "{do: wait, for: 1ms}", "{do: n9}", []string{"checks[1]", "n9"}},
		{"setup", "checks:\n", "setup: [{do: tunnel, node: gnb}]\nchecks:\n", []string{"setup[0]", "fteid"}},
	}
	parse(t, withSMF)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(withSMF, tt.old, tt.new, 1)
			if text == withSMF {
				t.Fatalf("%q is not there", tt.old)
			}
			_, err := Parse([]byte(text))
			wantError(t, err, tt.want...)
		})
	}
}
