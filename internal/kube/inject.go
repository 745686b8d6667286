package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Injection is a candidate path for some nodes.
type Injection struct {
	srpolicy.Advertised
	srpolicy.DelayConstraint
	Nodes []string // whose packets take it
}

// Form is what an injector writes.
type Form string

// Forms: the ConfigMap of each node, or an SRv6Policy for each path and node.
const (
	FormConfigMap  Form = "configmap"
	FormSRv6Policy Form = "srv6policy"
)

// Forms are all of them.
func Forms() []string { return []string{string(FormConfigMap), string(FormSRv6Policy)} }

// InjectorConfig configures an injector.
type InjectorConfig struct {
	Kubeconfig string // a file; as kubectl finds it unless set
	Namespace  string // of the ConfigMaps
	Version    string // of this program
	Form       Form
	DryRun     bool // the API server says what it would do, and does not
	Force      bool // take over fields that another writer owns
}

// Event is a change of a node's paths.
type Event struct {
	Op   string // add, replace, withdraw
	Node string
	Path srpolicy.Advertised
	srpolicy.DelayConstraint
}

// injectorName is the injector among those who write an object, and in a label
// of what it wrote.
const (
	injectorName = "culvert-policy-inject"
	managerLabel = "app.kubernetes.io/managed-by"
)

// Injector writes a list of paths into a cluster: a central source of the nodes'
// paths.
type Injector struct {
	config InjectorConfig
	api    connection
}

