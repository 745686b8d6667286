package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A column of kubectl shows one value, and the nodes' entries are many. So a status has a summary, too:
// how many nodes are in each state. Whoever changes an entry brings it up to date, from what the API server
// answers; a node that sees it wrong does so later. It is written for the version of the object that it
// sums up, and the API server counts itself what an agent says (admission.yaml).
const summaryManager = "culvert:summary"

// byRank are the states as a summary has them.
var byRank = []string{stateActive, stateStandby, stateInvalid, stateRefused, stateWaiting}

// summaryOf is what the entries of a status come to, such as "2/3 Active, 1/3 Invalid".
func summaryOf(u *unstructured.Unstructured) string {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "nodes")
	count := map[any]int{}
	for _, n := range all {
		if fields, ok := n.(map[string]any); ok {
			count[fields["state"]]++
		}
	}
	var parts []string
	for _, state := range byRank {
		if n := count[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d/%d %s", n, len(all), state))
		}
	}
	return strings.Join(parts, ", ")
}

// summaries are the summary that an object has, and the one that it should have. Objects without the
// entries of other nodes (keepOwn) have both.
func summaries(u *unstructured.Unstructured) (said, due string) {
	said, _, _ = unstructured.NestedString(u.Object, "status", "summary")
	due, kept, _ := unstructured.NestedString(u.Object, "status", "due")
	if !kept {
		due = summaryOf(u)
	}
	return said, due
}

// isStale says that the summary of an object is not up to date.
func isStale(u *unstructured.Unstructured) bool {
	said, due := summaries(u)
	return said != due
}

// summarize brings the summary of an object up to date. Whoever has changed the object since does so.
func (w *Watcher) summarize(ctx context.Context, u *unstructured.Unstructured) error {
	said, due := summaries(u)
	if said == due {
		return nil
	}
	status := map[string]any{}
	if due != "" {
		status["summary"] = due
	}
	_, err := w.applyStatus(ctx, u, summaryManager, status)
	if apierrors.IsConflict(err) {
		return nil
	}
	return ButGone(err)
}

// summaryHeals is how long whoever changes an entry has for the summary, before others do it: each node a
// little later than the one before.
const summaryHeals = 3 * time.Second

// watchSummary has the summary of an origin's object looked at again later if it is stale.
func (w *Watcher) watchSummary(name string, u *unstructured.Unstructured) {
	if hasNodes(u) && isStale(u) {
		w.write.AddAfter(task{aboutStatus, name}, summaryHeals+rand.N(summaryHeals))
	}
}

// problem is what a node says of an object that it cannot use; empty: it can.
func (p progress) problem() string {
	if p.State == stateActive || p.State == stateStandby {
		return ""
	}
	line, _, more := strings.Cut(fmt.Sprintf("%s: %s: %s", p.Name, p.State, p.Reason), "\n")
	if more {
		line += " …"
	}
	return shortened(line, maxProblem)
}
