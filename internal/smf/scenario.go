package smf

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/smf/replay"
)

// Scenario is what an SMF does with a UPF, step by step.
type Scenario struct {
	// UPF, Local, NodeID, Dialect and the times are Options'. Addresses are
	// with a port or without.
	UPF       string   `json:"upf,omitempty"`
	Local     string   `json:"local,omitempty"`
	NodeID    string   `json:"node_id,omitempty"`
	Dialect   Dialect  `json:"dialect,omitempty"`
	Timeout   Duration `json:"timeout,omitempty"`
	Attempts  int      `json:"attempts,omitempty"`
	Heartbeat Duration `json:"heartbeat,omitempty"`
	// Started is the Recovery Time Stamp; when the client starts, unless set.
	Started  time.Time `json:"recovery_time_stamp,omitzero"`
	Sessions []Spec    `json:"sessions,omitempty"`
	// Replay is a captured conversation, in place of sessions; steps {do: replay}
	// play it, and call the copies of its n-th session the group "sN".
	Replay *replay.Settings `json:"replay,omitempty"`
	// Steps are done one after another; Phases when a step {do: phase} asks for
	// them.
	Steps  []Step            `json:"steps,omitempty"`
	Phases map[string][]Step `json:"phases,omitempty"`
}

// Step is one thing to do.
type Step struct {
	// Do: associate, establish, handover, idle, page, query, modify, delete,
	// load, show, release, replay, wait, hold or phase.
	Do string `json:"do"`
	// Sessions names the group; empty: all groups, one after another. First
	// and Count choose among its sessions.
	Sessions string `json:"sessions,omitempty"`
	First    int    `json:"first,omitempty"`
	Count    int    `json:"count,omitempty"`
	// Rate a second, and Window: as of Pace.
	Rate   float64 `json:"rate,omitempty"`
	Window int     `json:"window,omitempty"`
	// Access is the new tunnel of a handover, or of a UE that is paged; session
	// i has TEID + i.
	Access *Tunnel `json:"access,omitempty"`
	// EndMarker of a handover: asked for unless it is false.
	EndMarker *bool `json:"end_marker,omitempty"`
	// Change of a modify.
	Change *Change `json:"change,omitempty"`
	// For is how long to wait.
	For Duration `json:"for,omitempty"`
	// Timeout of a page: how long to wait for downlink data reports (30 s
	// unless set); of a replay: how long for each report of the capture (not at
	// all unless set). Now: do not wait for them.
	Timeout Duration `json:"timeout,omitempty"`
	Now     bool     `json:"now,omitempty"`
	// Until is the frame of the capture up to which a replay goes; its end unless
	// set.
	Until int `json:"until,omitempty"`
	// Phase to do.
	Phase string `json:"phase,omitempty"`
	// ID comes back with the result.
	ID string `json:"id,omitempty"`
}

// verbs are all that a step can do, and whether it is about sessions.
var verbs = map[string]bool{
	"associate": false, "release": false, "wait": false, "hold": false, "phase": false, "replay": false,
	"establish": true, "handover": true, "idle": true, "page": true, "query": true, "modify": true, "delete": true, "load": true, "show": true,
}

// ParseScenario reads YAML or JSON, strictly, and checks that each step makes
// sense. Its error is a config.Errors, with lines.
func ParseScenario(text []byte) (*Scenario, error) {
	s := &Scenario{}
	lines, err := config.Unmarshal(text, s)
	if err != nil {
		return nil, err
	}
	if list := s.check(lines); len(list) > 0 {
		return nil, lines.Of(list)
	}
	return s, nil
}

// ScenarioOf is ParseScenario for what is not in a file of its own: a value with the
// fields of a scenario. Its errors have no lines.
func ScenarioOf(value any) (*Scenario, error) {
	text, err := yaml.Marshal(value)
	if err != nil {
		return nil, err
	}
	s, err := ParseScenario(text)
	if list, ok := errors.AsType[config.Errors](err); ok {
		for i := range list {
			list[i].Line = 0
		}
		err = list
	}
	return s, err
}