// NewInjector reads who and where the API server is.
func NewInjector(c InjectorConfig) (*Injector, error) {
	rest, err := KubectlConfig(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := connectTo(rest, c.Version)
	return &Injector{c, api}, err
}

// CheckInjections says what is wrong with a list, by its place: "[2].color".
func CheckInjections(list []Injection) []srv6.FieldError {
	var errs []srv6.FieldError
	add := func(i int, e srv6.FieldError) {
		e.Field = fmt.Sprintf("[%d].%s", i, e.Field)
		errs = append(errs, e)
	}
	first := map[string]int{}
	for i, v := range list {
		if trafficOf(v.Color) == "" {
			add(i, srv6.FieldError{Field: "color", Problem: fmt.Sprintf("%d is none of a cluster's", v.Color), Fix: "give 4 for a policy that carries IPv4, 6 for IPv6"})
		}
		for _, e := range slices.Concat(v.Validate(), v.Check()) {
			add(i, e)
		}
		if len(v.Nodes) == 0 {
			add(i, srv6.FieldError{Field: "headends", Problem: "is missing: nothing says which nodes take the path", Fix: "give names of nodes, here or in the command"})
		}
		name := v.name()
		if v.Name != "" {
			for _, e := range srv6.CheckName("name", v.Name) {
				add(i, e)
			}
		}
		for j, node := range v.Nodes {
			if !isNodeName(node) {
				add(i, srv6.FieldError{Field: fmt.Sprintf("headends[%d]", j), Problem: fmt.Sprintf("%q is no node's name", node), Fix: "give the name of its Node"})
			}
			if other, twice := first[policyName(node, name)]; twice {
				add(i, srv6.FieldError{Field: "name", Problem: fmt.Sprintf("%q is too like that of [%d], for node %s too", name, other, node),
					Fix: "give each candidate path its own name, or distinguisher"})
			}
			first[policyName(node, name)] = i
		}
	}
	return errs
}

// name is unique among the paths of a node.
func (v Injection) name() string {
	if v.Name != "" {
		return v.Name
	}
	name := defaultName(trafficOf(v.Color), v.Endpoint.String())
	if v.Distinguisher > 0 {
		name += fmt.Sprintf("-%d", v.Distinguisher)
	}
	return name
}

// advertised makes a candidate path of what was written before.
func (l Listed) advertised() srpolicy.Advertised {
	a := srpolicy.Advertised{Name: l.Name, Color: l.Traffic.color(), Preference: l.Preference, BindingSID: l.BSID, SegmentLists: l.SegmentLists}
	if endpoint, err := netip.ParseAddr(l.EgressNode); err == nil { // else it is the name of a node
		a.Endpoint = endpoint
	}
	return a
}

// Set writes exactly a list: it adds new paths, replaces changed ones and withdraws
// those that an injector wrote and the list lacks. A list with errors changes
// nothing.
func (in *Injector) Set(ctx context.Context, list []Injection) ([]Event, error) {
	if faults := faultsOf(CheckInjections(list)); len(faults) > 0 {
		return nil, config.Errors(faults)
	}
	wanted := map[string]map[string]Listed{} // by node and name
	for _, v := range list {
		listed := Listed{
			Name: v.name(), EgressNode: v.Endpoint.String(), Traffic: trafficOf(v.Color), BSID: v.BindingSID,
			Preference: v.Preference, SegmentLists: v.SegmentLists, DelayConstraint: v.DelayConstraint,
		}
		for _, node := range v.Nodes {
			if wanted[node] == nil {
				wanted[node] = map[string]Listed{}
			}
			wanted[node][listed.Name] = listed
		}
	}
	if in.config.Form == FormSRv6Policy {
		return in.setPolicies(ctx, wanted)
	}
	return in.setConfigMaps(ctx, wanted)
}

// Absent are the nodes of a list that the cluster does not have; none where the
// rights do not suffice to see that.
func (in *Injector) Absent(ctx context.Context, list []Injection) (absent []string) {
	nodes, err := in.api.metadata.Resource(nodeResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	there := map[string]bool{}
	for _, n := range nodes.Items {
		there[n.Name] = true
	}
	for _, v := range list {
		for _, node := range v.Nodes {
			if !there[node] {
				absent, there[node] = append(absent, node), true
			}
		}
	}
	return absent
}

// compare finds what changes for a node.
func compare(node string, before, now map[string]Listed) (events []Event) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		old, there := before[name]
		switch {
		case !there:
			events = append(events, Event{"add", node, now[name].advertised(), now[name].DelayConstraint})
		case !reflect.DeepEqual(old.effective(), now[name].effective()):
			events = append(events, Event{"replace", node, now[name].advertised(), now[name].DelayConstraint})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := now[name]; !stays {
			events = append(events, Event{"withdraw", node, before[name].advertised(), before[name].DelayConstraint})
		}
	}
	return events
}

// effective has the defaults filled in.
func (l Listed) effective() Listed {
	l.Preference = cmp.Or(l.Preference, DefaultPreference)
	if len(l.SegmentList) > 0 {
		l.SegmentLists, l.SegmentList = []srpolicy.SegmentList{{Segments: l.SegmentList}}, nil
	}
	l.SegmentLists = weighted(l.SegmentLists)
	return l
}

// ours lists what injectors wrote.
func (in *Injector) ours(ctx context.Context, r dynamic.ResourceInterface) ([]unstructured.Unstructured, error) {
	list, err := r.List(ctx, metav1.ListOptions{LabelSelector: managerLabel + "=" + injectorName})
	if err != nil {
		return nil, fmt.Errorf("list what injectors wrote: %w", err)
	}
	return list.Items, nil
}

// setConfigMaps writes the ConfigMap of each node that is concerned.
func (in *Injector) setConfigMaps(ctx context.Context, wanted map[string]map[string]Listed) (events []Event, err error) {
	resource := in.api.objects.Resource(configMapResource).Namespace(in.config.Namespace)
	ours, err := in.ours(ctx, resource)
	if err != nil {
		return nil, err
	}
	nodes := maps.Clone(wanted)
	for _, u := range ours {
		if node, is := strings.CutPrefix(u.GetName(), ListingName("")); is {
			nodes[node] = wanted[node]
		}
	}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		before, err := in.listingOf(ctx, resource, node)
		if err != nil {
			return events, err
		}
		written := map[string]Listed{}
		for _, l := range before.Policies {
			l.Name = cmp.Or(l.Name, defaultName(l.Traffic, l.EgressNode))
			written[l.Name] = l
		}
		changes := compare(node, written, wanted[node])
		if len(changes) == 0 {
			continue
		}
		if err := in.writeListing(ctx, resource, node, before, wanted[node]); err != nil {
			return events, err
		}
		events = append(events, changes...)
	}
	return events, nil
}

