package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// EngineLabel marks the SRv6Policies of a traffic engineering engine. Its value is the engine's
// name: engines of one name take over from each other.
const EngineLabel = Group + "/engine"

// engineManager is the engine among those who write an object, and in a label of what it wrote.
const engineManager = "culvert-te"

// Engine is what a traffic engineering engine reads from a cluster, and writes to it. Its methods
// may be called at any time.
type Engine struct {
	config *rest.Config
	api    connection

	mu       sync.Mutex
	accepted map[string]overlay.Node // what was used of nodes, by name
}

// NewEngine reads who and where the API server is, as kubectl finds it unless kubeconfig is a
// file. The server is not asked yet.
func NewEngine(kubeconfig, version string) (*Engine, error) {
	c, err := KubectlConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := connectTo(c, version)
	return &Engine{config: c, api: api}, err
}

// Absent is a node of the cluster that cannot be used, or with Part what of it is not, and why.
type Absent struct {
	Node, Why string
	Part      bool
}

// Nodes are the members of the overlay, as their agents publish them and as far as the cluster
// vouches for it: agents judge what others publish in the same way. namespace has their claims of
// locators. Members are sorted by name.
func (e *Engine) Nodes(ctx context.Context, namespace string, trust Trust) (members []overlay.Node, absent []Absent, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit) // a round waits for it
	defer cancel()
	nodes, h, err := e.holdings(ctx, namespace, trust)
	if err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.accepted
	e.accepted = map[string]overlay.Node{}
	for _, o := range nodes {
		if o.says == "" {
			absent = append(absent, Absent{Node: o.Name, Why: "it has published nothing: no agent is a member of the overlay there"})
			continue
		}
		n, err := member(o, h, before[o.Name], members)
		if err != nil {
			absent = append(absent, Absent{Node: o.Name, Why: fmt.Sprintf("what it publishes cannot be used: %v", err)})
			e.accepted[o.Name] = before[o.Name]
			continue
		}
		if len(n.Faults) > 0 {
			absent = append(absent, Absent{Node: o.Name, Why: strings.Join(n.Faults, ", "), Part: true})
		}
		e.accepted[o.Name] = n
		members = append(members, n)
	}
	slices.SortFunc(members, func(a, b overlay.Node) int { return strings.Compare(a.Name, b.Name) })
	return members, absent, nil
}

// holdings reads which node holds what. The nodes are sorted by age.
func (e *Engine) holdings(ctx context.Context, namespace string, trust Trust) (nodes []*otherNode, h *holdings, err error) {
	inMemory := metav1.ListOptions{ResourceVersion: "0"} // what the API server has there
	list, err := e.api.objects.Resource(nodeResource).List(ctx, inMemory)
	if err != nil {
		return nil, nil, fmt.Errorf("nodes of Kubernetes: %w", err)
	}
	for i := range list.Items {
		nodes = append(nodes, readOtherNode(&list.Items[i]))
	}
	sortByAge(nodes)
	configMaps := e.api.objects.Resource(configMapResource).Namespace(namespace)
	inMemory.LabelSelector = ClaimLabel
	if list, err = configMaps.List(ctx, inMemory); err != nil {
		return nil, nil, fmt.Errorf("claims of locators: %w", err)
	}
	var claims []*locatorClaim
	for i := range list.Items {
		if c := readLocatorClaim(&list.Items[i]); c.locator.IsValid() {
			claims = append(claims, c)
		}
	}
	earlier, err := configMaps.Get(ctx, LocatorsName, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		earlier, err = nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("locators of nodes of earlier builds: %w", err)
	}
	return nodes, holdingsOf(nodes, claims, readEarlierClaims(earlier), trust), nil
}

// member is what is used of what a node publishes, beside other members. before is what was used
// until now.
func member(o *otherNode, h *holdings, before overlay.Node, members []overlay.Node) (overlay.Node, error) {
	n, err := readNode(o.Name, o.says)
	switch {
	case err != nil && before.Name == "":
		return n, err
	case err != nil:
		n = h.use(before, o.is, before)
		n.Faults = append(n.Faults, fmt.Sprintf("what it says now is not used: %v", err))
	default:
		n = h.use(n, o.is, before)
	}
	if n.Refused != "" {
		return n, errors.New(n.Refused)
	}
	return n, rival(n, members)
}

// rival says what of a node belongs to another one.
func rival(n overlay.Node, others []overlay.Node) error {
	for _, o := range others {
		switch {
		case n.Address == o.Address:
			return fmt.Errorf("address %s is that of %s", n.Address, o.Name)
		case n.Locator.IsValid() && o.Locator.IsValid() && n.Locator.Overlaps(o.Locator):
			return fmt.Errorf("locator %s is that of %s, or in it", n.Locator, o.Name)
		case n.Locator.Contains(o.Address) || o.Locator.Contains(n.Address):
			return fmt.Errorf("its locator has the address of %s, or the other way round", o.Name)
		}
		for _, s := range slices.Concat(n.IPv4, n.IPv6) {
			if s == o.Address || o.Locator.Contains(s) || slices.Contains(o.IPv4, s) || slices.Contains(o.IPv6, s) {
				return fmt.Errorf("SID %s is that of %s", s, o.Name)
			}
		}
	}
	return nil
}

// EnginePaths are the candidate paths of an engine: SRv6Policies with its name in EngineLabel.
type EnginePaths struct {
	name string
	api  connection
}