// check completes the scenario, and says what is wrong. lines has the fields that are set.
func (s *Scenario) check(lines config.Lines) config.Errors {
	s.Dialect = cmp.Or(s.Dialect, Open5GS)
	list := append(s.Dialect.check(), s.checkReplay()...)
	none := func(at string, count int) {
		if _, isSet := lines[at+".count"]; isSet && count == 0 {
			list = append(list, config.Error{Field: at + ".count", Problem: "must not be 0", Fix: "1 or more, or leave it out"})
		}
	}
	names := map[string]bool{}
	for i := range s.Sessions {
		at := fmt.Sprintf("sessions[%d]", i)
		none(at, s.Sessions[i].Count)
		list = append(list, s.Sessions[i].complete(at, s.Dialect)...)
		name := s.Sessions[i].Name
		list = append(list, faults(at, "", fault{names[name], "name", "give one another name", "two session groups are called " + name})...)
		names[name] = true
	}
	steps := func(where string, steps []Step) {
		for i := range steps {
			at := fmt.Sprintf("%s[%d]", where, i)
			none(at, steps[i].Count)
			list = append(list, s.checkStep(at, &steps[i])...)
		}
	}
	steps("steps", s.Steps)
	for _, name := range slices.Sorted(maps.Keys(s.Phases)) {
		steps("phases."+name, s.Phases[name])
		isPhase := func(p Step) bool { return p.Do == "phase" }
		list = append(list, faults("phases."+name, "", fault{slices.ContainsFunc(s.Phases[name], isPhase), "", "list the steps of that phase", "a phase has no phases"})...)
	}
	return list
}

// ParseStep reads a step in JSON.
func (s *Scenario) ParseStep(line []byte) (Step, error) {
	var p Step
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("a step is a line of JSON: %w", err)
	}
	return p, asError(s.checkStep("", &p))
}

// checkStep says what the step at a path lacks, or has too much.
func (s *Scenario) checkStep(at string, p *Step) config.Errors {
	about, known := verbs[p.Do]
	wrong := func(field, fix, format string, args ...any) config.Errors {
		return faults(at, "", fault{true, field, fix, p.Do + ": " + fmt.Sprintf(format, args...)})
	}
	switch {
	case !known:
		return faults(at, "", fault{true, "do", oneOf(slices.Sorted(maps.Keys(verbs))), fmt.Sprintf("%q is no step", p.Do)})
	case p.Sessions != "" && !about:
		return wrong("sessions", "remove it", "it is about no sessions")
	case s.Replay != nil && about && p.Do != "show":
		return wrong("do", "{do: replay}", "the sessions are those of a capture, whose requests replay sends")
	case s.Replay != nil && about:
		return nil // what sessions the capture has is known once it is read
	case p.Do == "replay" && s.Replay == nil:
		return wrong("do", "say which capture, as replay: {capture: FILE}", "the scenario has no replay")
	case p.Until != 0 && p.Do != "replay":
		return wrong("until", "remove it", "until is of a replay")
	case p.Sessions != "" && !slices.ContainsFunc(s.Sessions, func(g Spec) bool { return g.Name == p.Sessions }):
		return wrong("sessions", "the name of one of sessions", "no session group is called %q", p.Sessions)
	case about && len(s.Sessions) == 0:
		return wrong("do", "list some under sessions", "the scenario has no sessions")
	case p.Do == "handover" && p.Access == nil:
		return wrong("access", "the tunnel to move to: {address: 192.0.2.2, teid: 0x2000}", "access is missing")
	case p.Do == "modify" && p.Change == nil:
		return wrong("change", "what to change: mbr, gates, uplink, downlink, core, urr or drop_buffered", "change is missing")
	case p.Do == "wait" && p.For == 0:
		return wrong("for", "how long, such as 2s", "for is missing")
	case p.Do == "phase" && s.Phases[p.Phase] == nil:
		return wrong("phase", "the name of one of phases", "no phase is called %q", p.Phase)
	}
	return nil
}

