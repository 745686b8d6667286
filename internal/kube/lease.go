package kube

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	randv2 "math/rand/v2"
	"os"
	"reflect"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/culvert-net/culvert/internal/logevent"
)

var leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// LeaseTimes say how long a lease lasts.
type LeaseTimes struct {
	// Duration is how long others wait for a holder that does not renew it.
	Duration time.Duration
	// Deadline is how long a holder counts on a lease that it cannot renew; less than Duration.
	Deadline time.Duration
	Retry    time.Duration // between two requests
}

// LeaseFor are the times of a lease of this duration: 15 s, 10 s and 2 s, as Kubernetes' own
// components have, or as much shorter or longer.
func LeaseFor(duration time.Duration) LeaseTimes {
	return LeaseTimes{Duration: duration, Deadline: duration * 2 / 3, Retry: duration * 2 / 15}
}

// Lease has one of several programs do something, and the others wait. Call Run once; other
// methods may be called at any time.
//
// Clocks of different machines are not compared: a lease has expired when its object has not
// changed for its duration. A holder counts on it for a shorter time, from before its last request
// that succeeded, so that two never hold it at the same time. Of two that take it at the same time
// the API server takes one.
//
// It is client-go's leader election in little, which brings the clients and caches of all that
// Kubernetes has: 299 packages, in a program of 737.
type Lease struct {
	name     string // NAMESPACE/NAME
	object   string
	identity string
	times    LeaseTimes
	log      *slog.Logger
	leases   dynamic.ResourceInterface

	// Of Run: the object as it was last, and when it was first so.
	last   coordinationv1.LeaseSpec
	lastAt time.Time

	mu      sync.Mutex
	holder  string
	since   time.Time          // that holder has it
	held    context.Context    // ends when the lease is lost; nil: it never was held
	lose    context.CancelFunc // ends held
	until   time.Time          // this program counts on it
	expires *time.Timer        // ends held then
	problem string
}

// LeaseState is who has a lease.
type LeaseState struct {
	Lease  string `json:"lease"` // NAMESPACE/NAME
	Self   string `json:"self"`
	Holder string `json:"holder,omitempty"` // the last one that was seen
	Held   bool   `json:"held"`             // by this program
	// Since is when the holder was first seen.
	Since   time.Time `json:"since,omitzero"`
	Problem string    `json:"problem,omitempty"` // why the API server did not say more
}

// Lease makes one. The API server is not asked before Run.
func (e *Engine) Lease(namespace, name string, times LeaseTimes, log *slog.Logger) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	l := &Lease{
		name: namespace + "/" + name, object: name, times: times, log: log, leases: e.api.objects.Resource(leaseResource).Namespace(namespace),
		identity: host + "_" + rand.Text()[:8], // two programs on one host, or one that is restarted, are not the same holder
	}
	l.expires = time.AfterFunc(times.Deadline, l.expire)
	return l, nil
}

// Run takes the lease when it is free, and renews it, until ctx ends; then it gives it back.
func (l *Lease) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		l.note(l.request(ctx, l.try))
		select {
		case <-ctx.Done():
		case <-time.After(l.times.Retry + randv2.N(l.times.Retry/5)): // apart from others
		}
	}
	_, had := l.Held()
	l.lost()
	if had {
		l.note(l.request(context.WithoutCancel(ctx), l.release))
	}
	return nil
}

// request does something that may take half of the deadline, so that there is time for another one.
func (l *Lease) request(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.times.Deadline/2)
	defer cancel()
	return do(ctx)
}

// try takes the lease, or renews it, if it can be had.
func (l *Lease) try(ctx context.Context) error {
	sent := time.Now()
	object, err := Typed[coordinationv1.Lease](l.leases.Get(ctx, l.object, metav1.GetOptions{}))
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
		object = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.object}}
	case err != nil:
		return err
	}
	spec := &object.Spec
	if !reflect.DeepEqual(*spec, l.last) {
		l.last, l.lastAt = *spec.DeepCopy(), time.Now()
	}
	holder, duration := "", l.times.Duration
	if spec.HolderIdentity != nil {
		holder = *spec.HolderIdentity
	}
	if spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if holder != "" && holder != l.identity && time.Since(l.lastAt) < duration {
		l.see(holder)
		l.lost() // it never is another's while this one counts on it
		return nil
	}
	l.claim(spec, holder)
	if err := l.write(ctx, object, missing); err != nil {
		return err
	}
	l.see(l.identity)
	l.renewed(sent)
	return nil
}

// claim makes this program the holder.
func (l *Lease) claim(spec *coordinationv1.LeaseSpec, before string) {
	now, seconds := metav1.NowMicro(), int32((l.times.Duration+time.Second-1)/time.Second)
	if before != l.identity {
		transitions := int32(0)
		if spec.LeaseTransitions != nil {
			transitions = *spec.LeaseTransitions + 1
		}
		spec.AcquireTime, spec.LeaseTransitions = &now, &transitions
	}
	spec.HolderIdentity, spec.LeaseDurationSeconds, spec.RenewTime = &l.identity, &seconds, &now
}

// release has nobody hold it, unless another one does.
func (l *Lease) release(ctx context.Context) error {
	object, err := Typed[coordinationv1.Lease](l.leases.Get(ctx, l.object, metav1.GetOptions{}))
	if err != nil || object.Spec.HolderIdentity == nil || *object.Spec.HolderIdentity != l.identity {
		return err
	}
	object.Spec.HolderIdentity = nil
	return l.write(ctx, object, false)
}

// write fails if the object has changed since it was read.
func (l *Lease) write(ctx context.Context, object *coordinationv1.Lease, missing bool) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion("coordination.k8s.io/v1")
	u.SetKind("Lease")
	if missing {
		_, err = l.leases.Create(ctx, u, metav1.CreateOptions{})
	} else {
		_, err = l.leases.Update(ctx, u, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another one has written it at the same time: %w", err)
	}
	return err
}

// Held returns a context that ends when the lease is lost, and whether the lease is held.
func (l *Lease) Held() (context.Context, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || l.held.Err() != nil || !time.Now().Before(l.until) { // a program that did not get to run
		return nil, false
	}
	return l.held, true
}

// State is who has it.
func (l *Lease) State() LeaseState {
	_, held := l.Held()
	l.mu.Lock()
	defer l.mu.Unlock()
	return LeaseState{Lease: l.name, Self: l.identity, Holder: l.holder, Held: held, Since: l.since, Problem: l.problem}
}

// see notes who has it.
func (l *Lease) see(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != holder {
		l.holder, l.since = holder, time.Now()
		l.log.Info("lease", "event", logevent.TELease, "lease", l.name, "holder", holder, "self", l.identity)
	}
}

// renewed notes that it was renewed by a request that was sent at a time. It ends a deadline
// after that, whatever Run waits for.
func (l *Lease) renewed(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := sent.Add(l.times.Deadline)
	left := time.Until(until)
	if left <= 0 {
		return
	}
	if l.until = until; l.held == nil || l.held.Err() != nil {
		l.held, l.lose = context.WithCancel(context.Background())
	}
	l.expires.Reset(left)
}

// expire ends what is done by the lease, unless it was renewed.
func (l *Lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose != nil && !time.Now().Before(l.until) {
		l.lose()
	}
}

// lost ends what is done by the lease.
func (l *Lease) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expires.Stop()
	if l.until = (time.Time{}); l.lose != nil {
		l.lose()
	}
}

func (l *Lease) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem = ""; err != nil {
		l.problem = err.Error()
	}
}