// listingOf is what a node's ConfigMap says, as far as it can be read: what
// cannot is replaced.
func (in *Injector) listingOf(ctx context.Context, r dynamic.ResourceInterface, node string) (l Listing, err error) {
	u, err := r.Get(ctx, ListingName(node), metav1.GetOptions{})
	if err != nil {
		return l, ButGone(err)
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	for _, text := range data {
		if _, err := config.Unmarshal([]byte(text), &l); err != nil {
			l = Listing{LocalSIDs: l.LocalSIDs}
		}
	}
	return l, nil
}

// writeListing writes a node's ConfigMap. Its local SIDs stay; without them and
// without policies it goes.
func (in *Injector) writeListing(ctx context.Context, r dynamic.ResourceInterface, node string, l Listing, wanted map[string]Listed) error {
	l.Node, l.Policies = node, nil
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		l.Policies = append(l.Policies, wanted[name])
	}
	if len(l.Policies) == 0 && l.LocalSIDs == (LocalSIDs{}) {
		return in.delete(ctx, r, ListingName(node))
	}
	text, err := yaml.Marshal(l)
	if err != nil {
		return err
	}
	return in.apply(ctx, r, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": ListingName(node), "namespace": in.config.Namespace,
			"labels": map[string]any{ListingLabel: "", managerLabel: injectorName}},
		"data": map[string]any{"policies.yaml": string(text)},
	}})
}

// setPolicies writes an SRv6Policy for each path and node.
func (in *Injector) setPolicies(ctx context.Context, wanted map[string]map[string]Listed) (events []Event, err error) {
	resource := in.api.objects.Resource(policyResource)
	ours, err := in.ours(ctx, resource)
	if err != nil {
		return nil, err
	}
	before := map[string]map[string]Listed{}
	for _, u := range ours {
		node, l, err := listedOf(&u)
		if err != nil {
			return nil, fmt.Errorf("SRv6Policy %s: %w", u.GetName(), err)
		}
		if before[node] == nil {
			before[node] = map[string]Listed{}
		}
		before[node][l.Name] = l
	}
	all := maps.Clone(before)
	maps.Copy(all, wanted)
	for _, node := range slices.Sorted(maps.Keys(all)) {
		for _, e := range compare(node, before[node], wanted[node]) {
			if e.Op == "withdraw" {
				err = in.delete(ctx, resource, policyName(node, e.Path.Name))
			} else {
				l := wanted[node][e.Path.Name]
				err = in.apply(ctx, resource, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": policyVersion, "kind": policyKind,
					"metadata": map[string]any{"name": policyName(node, l.Name), "labels": map[string]any{managerLabel: injectorName},
						"annotations": map[string]any{nameAnnotation: l.Name}},
					"spec": PolicySpec{Node: node, EgressNode: l.EgressNode, Traffic: l.Traffic, Preference: l.Preference, BindingSID: l.BSID,
						SegmentLists: l.SegmentLists, DelayBound: l.DelayBound, LowestDelay: l.LowestDelay},
				}})
			}
			if err != nil {
				return events, err
			}
			events = append(events, e)
		}
	}
	return events, nil
}

// nameAnnotation is the path's name: an object's cannot have its characters.
const nameAnnotation = Group + "/name"

// policyName is of the SRv6Policy with a path of a node.
func policyName(node, path string) string {
	return node + "." + strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(path)), "-")
}

func listedOf(u *unstructured.Unstructured) (node string, l Listed, err error) {
	var s PolicySpec
	text, err := json.Marshal(u.Object["spec"])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return "", l, err
	}
	return s.Node, Listed{Name: u.GetAnnotations()[nameAnnotation], EgressNode: s.EgressNode, Traffic: s.Traffic, BSID: s.BindingSID,
		Preference: s.Preference, SegmentLists: s.SegmentLists, DelayConstraint: s.delay()}, nil
}

func (in *Injector) dryRun() []string {
	if in.config.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// ErrForeign says that another writer owns the object.
var ErrForeign = errors.New("somebody else has written it")

// apply is server-side apply.
func (in *Injector) apply(ctx context.Context, r dynamic.ResourceInterface, u *unstructured.Unstructured) error {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	plain := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &plain.Object); err != nil {
		return err
	}
	_, err = r.Apply(ctx, u.GetName(), plain, metav1.ApplyOptions{FieldManager: injectorName, Force: in.config.Force, DryRun: in.dryRun()})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %s %s: %w", ErrForeign, u.GetKind(), u.GetName(), err)
	}
	return err
}

func (in *Injector) delete(ctx context.Context, r dynamic.ResourceInterface, name string) error {
	return ButGone(r.Delete(ctx, name, metav1.DeleteOptions{DryRun: in.dryRun()}))
}