// Paths are those of the engine with a name.
func (e *Engine) Paths(name string) (EnginePaths, error) {
	if faults := validation.IsValidLabelValue(name); len(faults) > 0 {
		return EnginePaths{}, fmt.Errorf("engine.name: %q cannot be the value of a label in Kubernetes: %s", name, strings.Join(faults, "; "))
	}
	return EnginePaths{name, e.api}, nil
}

// EnginePath is a candidate path of an engine. A policy has two at most: the one that packets
// take, and a repair path.
type EnginePath struct {
	srpolicy.Advertised
	srpolicy.DelayConstraint
	Repair bool
}

// objectName is of the SRv6Policy with a path of a node's policy.
func (e EnginePaths) objectName(node string, p EnginePath) string {
	name := fmt.Sprintf("%s-%d-%s", e.name, p.Color, p.Endpoint)
	if p.Repair {
		name += "-repair"
	}
	return policyName(node, name)
}

// PathName is what a node's agent calls a path, of which color, endpoint and Repair count.
func (e EnginePaths) PathName(node string, p EnginePath) string {
	return pathName("srv6policy", e.objectName(node, p))
}

// Put writes candidate paths of a node, each by itself. What somebody else has written stays, and
// is an error.
func (e EnginePaths) Put(ctx context.Context, node string, paths []EnginePath) error {
	errs := make([]error, len(paths))
	for i, a := range paths {
		if err := e.put(ctx, node, a); err != nil {
			errs[i] = fmt.Errorf("SRv6Policy %s: %w", e.objectName(node, a), err)
		}
	}
	return errors.Join(errs...)
}

func (e EnginePaths) policies() dynamic.ResourceInterface {
	return e.api.objects.Resource(policyResource)
}

// put writes one. It does not overwrite what changes at the same time.
func (e EnginePaths) put(ctx context.Context, node string, a EnginePath) error {
	spec, err := fieldsOf(engineSpec(node, a))
	if err != nil {
		return err
	}
	name := e.objectName(node, a)
	u, err := e.policies().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		u = &unstructured.Unstructured{Object: map[string]any{"apiVersion": policyVersion, "kind": policyKind, "spec": spec}}
		u.SetName(name)
		u.SetLabels(map[string]string{EngineLabel: e.name, managerLabel: engineManager})
		_, err = e.policies().Create(ctx, u, metav1.CreateOptions{FieldManager: engineManager})
		return err
	case err != nil:
		return err
	case u.GetLabels()[EngineLabel] != e.name:
		return e.foreign()
	case sameSpec(u, spec):
		return nil
	}
	u.Object["spec"] = spec
	_, err = e.policies().Update(ctx, u, metav1.UpdateOptions{FieldManager: engineManager})
	return err
}

// Remove deletes candidate paths of a node, each by itself, of which color, endpoint and Repair count.
// What somebody else has written stays, and is an error.
func (e EnginePaths) Remove(ctx context.Context, node string, paths []EnginePath) error {
	errs := make([]error, len(paths))
	for i, p := range paths {
		name := e.objectName(node, p)
		u, err := e.policies().Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && u.GetLabels()[EngineLabel] != e.name:
			err = e.foreign()
		case err == nil:
			err = e.delete(ctx, u)
		}
		if err = ButGone(err); err != nil {
			errs[i] = fmt.Errorf("SRv6Policy %s: %w", name, err)
		}
	}
	return errors.Join(errs...)
}

func (e EnginePaths) foreign() error {
	return fmt.Errorf("%w: it has no label %s: %s", ErrForeign, EngineLabel, e.name)
}

// delete deletes an object that is still the one that was read.
func (e EnginePaths) delete(ctx context.Context, u *unstructured.Unstructured) error {
	uid := u.GetUID()
	return ButGone(e.policies().Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
}

// engineSpec is the spec of a candidate path, with the API's defaults.
func engineSpec(node string, a EnginePath) PolicySpec {
	s := PolicySpec{Node: node, EgressNode: a.Endpoint.String(), Traffic: trafficOf(a.Color), Preference: a.EffectivePreference(),
		DelayBound: a.DelayBound, LowestDelay: a.LowestDelay}
	if s.Traffic == "" {
		s.Color = a.Color
	}
	for _, l := range a.SegmentLists {
		s.SegmentLists = append(s.SegmentLists, srpolicy.SegmentList{Weight: cmp.Or(l.Weight, 1), Segments: l.Segments})
	}
	return s
}

// fieldsOf is a value as the API has it.
func fieldsOf(v any) (fields map[string]any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"kind":"x","apiVersion":"x","spec":` + string(text) + `}`)); err != nil {
		return nil, err
	}
	fields, _, err = unstructured.NestedMap(u.Object, "spec")
	return fields, err
}

func sameSpec(u *unstructured.Unstructured, spec map[string]any) bool {
	there, _, err := unstructured.NestedMap(u.Object, "spec")
	return err == nil && reflect.DeepEqual(there, spec)
}

// Withdraw deletes the engine's SRv6Policies, and returns their names.
func (e EnginePaths) Withdraw(ctx context.Context) (removed []string, err error) {
	all, err := e.policies().List(ctx, metav1.ListOptions{LabelSelector: EngineLabel + "=" + e.name})
	if err != nil {
		return nil, fmt.Errorf("SRv6Policies of engine %s: %w", e.name, err)
	}
	var errs []error
	for i := range all.Items {
		name := all.Items[i].GetName()
		if err := e.delete(ctx, &all.Items[i]); err != nil {
			errs = append(errs, fmt.Errorf("SRv6Policy %s: %w", name, err))
			continue
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(errs...)
}