// checkReplay says what is wrong with a captured conversation.
func (s *Scenario) checkReplay() config.Errors {
	switch {
	case s.Replay == nil:
		return nil
	case len(s.Sessions) > 0:
		return faults("", "", fault{true, "replay", "remove replay, or sessions", "a scenario plays a capture, or has sessions of its own: not both"})
	}
	if err := s.Replay.Complete(); err != nil {
		return faults("", "", fault{true, "replay", "", err.Error()})
	}
	return nil
}

// Options of a Client for the scenario.
func (s *Scenario) Options() (Options, error) {
	o := Options{
		NodeID: s.NodeID, Dialect: s.Dialect, Timeout: time.Duration(s.Timeout), Attempts: s.Attempts, Heartbeat: time.Duration(s.Heartbeat),
		Started: s.Started,
	}
	if s.UPF == "" {
		return o, errors.New("upf is missing: give the UPF's address")
	}
	var err error
	if o.UPF, err = ParseAddr(s.UPF); err != nil {
		return o, fmt.Errorf("upf: %w", err)
	}
	if s.Local != "" {
		if o.Local, err = ParseAddr(s.Local); err != nil {
			return o, fmt.Errorf("local: %w", err)
		}
	}
	return o, nil
}

// ParseAddr reads an address with a port, or without: then it is PFCP's.
func ParseAddr(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(a, Port), nil
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, fmt.Errorf("%q is no address such as 192.0.2.8, [2001:db8::8]:8805", text)
	}
	return a, nil
}

// StepResult is what became of a step.
type StepResult struct {
	Step        string       `json:"step"`
	ID          string       `json:"id,omitempty"`
	OK          bool         `json:"ok"`
	Error       string       `json:"error,omitempty"`
	Seconds     float64      `json:"seconds"`
	Association *Association `json:"association,omitempty"`
	// Results, one for each procedure and group.
	Results []GroupResult `json:"results,omitempty"`
	// Replay is what became of a captured conversation; Differ says that it was played
	// to where it should, and that the UPF differs in what matters.
	Replay *replay.Result `json:"replay,omitempty"`
	Differ bool           `json:"differ,omitempty"`
	// Sessions, the first of them.
	Sessions []Info `json:"sessions,omitempty"`
	// Steps of a phase.
	Steps []StepResult `json:"steps,omitempty"`
}

// GroupResult is what became of one procedure for one group.
type GroupResult struct {
	Group string `json:"group"`
	Result
}

// shown is how many sessions a result lists: a million would help nobody.
const shown = 16

// Runner does the steps of a scenario.
type Runner struct {
	client   *Client
	scenario *Scenario
	player   *replay.Player // nil: there is nothing to replay
	// Progress, if set, is called with how far a step is.
	Progress func(step string, done, of int)
}

// NewRunner adds the scenario's session groups that the client does not have.
func NewRunner(c *Client, s *Scenario) (*Runner, error) {
	groups := c.Groups()
	for _, spec := range s.Sessions {
		if slices.ContainsFunc(groups, func(g *Group) bool { return g.spec.Name == spec.Name }) {
			continue
		}
		if _, err := c.Add(spec); err != nil {
			return nil, err
		}
	}
	r := &Runner{client: c, scenario: s}
	if s.Replay != nil {
		settings := *s.Replay
		if err := settings.Complete(); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		if settings.NodeID == "" {
			settings.NodeID = s.NodeID
		}
		var err error
		if r.player, err = c.Replay(settings); err != nil {
			return nil, err
		}
		r.player.Progress = func(done, of int) {
			if r.Progress != nil {
				r.Progress("replay", done*settings.Times, of*settings.Times)
			}
		}
	}
	return r, nil
}

