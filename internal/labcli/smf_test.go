package labcli

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/smf"
)

// nullUPF answers everything, while the test runs.
func nullUPF(t *testing.T) string {
	t.Helper()
	r, err := smf.ListenResponder(netip.MustParseAddrPort("127.0.0.5:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("responder: %v", err)
		}
	})
	return r.Addr().String()
}

// smfRun runs a verb with a state file of the test's.
type smfRun struct{ upf, state string }

func (s smfRun) run(t *testing.T, args ...string) result {
	t.Helper()
	all := append([]string{"smf", args[0], "--upf", s.upf, "--state", s.state}, args[1:]...)
	return command(t.Context(), "", all...)
}

func (s smfRun) ok(t *testing.T, args ...string) smf.StepResult {
	t.Helper()
	r := s.run(t, append(args, "-o", "json")...)
	var step smf.StepResult
	if err := json.Unmarshal([]byte(r.stdout), &step); r.code != cmdline.ExitOK || err != nil || !step.OK {
		t.Fatalf("%v: exit %d, %v: %s%s", args, r.code, err, r.stdout, r.stderr)
	}
	return step
}

// The verbs do their step, each with what the ones before have left.
func TestSMFVerbs(t *testing.T) {
	s := smfRun{nullUPF(t), filepath.Join(t.TempDir(), "state", "smf.json")}
	if r := s.run(t, "establish", "--local", "127.0.0.1:0", "--ue4", "10.45.0.0/16"); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "10.45.0.1") {
		t.Fatalf("establish, which associates first: %+v", r)
	}
	if a := s.ok(t, "associate", "--local", "127.0.0.1:0", "--node-id", "smf.example").Association; a.NodeID != "127.0.0.5" || len(a.Features) != 2 {
		t.Errorf("%+v", a)
	}
	e := s.ok(t, "establish", "--count", "3", "--ue4", "10.45.0.0/16", "--ue6", "2001:db8:45::/48", "--network-instance", "internet", "--sst", "1", "--sd", "000001",
		"--access", "192.0.2.1", "--access-teid", "0x1000", "--qfi", "9", "--mbr-uplink", "1000", "--mbr-downlink", "2000", "--volume-threshold", "1000000",
		"--filter", "permit out udp from 198.51.100.7 to assigned")
	if len(e.Sessions) != 3 || e.Sessions[2].Peer.TEID != 0x1002 || e.Sessions[2].UE6.String() != "2001:db8:45:2::" || len(e.Results) != 2 {
		t.Errorf("%+v", e)
	}
	if h := s.ok(t, "handover", "--first", "1", "--count", "1", "--access", "192.0.2.2", "--access-teid", "0x2000", "--end-marker=false"); len(h.Sessions) != 1 || h.Sessions[0].Peer.TEID != 0x2001 {
		t.Errorf("%+v", h)
	}
	s.ok(t, "idle")
	s.ok(t, "page", "--now")
	s.ok(t, "query")
	s.ok(t, "modify", "--mbr-uplink", "5", "--mbr-downlink", "6", "--gate-uplink-closed", "--downlink", "drop")
	s.ok(t, "modify", "--gates-open", "--drop-buffered")
	if more := s.ok(t, "establish", "--choose-ue", "ipv4"); more.Sessions[0].Group != "ue2" || more.Sessions[0].CPSEID != 4 {
		t.Errorf("a second group: %+v", more)
	}
	show := s.run(t, "show")
	if lines := strings.Split(strings.TrimSpace(show.stdout), "\n"); show.code != cmdline.ExitOK || len(lines) != 5 || !strings.Contains(lines[2], "0x2001 192.0.2.2") {
		t.Errorf("%+v", show)
	}
	if d := s.ok(t, "delete"); len(d.Results) != 2 || d.Results[0].Requests != 3 {
		t.Errorf("%+v", d)
	}
	s.ok(t, "release")
	if l := s.ok(t, "load", "--local", "127.0.0.1:0", "--count", "500", "--window", "16", "--rate", "20000", "--ue4", "10.0.0.0/8", "--access", "192.0.2.1", "--access-teid", "1"); len(l.Results) != 3 || l.Results[1].PerSecond == 0 {
		t.Errorf("%+v", l)
	}
}

