package api_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// refuser is a member that refuses nodes and paths, and whom the others refuse.
type refuser struct{ *apitest.Agent }

func (r refuser) Status() (agent.Status, error) {
	s, err := r.Agent.Status()
	s.Overlay.Problems = []string{agent.ProblemOthers + "refuse this node: why", "eth1 is down", agent.ProblemRefused + "srv6policy core: spec.node"}
	return s, err
}

func (r refuser) Nodes() ([]agent.NodeStatus, error) {
	node := func(name string, policies []string, problems ...string) agent.NodeStatus {
		return agent.NodeStatus{Node: overlay.Node{Name: name}, Policies: policies, Problems: problems}
	}
	return []agent.NodeStatus{node("node-2", []string{"node-2:ipv4"}), node("node-3", nil, "locator", "address"), node("node-4", []string{"node-4:ipv4"}, "prefix")}, nil
}

func (r refuser) Policies() ([]agent.PolicyStatus, error) {
	policy := func(name string, paths ...srpolicy.Verdict) agent.PolicyStatus {
		return agent.PolicyStatus{Policy: srpolicy.Policy{Name: name}, Paths: paths}
	}
	return []agent.PolicyStatus{policy("node-2:ipv4", srpolicy.Verdict{Valid: true}, srpolicy.Verdict{Path: "far", Why: "no route"}),
		policy("node-4:ipv4", srpolicy.Verdict{Why: "is down"}), policy("new")}, nil
}

// What the daemon refuses gets to the checks of its machine.
func TestDoctorOfRefuser(t *testing.T) {
	path := socket(t)
	var got *api.Membership
	serve(t, config.API{Socket: path}, refuser{apitest.New(load(t, "overlay.yaml"))}, func(_ context.Context, e api.Examination) ([]api.Finding, error) {
		got = e.Overlay
		return nil, nil
	})
	if _, err := dial(t, api.Endpoint{Socket: path}).Doctor(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := &overlay.Faults{
		Self: []string{"other nodes refuse this node: why"}, Refused: []string{"node-3: locator; address"}, Partly: []string{"node-4: prefix"},
		NoPath: []string{"node-4:ipv4: is down"}, Paths: []string{"srv6policy core: spec.node", "far of node-2:ipv4: no route"},
	}
	if !reflect.DeepEqual(got.Faults, want) || len(got.Nodes) != 3 {
		t.Errorf("%d nodes, %+v, want %+v", len(got.Nodes), got.Faults, want)
	}
}
