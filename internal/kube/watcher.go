package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
)

// Watcher watches a cluster's API for one node.
//
// Observing and writing have a queue with one worker each: a slow answer to a write
// does not delay what is observed.
type Watcher struct {
	config Config
	log    *slog.Logger
	api    connection

	self, nodes, claims, earlier, listing, named, selecting, classes, classClaims, pods *source

	netpol networkPolicies

	// run has a source followed, and what a task is about observed once it is complete.
	run func(ctx context.Context, s *source, about ...string)

	observe workqueue.TypedRateLimitingInterface[task]
	write   workqueue.TypedRateLimitingInterface[task]

	events record.EventRecorder

	mu        sync.Mutex
	reported  reported
	published *overlay.Node
	told      told
	claimed   netip.Prefix            // this node's locator of a pool
	accepted  map[string]overlay.Node // other nodes as they were used last
	seen      map[string]*otherNode   // other Nodes as they were judged last
	origins   map[string]*origin
	verdicts  map[string]Verdict // by path
	services  map[Service]followed
}

// task is something to bring up to date: what it is about, and which of them.
type task struct{ about, name string }

// Kinds of tasks: first those that observe, then those that write.
const (
	aboutSelf    = "self"
	aboutNode    = "node"
	aboutNodes   = "nodes"  // all of them
	aboutClaims  = "claims" // of locators
	aboutPaths   = "paths"
	aboutClasses = "classes"
	aboutPods    = "pods"
	aboutNetpol  = "network policies"

	aboutPublication = "publication"
	aboutStatus      = "status"
)

// New reads who and where the API server is. It is not asked before Run.
func New(c Config) (*Watcher, error) {
	rest, err := restConfig(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := connectTo(rest, c.Version)
	if err != nil {
		return nil, err
	}
	return newWatcher(c, api)
}

// Writes that fail are tried again after a second, then after longer and longer.
const (
	firstRetry  = time.Second
	lastRetry   = time.Minute
	settlesSoon = 200 * time.Millisecond // what is written may change once more
)

func newWatcher(c Config, api connection) (*Watcher, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	w := &Watcher{
		config: c, log: c.Log, api: api,
		accepted: map[string]overlay.Node{}, seen: map[string]*otherNode{}, origins: map[string]*origin{}, verdicts: map[string]Verdict{}, services: map[Service]followed{},
		observe: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](firstRetry, lastRetry)),
		write:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](firstRetry, lastRetry)),
	}
	api.dialer.changed = func(err error) {
		if err == nil {
			w.log.Info("the Kubernetes API can be reached again", "event", logevent.KubeReachable)
			return
		}
		w.log.Warn("the Kubernetes API cannot be reached: what it sent before stays valid", "event", logevent.KubeUnreachable, "error", explain(err, w.config.Kubeconfig))
	}
	return w, w.makeSources()
}

// Run reports to h what it observes until ctx ends. It starts with the differences
// to known.
func (w *Watcher) Run(ctx context.Context, h Handler, known Known) error {
	w.mu.Lock()
	w.reported = reported{nodes: map[string]overlay.Node{}, paths: map[string]Path{}, sids: known.LocalSIDs, classes: known.Classes}
	for _, n := range known.Nodes {
		w.reported.nodes[n.Name] = n
	}
	for _, p := range known.Paths {
		w.reported.paths[p.Name] = p
	}
	w.mu.Unlock()
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(w.log.With("event", logevent.KubeLibrary).Handler()))
	// client-go counts events that come again, and drops what is too much.
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	w.events = broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "culvert", Host: w.config.Node})
	broadcaster.StartRecordingToSink(eventSink{ctx, w.api})
	var group sync.WaitGroup
	w.run = func(ctx context.Context, s *source, about ...string) {
		group.Go(func() { s.informer.RunWithContext(ctx) })
		group.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), s.complete) {
				for _, what := range about {
					w.observe.Add(task{about: what})
				}
			}
		})
	}
	for _, s := range w.sources() {
		// Once a source has received all objects, what was known before and is missing is gone.
		w.run(ctx, s, aboutNodes, aboutPaths, aboutClasses, aboutPods, aboutNetpol)
	}
	group.Go(func() {
		work(w.observe, func(t task) error {
			w.look(ctx, t, h)
			return nil
		})
	})
	group.Go(func() { work(w.write, func(t task) error { return w.bring(ctx, t) }) })
	<-ctx.Done()
	w.observe.ShutDown()
	w.write.ShutDown()
	group.Wait()
	return nil
}

// look observes what a task is about.
func (w *Watcher) look(ctx context.Context, t task, h Handler) {
	switch t.about {
	case aboutSelf:
		w.observeSelf(h)
	case aboutNode:
		w.observeNode(t.name, h)
	case aboutNodes:
		w.observeNodes(h)
	case aboutClaims:
		w.observeClaims(h)
		w.observeNodes(h)
	case aboutPaths:
		w.observePaths(h)
	case aboutClasses:
		w.observeClasses(ctx, h)
	case aboutPods:
		h.PodsChanged()
	case aboutNetpol:
		h.NetworkPoliciesChanged()
	}
}

