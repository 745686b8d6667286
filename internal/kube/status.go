package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// StatusAnnotation is where a node says of its ConfigMap what became of it.
const StatusAnnotation = Group + "/status"

// States of a candidate path, or a traffic class.
const (
	stateActive  = "Active"  // packets take it
	stateStandby = "Standby" // another one is preferred
	stateInvalid = "Invalid" // no segment list can be used
	stateRefused = "Refused" // it says what cannot be used
	stateWaiting = "Waiting" // something is not known yet
)

// progress is what a node says of a candidate path, or a traffic class.
type progress struct {
	Name   string `json:"name"` // of the path; in a status with nodes of the node
	State  string `json:"state"`
	Since  string `json:"since"` // RFC 3339
	Reason string `json:"reason,omitempty"`
	// Problem is what kubectl shows in a column: the node, the state and the reason.
	Problem string `json:"problem,omitempty"`
	// RoundTrips are of the active path's segment lists.
	RoundTrips []string `json:"roundTrips,omitempty"`
	// Generation of the SRv6Policy that it is about.
	Generation int64 `json:"observedGeneration,omitempty"`
}

// listingStatus is what a node says of its ConfigMap.
type listingStatus struct {
	Error string     `json:"error,omitempty"` // why what it says is not used
	Paths []progress `json:"paths,omitempty"`
	More  int        `json:"more,omitempty"` // active paths that are left out
}

// Limits of what is written to one object: annotations have 256 KiB, and nodes
// by the thousand need not say all that is well.
const (
	maxListedPaths = 256
	maxStatusNodes = 128
	// Of a reason: the resources' schema takes no more, and 256 of those in an annotation fit.
	maxReason       = 1024
	maxListedReason = 512
	maxProblem      = 160 // a line on a screen
)

// shortened is a text of so many characters at most.
func shortened(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// SetVerdicts writes the state of all paths to the objects that they came from.
func (w *Watcher) SetVerdicts(all []Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := map[string]Verdict{}
	for _, v := range all {
		now[v.Path] = v
	}
	for name, o := range w.origins {
		if slices.ContainsFunc(o.entries, func(e entry) bool { return now[e.path.Name] != w.verdicts[e.path.Name] }) {
			w.write.AddAfter(task{aboutStatus, name}, settlesSoon)
		}
	}
	w.verdicts = now
}

// judge brings the progress of an origin's entries up to date.
func (w *Watcher) judge(o *origin) []progress {
	entries := o.entries
	if !o.isListing() && len(entries) == 0 { // it never was what can be used
		entries = []entry{{name: o.object.GetName()}}
	}
	before := o.progress
	o.progress = map[string]progress{}
	out := make([]progress, len(entries))
	for i, e := range entries {
		p := progress{Name: e.name, Since: time.Now().UTC().Format(time.RFC3339)}
		p.State, p.Reason = w.stateOf(o, e)
		if p.Reason = shortened(p.Reason, maxReason); o.isListing() {
			p.Reason = shortened(p.Reason, maxListedReason)
		}
		p.RoundTrips = strings.Fields(w.verdicts[e.path.Name].RoundTrips)
		if old := before[e.name]; old.State == p.State {
			p.Since = old.Since
		}
		o.progress[e.name], out[i] = p, p
	}
	return out
}

func (o *origin) isListing() bool { return !hasNodes(o.object) }

func (o *origin) isClass() bool { return hasNodes(o.object) && o.object.GetKind() != policyKind }

// ours are the resources whose status has a list of nodes, by kind.
var ours = map[string]schema.GroupVersionResource{policyKind: policyResource, classKind: classResource, claimKind: claimResource}

func hasNodes(u *unstructured.Unstructured) bool { return ours[u.GetKind()].Resource != "" }

func (w *Watcher) stateOf(o *origin, e entry) (state, reason string) {
	v, judged := w.verdicts[e.path.Name]
	switch {
	case o.problem != nil && !o.isListing() && v.Active:
		return stateRefused, o.problem.Error() + "; what it said before is active"
	case o.problem != nil && !o.isListing():
		return stateRefused, o.problem.Error()
	case o.waiting[e.name] != nil:
		return stateWaiting, o.waiting[e.name].Error()
	case o.note != "":
		return stateActive, o.note
	case !judged:
		return stateWaiting, "the node has not judged it yet"
	case !v.Valid:
		return stateInvalid, v.Why
	case v.Active:
		return stateActive, v.Why
	}
	return stateStandby, v.Why
}

// Refused are the objects with paths for this node that say what cannot be used, and why, such as
// "srv6policy core: ...".
func (w *Watcher) Refused() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, o := range w.origins {
		if o.problem != nil && !o.isClass() {
			out = append(out, fmt.Sprintf("%s: %v", name, o.problem))
		}
	}
	slices.Sort(out)
	return out
}

