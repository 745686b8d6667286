package smf

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// A scenario with a mistake is refused with the place of each.
func TestParseScenario(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"nix: 1", `line 1: nix: unknown field`},
		{"sessions:\n- ue4: 10.45.0.0/16\n  network_instanc: internet", `line 3: sessions[0].network_instanc: unknown field (fix: did you mean "network_instance"?)`},
		{"sessions:\n- ue4: 10.45.0.0/16\n  count: ten", "line 3: sessions[0].count: must be a whole number"},
		{"sessions:\n- count: 2\n  ue4: 10.45.0.0", `line 3: sessions[0].ue4: "10.45.0.0" is not a prefix: its length is missing`},
		{"sessions: [{ue4: 10.45.0.0/16, count: 0}]", "sessions[0].count: must not be 0"},
		{"sessions:\n- ue4: 10.0.0.0/8\n  filters:\n  - {flow: permit in}", "line 4: sessions[0].filters[0].flow: filter protocol"},
		{"replay: {capture: open5gs, map: {192.0.2.1: x}}", `replay.map.192.0.2.1: "x" is not an IP address`},
		{"replay: {capture: open5gs, map: {x: 192.0.2.1}}", `replay.map.x: "x" is not an IP address`},
		{"sessions: [{count: 1, ue4: 10.0.0.0/8, qfi: 64}]", "line 1: sessions[0].qfi: 64 is not a QFI (fix: 1 to 63)"},
		{"sessions: [{count: 1}]", "sessions[0].ue4: the sessions need UE addresses"},
		{"sessions: [{count: 300, ue4: 10.0.0.0/24}]", "does not hold 300 addresses"},
		{"sessions: [{count: 2, ue6: '2001:db8::/64'}]", "does not hold 2 prefixes"},
		{"sessions: [{ue4: '2001:db8::/64'}]", "is not an IPv4 pool"},
		{"sessions: [{ue6: '2001:db8::/65'}]", "is not an IPv6 pool"},
		{"sessions: [{ue4: 10.0.0.0/8, choose_ue: ipv4}]", "not both"},
		{"sessions: [{choose_ue: any}]", "choose_ue"},
		{"sessions: [{ue4: 10.0.0.0/8, pdn_type: x25}]", "pdn_type"},
		{"sessions: [{ue4: 10.0.0.0/8, role: big}]", "role"},
		{"sessions: [{ue4: 10.0.0.0/8, core: {address: 192.0.2.1, teid: 1}}]", "only an intermediate UPF"},
		{"sessions: [{ue4: 10.0.0.0/8, access: {address: 192.0.2.1}}]", "sessions[0].access.teid: is missing (fix: the peer's TEID"},
		{"sessions: [{ue4: 10.0.0.0/8, access: {address: 192.0.2.1, teid: 1, interface: n6}}]", "access.interface"},
		{"sessions: [{ue4: 10.0.0.0/8, urr: {}}]", "nothing says when usage is reported"},
		{"sessions: [{ue4: 10.0.0.0/8, urr: {period: 30}}]", "urr.period: \"30\" is not a duration"},
		{"sessions: [{ue4: 10.0.0.0/8, filters: [{precedence: 1}]}]", "filters[0].flow"},
		{"sessions: [{ue4: 10.0.0.0/8, snssai: {sst: 1, sd: '12'}}]", "snssai.sd"},
		{"sessions: [{ue4: 10.0.0.0/8}, {ue4: 10.0.0.0/8}]", "two session groups are called ue"},
		{"dialect: free5gc\nsessions: [{ue4: 10.0.0.0/8}]", "chooses F-TEIDs itself"},
		{"steps: [{do: fly}]", "steps[0].do: \"fly\" is no step (fix: one of: associate, delete"},
		{"steps: [{do: establish}]", "the scenario has no sessions"},
		{"steps: [{do: associate, sessions: a}]", "about no sessions"},
		{"sessions: [{ue4: 10.0.0.0/8}]\nsteps: [{do: idle, sessions: b}]", `no session group is called "b"`},
		{"sessions: [{ue4: 10.0.0.0/8}]\nsteps: [{do: handover}]", "access is missing"},
		{"sessions: [{ue4: 10.0.0.0/8}]\nsteps: [{do: modify}]", "change is missing"},
		{"steps: [{do: wait}]", "for is missing"},
		{"steps: [{do: phase, phase: x}]", `no phase is called "x"`},
		{"phases: {a: [{do: phase, phase: a}]}", "a phase has no phases"},
	} {
		if _, err := ParseScenario([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
}

// The example is what people start from.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/smf/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseScenario(text)
	if err != nil {
		t.Fatal(err)
	}
	u := newUPF(t)
	u.change(func() {
		u.usage = ie.NewUsageReportWithinSessionModificationResponse(ie.NewURRID(1), ie.NewURSEQN(0), ie.NewUsageReportTrigger(0x80, 0, 0), ie.NewVolumeMeasurement(0x06, 0, 1, 2, 0, 0, 0))
	})
	s.UPF, s.Local = u.addr().String(), "127.0.0.1:0"
	r := runner(t, s)
	for _, step := range s.Steps {
		switch step.Do {
		case "hold":
			continue // until an interrupt
		case "page":
			// The UPF says that packets wait, as soon as it has to buffer.
			for i := range s.Sessions[0].Count {
				u.ask(message.NewSessionReportRequest(0, 0, uint64(1+i), uint32(100+i), 0, ie.NewReportType(0, 0, 0, 1), ie.NewDownlinkDataReport(ie.NewPDRID(1))))
			}
		}
		if result := r.Do(t.Context(), step); !result.OK {
			t.Errorf("%s: %s", step.Do, result.Error)
		}
	}
}

func runner(t *testing.T, s *Scenario) *Runner {
	t.Helper()
	o, err := s.Options()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r, err := NewRunner(c, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Steps say what became of them, for each group, and phases of their steps.
func TestRunner(t *testing.T) {
	u := newUPF(t)
	s, err := ParseScenario([]byte(`
upf: ` + u.addr().String() + `
local: 127.0.0.1:0
timeout: 50ms
attempts: 2
sessions:
  - {name: a, count: 20, ue4: 10.1.0.0/16, access: {address: 192.0.2.1, teid: 0x100}, urr: {period: 30s}}
  - {name: b, count: 3, ue4: 10.2.0.0/16}
phases:
  start: [{do: associate}, {do: establish}]
  none: [{do: handover, sessions: a, access: {address: 192.0.2.2, teid: 1}}, {do: idle}]
`))
	if err != nil {
		t.Fatal(err)
	}
	r := runner(t, s)
	do := func(line string) StepResult {
		t.Helper()
		step, err := s.ParseStep([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return r.Do(t.Context(), step)
	}
	got := do(`{"do": "phase", "phase": "start", "id": "x"}`)
	if !got.OK || got.ID != "x" || len(got.Steps) != 2 || got.Steps[0].Association.NodeID != "127.0.0.3" {
		t.Fatalf("%+v", got)
	}
	established := got.Steps[1]
	if len(established.Results) != 3 || established.Results[0].Requests != 20 || established.Results[2].Group != "b" || len(established.Sessions) != 16+3 {
		t.Errorf("%+v", established)
	}
	if got := do(`{"do": "handover", "sessions": "a", "first": 5, "count": 2, "access": {"address": "192.0.2.2", "teid": 512}, "end_marker": false}`); !got.OK || got.Results[0].Requests != 2 || got.Sessions[0].Peer.TEID != 517 {
		t.Errorf("%+v", got)
	}
	goes(t, u, "192.0.2.2", 518, false)
	if got := do(`{"do": "query"}`); !got.OK || len(got.Results) != 1 {
		t.Errorf("a group without URR is asked for usage: %+v", got)
	}
	if got := do(`{"do": "page", "sessions": "a", "count": 2, "timeout": "50ms"}`); got.OK || !strings.Contains(got.Error, "no downlink data report for 2 of 2 sessions") {
		t.Errorf("%+v", got)
	}
	if got := do(`{"do": "page", "sessions": "a", "now": true}`); !got.OK || got.Results[0].Requests != 20 {
		t.Errorf("%+v", got)
	}
	if got := do(`{"do": "handover", "sessions": "b", "access": {"address": "192.0.2.2", "teid": 0}}`); got.OK || !strings.Contains(got.Error, "access.teid of handover: is missing") {
		t.Errorf("%+v", got)
	}
	began := time.Now()
	if got := do(`{"do": "wait", "for": "60ms"}`); !got.OK || time.Since(began) < 60*time.Millisecond {
		t.Errorf("%+v", got)
	}
	u.change(func() { u.lose = func(int, uint8) bool { return true } })
	if got := do(`{"do": "phase", "phase": "none"}`); got.OK || len(got.Steps) != 1 || !strings.Contains(got.Error, "phase none: handover: 20 of 20 failed") {
		t.Errorf("a phase goes on after a failure: %+v", got)
	}
	u.change(func() { u.lose = nil })
	if got := do(`{"do": "delete"}`); !got.OK || len(got.Results) != 2 || got.Results[0].Requests != 20 {
		t.Errorf("%+v", got)
	}
	u.change(func() { u.usage = ie.NewUsageReportWithinSessionModificationResponse(ie.NewURRID(1), ie.NewURSEQN(0)) })
	if got := do(`{"do": "load", "sessions": "a", "window": 8}`); !got.OK || got.Results[2].Usage != nil || len(got.Results) != 3 || got.Results[1].Procedure != "modify" || got.Results[2].Requests != 20 {
		t.Errorf("%+v", got)
	}
	for _, line := range []string{`{"do": "nix"}`, `{"doo": "idle"}`, `idle`} {
		if _, err := s.ParseStep([]byte(line)); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
}

// The responder that does nothing keeps up with a client at full speed, and
// everything that it was asked is as it should be.
func TestResponder(t *testing.T) {
	for _, dialect := range []Dialect{Open5GS, Free5GC} {
		c := dial(t, Options{UPF: responder(t), Dialect: dialect})
		if _, err := c.Associate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, s := range specs(dialect) {
			s.Name, s.Count, s.URR = name, 1000, nil
			g, err := c.Add(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, step := range []func(context.Context, Pace) (Result, error){g.Establish, g.Forward, g.Idle, g.Delete} {
				if r, err := step(t.Context(), Pace{Window: 256}); err != nil || r.Err() != nil || r.Requests != 1000 {
					t.Errorf("%s %s: %+v, %v", dialect, name, r, err)
				}
			}
		}
		if err := c.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