// work does one task after the other, those that fail again later.
func work(q workqueue.TypedRateLimitingInterface[task], do func(task) error) {
	for {
		t, ended := q.Get()
		if ended {
			return
		}
		if err := do(t); err != nil {
			q.AddRateLimited(t)
		} else {
			q.Forget(t)
		}
		q.Done(t)
	}
}

// bring brings what the API server has up to date. It says what did not work
// only: that is tried again.
func (w *Watcher) bring(ctx context.Context, t task) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	var err error
	switch t.about {
	case aboutPublication:
		err = w.writePublication(ctx)
	case aboutStatus:
		err = w.writeStatus(ctx, t.name)
	}
	if err != nil && ctx.Err() == nil {
		w.log.Warn("the Kubernetes API did not take what this node wrote: it is tried again", "event", logevent.KubeWriteFailed, "about", t.about, "of", t.name, "error", err)
	}
	return err
}

// sources are all that is followed.
func (w *Watcher) sources() []*source {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []*source{w.self, w.nodes, w.claims, w.earlier, w.listing, w.named, w.selecting, w.classes, w.classClaims, w.pods}
	out = append(out, w.netpol.sources()...)
	for _, f := range w.services {
		out = append(out, f.source)
	}
	return out
}

func (w *Watcher) makeSources() error {
	one := func(name string) fields.Set { return fields.Set{"metadata.name": name} }
	soon := func(about string) func(string) {
		return func(string) { w.observe.Add(task{about: about}) }
	}
	client, metadata := w.api.objects, w.api.metadata
	whole, part := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	policies := client.Resource(policyResource)
	self := func(name string) {
		soon(aboutSelf)(name)
		soon(aboutPaths)(name) // policies choose it by its labels
	}
	node := func(name string) { w.observe.Add(task{aboutNode, name}) }
	objects := func(name string, with fields.Set, keep cache.TransformFunc, changed func(string)) wanted {
		return wanted{name: name, client: client, example: whole, with: with, keep: keep, changed: changed}
	}
	own := func(name string, with fields.Set, about string) wanted {
		return wanted{name: name, client: client, example: whole, with: with, keep: only(w.keepOwn), changed: soon(about), optional: true}
	}
	pods := wanted{name: "pods", client: metadata, example: part, with: fields.Set{"spec.nodeName": w.config.Node}, keep: only(keepPod), changed: soon(aboutPods)}
	claims := objects("claims", nil, only(keepLocatorClaim), soon(aboutClaims))
	claims.labels = labels.Set{ClaimLabel: ""}
	var errs [11]error
	configMaps := client.Resource(configMapResource).Namespace(w.config.Namespace)
	w.self, errs[0] = follow(client.Resource(nodeResource), objects("this node", one(w.config.Node), only(keepSelf), self))
	w.nodes, errs[1] = follow(client.Resource(nodeResource), objects("nodes", nil, only(keepNode), node))
	w.listing, errs[2] = follow(configMaps, objects("ConfigMap", one(ListingName(w.config.Node)), only(lean), soon(aboutPaths)))
	w.named, errs[3] = follow(policies, own("SRv6Policies by name", fields.Set{"spec.node": w.config.Node}, aboutPaths))
	w.selecting, errs[4] = follow(policies, own("SRv6Policies by label", fields.Set{"spec.node": ""}, aboutPaths))
	w.classes, errs[5] = follow(client.Resource(classResource), own("SRv6TrafficClasses", nil, aboutClasses))
	w.classClaims, errs[6] = follow(client.Resource(claimResource), own("SRv6TrafficClassClaims", nil, aboutClasses))
	w.pods, errs[7] = follow(metadata.Resource(podResource), pods)
	w.claims, errs[8] = follow(configMaps, claims)
	w.earlier, errs[9] = follow(configMaps, objects("earlier claims", one(LocatorsName), only(lean), soon(aboutClaims)))
	if w.config.NetworkPolicies {
		errs[10] = w.netpol.follow(w.api, w.config.Tenants, func(string) { w.observe.AddAfter(task{about: aboutNetpol}, policiesSettle) })
	}
	return errors.Join(errs[:]...)
}

// Status is how this node and the API server get on.
type Status struct {
	Complete bool      `json:"complete"`        // everything was received
	Error    string    `json:"error,omitempty"` // why the watch fails now
	Since    time.Time `json:"since,omitzero"`  // of the error, or of its end
	Nodes    int       `json:"nodes"`           // others, of the overlay
	Paths    int       `json:"paths"`           // candidate paths for this one
}

// Status is how it is now.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	s := Status{Complete: true, Nodes: len(w.reported.nodes), Paths: len(w.reported.paths)}
	w.mu.Unlock()
	if since, err := w.api.dialer.state(); err != nil {
		s.Error, s.Since = explain(err, w.config.Kubeconfig), since
	}
	for _, source := range w.sources() {
		s.Complete = s.Complete && source.complete()
		since, err := source.state()
		switch {
		case err != nil && (s.Error == "" || since.Before(s.Since)):
			s.Error, s.Since = explain(err, w.config.Kubeconfig), since
		case err == nil && s.Error == "" && since.After(s.Since):
			s.Since = since
		}
	}
	return s
}
