package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/check"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/smf"
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
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	var upf *smf.Responder
	err := in.Namespace(in.Node("upf")).Do(func() (err error) {
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
	got, err := runChecks(t.Context(), &disturb.Runner{Instance: in}, []string{""}, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ // "": passes
		"sessions": "", "no report comes": "", "a report must come": "want 1", "refused": "no urr", "not before": "no urr", "not after": "no urr",
		"usage of nobody": "no usage", "no handover": "no End Marker", "no limit": "nothing was held back", "nothing is kept": "longest gap",
		"nothing is accepted": "3 of 3 arrived: none should", "nothing arrives": "5 of 5 arrived: none should",
	}
	for _, c := range got.Checks {
		if words := want[c.Name]; c.Pass != (words == "") || !strings.Contains(c.Detail, words) {
			t.Errorf("%s: pass %v, %s", c.Name, c.Pass, c.Detail)
		}
	}
	// Three and one establishments, as many that tell the tunnel (of "two"
	// none), two modifications, and two associations.
	if c := got.Checks[0]; c.Sent != 2+3+3+1+3+1 || c.Lost != 0 {
		t.Errorf("%+v", c)
	}
	wantReferences(in, t)
}

// wantReferences looks at which of each other's tunnels the SMFs got.
func wantReferences(in *instance.Instance, t *testing.T) {
	t.Helper()
	ask := func(name string) smf.Info {
		t.Helper()
		result, err := daemon.Step(t.Context(), in, in.SMF(name), map[string]any{"do": "show"})
		if err != nil || len(result.Sessions) == 0 {
			t.Fatalf("%s: %+v, %v", name, result, err)
		}
		return result.Sessions[0]
	}
	one, two := ask("one"), ask("two")
	if one.Next == nil || one.Next.TEID != two.Access.TEID || two.Peer == nil || two.Peer.TEID != one.Core.TEID {
		t.Errorf("one %+v, two %+v", one, two)
	}
	p, _ := in.Process(in.SMF("two").Node, "two")
	if err := p.Stop(9, check.AnswerTime); err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.Step(t.Context(), in, in.SMF("two"), map[string]any{"do": "show"}); err == nil {
		t.Error("an SMF that has ended answered")
	}
}