// writeStatus says of an object what became of it.
func (w *Watcher) writeStatus(ctx context.Context, name string) error {
	w.mu.Lock()
	o := w.origins[name]
	if o == nil {
		w.mu.Unlock()
		policy, is := strings.CutPrefix(name, ofSRv6Policy)
		if !is {
			return nil
		}
		return w.applyEntry(ctx, policyKind, "", policy) // it is for this node no more
	}
	object, problem, paths := o.object, o.problem, w.judge(o)
	w.mu.Unlock()
	if !hasNodes(object) {
		return w.writeListingStatus(ctx, object, paths, problem)
	}
	own := paths[0]
	own.Name, own.Generation = w.config.Node, object.GetGeneration()
	own.Problem = own.problem()
	said := nodeStatus(object, w.config.Node)
	full := said == nil && statusNodes(object) >= maxStatusNodes
	if full || reflect.DeepEqual(said, own.fields()) {
		return w.summarize(ctx, object)
	}
	return w.applyEntry(ctx, object.GetKind(), object.GetNamespace(), object.GetName(), own.fields())
}

func (w *Watcher) writeListingStatus(ctx context.Context, u *unstructured.Unstructured, paths []progress, problem error) error {
	s := listingStatus{Paths: paths}
	if problem != nil {
		s.Error = problem.Error()
	}
	slices.SortStableFunc(s.Paths, func(a, b progress) int { // what is amiss first
		return cmp.Compare(strings.Index(byNeed, a.State), strings.Index(byNeed, b.State))
	})
	if over := len(s.Paths) - maxListedPaths; over > 0 {
		s.Paths, s.More = s.Paths[:maxListedPaths], over
	}
	text, err := json.Marshal(s)
	if err != nil || u.GetAnnotations()[StatusAnnotation] == string(text) {
		return err
	}
	return ButGone(annotate(ctx, w.api.objects.Resource(configMapResource).Namespace(u.GetNamespace()), u.GetName(), StatusAnnotation, string(text)))
}

const byNeed = stateInvalid + stateWaiting + stateStandby + stateActive

// applyEntry makes these the entries that this node has in the status of an object of ours, one or none. Each
// node is the manager of its own, so that they are never in conflict.
func (w *Watcher) applyEntry(ctx context.Context, kind, namespace, name string, entry ...any) error {
	const longest = 128
	manager := "culvert:" + w.config.Node
	if len(manager) > longest {
		sum := sha256.Sum256([]byte(manager))
		manager = fmt.Sprintf("culvert:%x", sum[:16])
	}
	u := &unstructured.Unstructured{}
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	got, err := w.applyStatus(ctx, u, manager, map[string]any{"nodes": append([]any{}, entry...)})
	if err != nil {
		return ButGone(err)
	}
	return w.summarize(ctx, got)
}

// applyStatus makes these the fields of a status that a manager has. Where of has a version, the object must
// still have it.
func (w *Watcher) applyStatus(ctx context.Context, of *unstructured.Unstructured, manager string, status map[string]any) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": policyVersion, "kind": of.GetKind(), "status": status}}
	u.SetName(of.GetName())
	u.SetNamespace(of.GetNamespace())
	u.SetResourceVersion(of.GetResourceVersion())
	return w.api.objects.Resource(ours[of.GetKind()]).Namespace(of.GetNamespace()).ApplyStatus(ctx, of.GetName(), u, metav1.ApplyOptions{FieldManager: manager, Force: true})
}

// fields are p as the API has it.
func (p progress) fields() map[string]any {
	f := map[string]any{"name": p.Name, "state": p.State, "since": p.Since, "observedGeneration": p.Generation}
	if p.Reason != "" {
		f["reason"] = p.Reason
	}
	if p.Problem != "" {
		f["problem"] = p.Problem
	}
	if len(p.RoundTrips) > 0 {
		var list []any
		for _, text := range p.RoundTrips {
			list = append(list, text)
		}
		f["roundTrips"] = list
	}
	return f
}

// progressOf is what a node said of an object's paths before.
func progressOf(u *unstructured.Unstructured, node string) map[string]progress {
	out := map[string]progress{}
	if hasNodes(u) {
		said := nodeStatus(u, node)
		state, _ := said["state"].(string)
		since, _ := said["since"].(string)
		out[u.GetName()] = progress{State: state, Since: since}
		return out
	}
	var s listingStatus
	if err := json.Unmarshal([]byte(u.GetAnnotations()[StatusAnnotation]), &s); err != nil {
		return out // nobody has said anything yet, or somebody else did
	}
	for _, p := range s.Paths {
		out[p.Name] = p
	}
	return out
}

// saidOf is what an object has of what a node said.
func saidOf(u *unstructured.Unstructured, node string) any {
	if hasNodes(u) {
		return nodeStatus(u, node)
	}
	return u.GetAnnotations()[StatusAnnotation]
}

// annotate sets an annotation of an object, whatever else it has.
func annotate(ctx context.Context, r dynamic.ResourceInterface, name, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = r.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// ButGone leaves out that an object does not exist any more.
func ButGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