// A query without a URR, and a page without a report, say what is missing.
func TestSMFNothing(t *testing.T) {
	s := smfRun{nullUPF(t), filepath.Join(t.TempDir(), "smf.json")}
	s.ok(t, "establish", "--local", "127.0.0.1:0", "--ue4", "10.45.0.0/16", "--access", "192.0.2.1", "--access-teid", "1")
	if r := s.run(t, "query"); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "no session has a URR: the UPF counts no usage") {
		t.Errorf("%+v", r)
	}
	s.ok(t, "idle")
	if r := s.run(t, "page", "--wait", "10ms"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "no downlink data report for 1 of 1 sessions: none came in time") {
		t.Errorf("%+v", r)
	}
}

// What makes no sense is said, as wrong usage; what the UPF does not do, as a
// failure.
func TestSMFMistakes(t *testing.T) {
	s := smfRun{nullUPF(t), filepath.Join(t.TempDir(), "smf.json")}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"idle", cmdline.ExitUsage, "idle: no sessions in "},
		{"show", cmdline.ExitUsage, "culvert smf establish makes some"},
		{"associate --local x", cmdline.ExitUsage, `--local: "x" is no address`},
		{"establish --local 127.0.0.1:0 --ue4 10.45.0.0/16 --count 0", cmdline.ExitUsage, "--count: must not be 0"},
		{"establish --local 127.0.0.1:0 --ue4 10.45.0.0/16 --access foo", cmdline.ExitUsage, `--access: "foo" is not an IP address`},
		{"establish --local 127.0.0.1:0 --ue4 10.45.0.0/16 --access 192.0.2.1 --access-teid zz", cmdline.ExitUsage, `--access-teid: must be a number`},
		{"establish --local 127.0.0.1:0 --ue4 10.45.0.0/16 --filter permit", cmdline.ExitUsage, "--filter: filter direction"},
		{"establish --local 127.0.0.1:0 --ue4 10.45.0.0/16 --rate fast", cmdline.ExitUsage, "--rate: must be a number"},
		{"establish --local 127.0.0.1:0", cmdline.ExitUsage, "need UE addresses"},
		{"establish --local 127.0.0.1:0 --ue4 x", cmdline.ExitUsage, `culvert: --ue4: "x" is not a prefix (fix: a prefix with its length`},
		{"establish --local 127.0.0.1:0 --ue4 10.0.0.0/8 --access 192.0.2.1", cmdline.ExitUsage, "--access-teid: is missing"},
		{"establish --local 127.0.0.1:0 --ue4 10.0.0.0/8 --dialect ella", cmdline.ExitUsage, `--dialect: "ella" is no dialect`},
		{"load --local 127.0.0.1:0 --ue4 10.0.0.0/8", cmdline.ExitError, "where to?"},
	} {
		r := s.run(t, strings.Fields(tt.args)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: %+v, want exit %d, %s", tt.args, r, tt.code, tt.want)
		}
	}
	if r := command(t.Context(), "", "smf", "associate"); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, "--upf is missing") {
		t.Errorf("%+v", r)
	}
	if r := command(t.Context(), "", "smf", "asociate"); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, `did you mean "associate"`) {
		t.Errorf("%+v", r)
	}
	silent := smfRun{"127.0.0.6:9", filepath.Join(t.TempDir(), "smf.json")}
	if r := silent.run(t, "associate", "--local", "127.0.0.1:0", "--timeout", "20ms", "--attempts", "2"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "association setup: no answer") {
		t.Errorf("%+v", r)
	}
}

// A mistake in a scenario is shown as compilers do, and as culvert check does.
func TestSMFScenarioMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	for text, want := range map[string]string{
		"sessions:\n- ue4: 10.0.0.0/8\n  cuont: 1\n- {name: b, ue4: 10.0.0.0}\n": "culvert: " + path + " is not taken:\n  " +
			path + `:3: sessions[0].cuont: unknown field (fix: did you mean "count"?)` + "\n  " + path + ":4: sessions[1].ue4: ",
		"steps: [{do: associate}]": "--upf is missing: give the UPF's address, or write it as upf into " + path,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := command(t.Context(), "", "smf", "run", path); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %s", text, r, want)
		}
	}
}

