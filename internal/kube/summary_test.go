package kube

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// classOfThree is a class of which two other nodes have said something.
const classOfThree = `{kind: SRv6TrafficClass, metadata: {name: voice}, spec: {color: 100, match: {dscp: [46]}}, status: {nodes: [{name: node-2, state: Active}, {name: node-3, state: Invalid}]}}`

func (c *cluster) waitsSummary(r schema.GroupVersionResource, name, summary string) (said *unstructured.Unstructured) {
	c.t.Helper()
	waits(c.t, name+": "+summary, func() bool {
		o, err := c.objects.Tracker().Get(r, "", name)
		c.must(err)
		said = o.(*unstructured.Unstructured)
		got, _, _ := unstructured.NestedString(said.Object, "status", "summary")
		return got == summary
	})
	return said
}

// A summary counts what all nodes say, whoever was the last one, and a problem has its node and a line.
func TestSummary(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.apply(classResource, classOfThree)
	w, _, stop := c.starts(Known{})
	c.waitsSummary(classResource, "voice", "1/3 Active, 1/3 Invalid, 1/3 Waiting")
	w.SetVerdicts([]Verdict{{Path: "kube:voice", Valid: true, Active: true, Why: "well"}})
	said := c.waitsSummary(classResource, "voice", "2/3 Active, 1/3 Invalid")
	if own := nodeStatus(said, me); own["problem"] != nil {
		t.Errorf("a problem where there is none: %v", own)
	}
	w.SetVerdicts([]Verdict{{Path: "kube:voice", Active: true, Why: "no policy has color 100\nand " + strings.Repeat("more ", 100)}})
	said = c.waitsSummary(classResource, "voice", "1/3 Active, 2/3 Invalid")
	if own := nodeStatus(said, me); own["problem"] != "node-1: Invalid: no policy has color 100 …" {
		t.Errorf("problem %q", own["problem"])
	}
	change := func(fields map[string]any) {
		said := said.DeepCopy()
		for name, value := range fields {
			c.must(unstructured.SetNestedField(said.Object, value, "status", name))
		}
		c.must(c.objects.Tracker().Update(classResource, said, ""))
	}
	// Another node ends before it has written the summary.
	nodes, _, _ := unstructured.NestedSlice(said.Object, "status", "nodes")
	nodes[1].(map[string]any)["state"] = stateActive
	change(map[string]any{"nodes": nodes})
	said = c.waitsSummary(classResource, "voice", "2/3 Active, 1/3 Invalid")
	// An agent of an older version has written none.
	stop()
	change(map[string]any{"summary": ""})
	c.starts(Known{})
	c.waitsSummary(classResource, "voice", "2/3 Active, 1/3 Waiting")
}

// So it is with policies; others wait a moment before they do what a node has left undone.
func TestSummaryOfAPolicy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.says(other("node-2", "2001:db8::2"))
	c.policy("core", 1, policySpec)
	w, _, _ := c.starts(Known{})
	c.waitsSummary(policyResource, "core", "1/1 Waiting")
	w.SetVerdicts([]Verdict{{Path: "srv6policy:core", Valid: true, Active: true}})
	said := c.waitsSummary(policyResource, "core", "1/1 Active").DeepCopy()
	time.Sleep(5 * settlesSoon) // this node has nothing to write any more
	nodes, _, _ := unstructured.NestedSlice(said.Object, "status", "nodes")
	c.must(unstructured.SetNestedSlice(said.Object, append(nodes, map[string]any{"name": "node-2", "state": stateRefused}), "status", "nodes"))
	c.must(c.objects.Tracker().Update(policyResource, said, ""))
	c.waitsSummary(policyResource, "core", "1/2 Active, 1/2 Refused")
}

// The sum of an object that has changed since is left to whoever changed it.
func TestSummaryOfAnOldVersion(t *testing.T) {
	c := newCluster(t)
	c.apply(classResource, classOfThree)
	w, _, stop := c.starts(Known{})
	old := c.waitsSummary(classResource, "voice", "1/3 Active, 1/3 Invalid, 1/3 Waiting").DeepCopy()
	stop()
	c.must(unstructured.SetNestedSlice(old.Object, nil, "status", "nodes"))
	old.SetResourceVersion(old.GetResourceVersion() + "0")
	if err := w.summarize(t.Context(), old); err != nil {
		t.Error(err)
	}
	c.waitsSummary(classResource, "voice", "1/3 Active, 1/3 Invalid, 1/3 Waiting")
}

func TestShortProblem(t *testing.T) {
	for want, p := range map[string]progress{
		"":                               {Name: me, State: stateStandby, Reason: "another one is preferred"},
		"node-1: Refused: spec is wrong": {Name: me, State: stateRefused, Reason: "spec is wrong"},
	} {
		if got := p.problem(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	long := progress{Name: strings.Repeat("n", 253), State: stateInvalid, Reason: strings.Repeat("ä", 1000)}.problem()
	if n := len([]rune(long)); n != maxProblem {
		t.Errorf("%d characters", n)
	}
}