// Do does one step. What fails is in the result.
func (r *Runner) Do(ctx context.Context, p Step) StepResult {
	began := time.Now()
	result := StepResult{Step: p.Do, ID: p.ID}
	err := r.do(ctx, &p, &result)
	for i := range result.Results {
		err = errors.Join(err, result.Results[i].Err())
	}
	result.OK, result.Seconds = err == nil, time.Since(began).Seconds()
	if err != nil {
		result.Error = err.Error()
	}
	return result
}

func (r *Runner) do(ctx context.Context, p *Step, result *StepResult) error {
	switch p.Do {
	case "associate":
		a, err := r.client.Associate(ctx)
		result.Association = &a
		return err
	case "release":
		return r.client.Release(ctx)
	case "wait":
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(p.For)):
			return nil
		}
	case "hold":
		<-ctx.Done()
		return nil
	case "replay":
		return r.replay(ctx, p, result)
	case "phase":
		for _, step := range r.scenario.Phases[p.Phase] {
			one := r.Do(ctx, step)
			result.Steps = append(result.Steps, one)
			if !one.OK {
				return fmt.Errorf("phase %s: %s", p.Phase, one.Error)
			}
		}
		return nil
	}
	if r.player != nil {
		return r.showReplayed(p, result)
	}
	for _, g := range r.client.Groups() {
		if p.Sessions != "" && p.Sessions != g.spec.Name || p.Do == "query" && p.Sessions == "" && g.spec.URR == nil {
			continue
		}
		if err := r.group(ctx, g, p, result); err != nil {
			return err
		}
	}
	return nil
}

// group does a step for one group of sessions.
func (r *Runner) group(ctx context.Context, g *Group, p *Step, result *StepResult) error {
	pace := Pace{First: p.First, Count: p.Count, Rate: p.Rate, Window: p.Window}
	if r.Progress != nil {
		pace.Progress = func(done, of int) { r.Progress(p.Do+" "+g.spec.Name, done, of) }
	}
	for _, procedure := range g.procedures(p) {
		one, err := procedure(ctx, pace)
		if one.Procedure != "" {
			result.Results = append(result.Results, GroupResult{g.spec.Name, one})
		}
		if err != nil {
			return err
		}
	}
	if slices.Contains([]string{"show", "establish", "handover", "page"}, p.Do) {
		first, end := pace.span(len(g.state))
		for i := first; i < min(end, first+shown); i++ {
			result.Sessions = append(result.Sessions, g.Info(i))
		}
	}
	return nil
}

// perform does a procedure for the sessions that a pace selects.
type perform func(context.Context, Pace) (Result, error)

// procedures are those of a step, to be done one after another.
func (g *Group) procedures(p *Step) []perform {
	forward := func(name string) perform {
		return func(ctx context.Context, pace Pace) (Result, error) {
			return g.run(ctx, pace, g.forwarding(name, p.Access, (*encoder).forward))
		}
	}
	switch p.Do {
	case "establish":
		if g.spec.Access == nil {
			return []perform{g.Establish}
		}
		return []perform{g.Establish, g.Forward}
	case "handover":
		return []perform{func(ctx context.Context, pace Pace) (Result, error) {
			return g.Handover(ctx, pace, *p.Access, p.EndMarker == nil || *p.EndMarker)
		}}
	case "idle":
		return []perform{g.Idle}
	case "page":
		if p.Now {
			return []perform{forward("page")}
		}
		return []perform{func(ctx context.Context, pace Pace) (Result, error) {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(p.Timeout), 30*time.Second))
			defer cancel()
			return g.Page(ctx, pace, p.Access)
		}}
	case "query":
		return []perform{g.Query}
	case "modify":
		return []perform{func(ctx context.Context, pace Pace) (Result, error) { return g.Modify(ctx, pace, *p.Change) }}
	case "load": // figures are wanted, not usage
		return []perform{g.Establish, forward("modify"), func(ctx context.Context, pace Pace) (Result, error) { return g.delete(ctx, pace, false) }}
	case "delete":
		return []perform{g.Delete}
	}
	return nil
}