func TestSMFScenario(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	text := "upf: '" + nullUPF(t) + "'\nlocal: 127.0.0.1:0\nsessions: [{name: a, count: 2, ue4: 10.0.0.0/8}]\n" +
		"steps: [{do: associate}, {do: establish}]\nphases: {end: [{do: delete}, {do: release}]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t.Context(), "", "smf", "run", path)
	if r.code != cmdline.ExitOK || !strings.HasPrefix(r.stdout, "associate: ok") || !strings.Contains(r.stdout, "establish: ok") || !strings.Contains(r.stdout, "FTUP UEIP") {
		t.Errorf("%+v", r)
	}
	lines := `{"do": "idle", "sessions": "a", "id": "1"}

{"do": "handover", "sessions": "a", "id": "2"}
{"do": "phase", "phase": "end", "id": "3"}
`
	r = command(t.Context(), lines, "smf", "run", path, "--control", "-o", "json")
	if r.code != cmdline.ExitError || r.stderr != "culvert: failed steps from standard input: 1\n" {
		t.Errorf("%+v", r)
	}
	out := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(out) != 5 {
		t.Fatalf("%d lines: %s", len(out), r.stdout)
	}
	for i, want := range []smf.StepResult{{Step: "associate", OK: true}, {Step: "establish", OK: true}, {Step: "idle", ID: "1", OK: true}, {Step: "handover", ID: "2"}, {Step: "phase", ID: "3", OK: true}} {
		var got smf.StepResult
		if err := json.Unmarshal([]byte(out[i]), &got); err != nil || got.Step != want.Step || got.ID != want.ID || got.OK != want.OK || got.OK == (got.Error != "") {
			t.Errorf("line %d: %s", i, out[i])
		}
	}
}

// A scenario that holds ends on an interrupt, which is no failure; a step that
// is interrupted is one.
func TestSMFInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	for steps, want := range map[string]int{"[{do: associate}, {do: hold}]": cmdline.ExitOK, "[{do: wait, for: 1m}]": cmdline.ExitError} {
		text := "upf: '" + nullUPF(t) + "'\nlocal: 127.0.0.1:0\nsteps: " + steps
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		interrupted := func(after time.Duration) result {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			return command(ctx, "", "smf", "run", path, "-o", "yaml")
		}
		r := interrupted(200 * time.Millisecond)
		if r.code != want { // a busy machine was still at the first step
			r = interrupted(5 * time.Second)
		}
		if r.code != want || !strings.HasPrefix(r.stdout, "---\nstep: ") {
			t.Errorf("%s: %+v", steps, r)
		}
	}
}

// A capture is played, the differences are found, and the exit status says so.
func TestSMFReplay(t *testing.T) {
	upf, local := nullUPF(t), "127.0.0.1:0"
	r := command(t.Context(), "", "smf", "replay", "free5gc", "--upf", upf, "--local", local, "--times", "5")
	if r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "replay: ok") || !strings.Contains(r.stdout, "s1 0") {
		t.Errorf("%+v", r)
	}
	r = command(t.Context(), "", "smf", "replay", "open5gs", "--upf", upf, "--local", local, "-o", "json")
	var line smf.StepResult
	if err := json.Unmarshal([]byte(r.stdout), &line); err != nil || r.code != cmdline.ExitCheckFailed || !line.Differ || line.Replay.Matter() == 0 || !line.Replay.Complete {
		t.Errorf("%v: %+v", err, r)
	}
	for want, args := range map[string][]string{
		"--upf is missing":            {"smf", "replay", "open5gs"},
		"give a capture file":         {"smf", "replay", "nowhere.pcap", "--upf", upf, "--local", local},
		"--times: -1":                 {"smf", "replay", "open5gs", "--upf", upf, "--times", "-1"},
		`--pace: "slow"`:              {"smf", "replay", "open5gs", "--upf", upf, "--pace", "slow"},
		`--map: "192.0.2.1"`:          {"smf", "replay", "open5gs", "--upf", upf, "--map", "192.0.2.1"},
		"no such conversation":        {"smf", "replay", "open5gs", "--upf", upf, "--local", local, "--from", "192.0.2.1"},
		"give no number below 0":      {"smf", "replay", "open5gs", "--upf", upf, "--until", "-1"},
		"no tunnel of the capture is": {"smf", "replay", "open5gs", "--upf", upf, "--local", local, "--map", "192.0.2.1=192.0.2.2"},
		"not a capture":               {"smf", "replay", "smf.go", "--upf", upf, "--local", local},
		"takes a capture":             {"smf", "replay", "--upf", upf},
	} {
		if r := command(t.Context(), "", args...); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
	}
	// Who waits at the end, and is interrupted, has done what it should.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r := command(ctx, "", "smf", "replay", "free5gc", "--upf", upf, "--local", local, "--hold"); r.code != cmdline.ExitOK || !strings.Contains(r.stderr, "interrupt to end") {
		t.Errorf("%+v", r)
	}
}
