package kube

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/culvert-net/culvert/internal/logevent"
)

// observeClasses reports the traffic classes of the cluster if they have changed.
func (w *Watcher) observeClasses(ctx context.Context, h Handler) {
	if !w.classes.complete() || !w.classClaims.complete() {
		return
	}
	v := &classView{endpoints: w.endpoints, specs: map[string]ClassSpec{}, claims: map[*unstructured.Unstructured]ClaimSpec{}, claimed: map[string]int{},
		found: map[string]Class{}, problems: map[*unstructured.Unstructured]error{}, notes: map[*unstructured.Unstructured]string{}}
	classes, claims := inOrder(w.classes), inOrder(w.classClaims)
	if !w.followServices(ctx, v.read(classes, claims)) {
		return // it is called again when all their endpoints are known
	}
	v.takeClaims(claims)
	v.takeClasses(classes)
	w.noteClasses(slices.Concat(classes, claims), v)
	w.mu.Lock()
	same := maps.EqualFunc(v.found, w.reported.classes, func(a, b Class) bool { return reflect.DeepEqual(a, b) })
	w.reported.classes = v.found
	w.mu.Unlock()
	if !same {
		h.SetClasses(v.found)
	}
}

// noteClasses keeps what is to be said of classes and claims, and has it written.
func (w *Watcher) noteClasses(all []*unstructured.Unstructured, v *classView) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[string]bool{}
	for _, u := range all {
		name := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		there[name] = true
		o := w.origins[name]
		if o == nil {
			o = &origin{progress: progressOf(u, w.config.Node)}
			w.origins[name] = o
		}
		o.object, o.problem, o.waiting, o.note = u, v.problems[u], nil, v.notes[u]
		o.entries = []entry{{name: u.GetName(), path: Path{Name: className(u.GetNamespace(), u.GetName())}}}
		if why, waits := errors.AsType[waiting](o.problem); waits {
			o.problem, o.waiting = nil, map[string]error{u.GetName(): why}
		}
		o.problem = inShort(o.problem)
		w.write.AddAfter(task{aboutStatus, name}, settlesSoon)
	}
	maps.DeleteFunc(w.origins, func(name string, o *origin) bool { return o.isClass() && !there[name] })
}

// inOrder are the objects of a source, the oldest first.
func inOrder(s *source) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range s.informer.GetStore().List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, byAge)
	return out
}

// serviceLabel has the Service of an EndpointSlice.
const serviceLabel = "kubernetes.io/service-name"

// followed is a Service whose endpoints are watched.
type followed struct {
	*source
	end context.CancelFunc
}

// followServices watches the endpoints of these Services and no others. It says whether all
// of them are known.
func (w *Watcher) followServices(ctx context.Context, wanted map[Service]bool) (complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.services, func(s Service, f followed) bool {
		if !wanted[s] {
			f.end()
		}
		return !wanted[s]
	})
	complete = true
	for s := range wanted {
		f, there := w.services[s]
		if !there {
			source, err := w.followService(s)
			if err != nil {
				w.log.Error("cannot watch the endpoints of a Service", "event", logevent.KubeServiceUnwatched, "service", s, "error", err)
				complete = false
				continue
			}
			life, end := context.WithCancel(ctx)
			f = followed{source, end}
			w.services[s] = f
			w.run(life, source, aboutClasses)
		}
		complete = complete && f.complete()
	}
	return complete
}

func (w *Watcher) followService(s Service) (*source, error) {
	return follow(w.api.objects.Resource(sliceResource).Namespace(s.Namespace), wanted{
		name: "endpoints of " + s.String(), client: w.api.objects, example: &unstructured.Unstructured{},
		labels: labels.Set{serviceLabel: s.Name}, keep: only(keepEndpoints), changed: func(string) { w.observe.Add(task{about: aboutClasses}) },
	})
}

// endpoints are the addresses of a Service's endpoints, ready or not: what goes to one that
// is ending still has its class.
func (w *Watcher) endpoints(s Service) (out []netip.Prefix) {
	w.mu.Lock()
	f, there := w.services[s]
	w.mu.Unlock()
	if !there {
		return nil
	}
	for _, u := range inOrder(f.source) {
		list, _, _ := unstructured.NestedSlice(u.Object, "endpoints")
		for _, e := range list {
			fields, _ := e.(map[string]any)
			addresses, _, _ := unstructured.NestedStringSlice(fields, "addresses")
			for _, text := range addresses {
				if a, err := netip.ParseAddr(text); err == nil { // of type FQDN none is
					out = append(out, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(out)
}

// keepEndpoints keeps the addresses of an EndpointSlice: it may be anybody's, and large.
func keepEndpoints(u *unstructured.Unstructured) (any, error) {
	list, _, _ := unstructured.NestedSlice(u.Object, "endpoints")
	kept := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}}
	kept.SetName(u.GetName())
	kept.SetNamespace(u.GetNamespace())
	kept.SetResourceVersion(u.GetResourceVersion())
	kept.SetCreationTimestamp(u.GetCreationTimestamp())
	var endpoints []any
	for _, e := range list {
		fields, _ := e.(map[string]any)
		if addresses, _, err := unstructured.NestedSlice(fields, "addresses"); err == nil {
			endpoints = append(endpoints, map[string]any{"addresses": addresses})
		}
	}
	kept.Object["endpoints"] = endpoints
	return kept, nil
}

// lean drops of an object what is never read.
func lean(u *unstructured.Unstructured) (any, error) {
	u.SetManagedFields(nil)
	return u, nil
}

// keepPod keeps a pod's labels.
func keepPod(m *metav1.PartialObjectMetadata) (any, error) {
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
	kept.Name, kept.Namespace, kept.ResourceVersion, kept.Labels = m.Name, m.Namespace, m.ResourceVersion, m.Labels
	return kept, nil
}

// PodLabels returns the labels of a pod on this node, and whether they are known. The map is
// not to be changed.
func (w *Watcher) PodLabels(namespace, name string) (map[string]string, bool) {
	m := object[metav1.PartialObjectMetadata](w.pods, cache.NewObjectName(namespace, name).String())
	if m == nil {
		return nil, false
	}
	return m.Labels, true
}
