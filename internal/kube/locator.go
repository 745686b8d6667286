package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// LocatorsName is the ConfigMap in which each node has its locator of the pool.
// Whoever writes it must have seen what it said last: of two nodes that take one
// locator at the same time the API server takes one.
const LocatorsName = "culvert-locators"

// ErrPoolExhausted is that each locator of a pool is some node's.
var ErrPoolExhausted = errors.New("no locator is left in the pool")

// Claim takes a locator of this many bits out of pool that no other node has,
// the same again if this one has one. It asks until there is one or ctx ends: in a
// pool that is full another node may give back its own. A Node that is made anew
// (Self.UID) has to claim again.
func (w *Watcher) Claim(ctx context.Context, pool netip.Prefix, bits int) (netip.Prefix, error) {
	w.mu.Lock()
	w.claims = true
	w.mu.Unlock()
	w.releaseSoon() // who was gone before
	for wait := firstRetry / 10; ; wait = min(2*wait, lastRetry/4) {
		p, err := w.claimOnce(ctx, pool, bits)
		if err == nil {
			return p, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			w.log.Warn("cannot claim a locator: it is tried again", "pool", pool, "error", err)
		}
		select {
		case <-ctx.Done():
			return netip.Prefix{}, errors.Join(ctx.Err(), err)
		case <-time.After(wait/2 + rand.N(wait)): // apart from others in the same conflict
		}
	}
}

func (w *Watcher) claimOnce(ctx context.Context, pool netip.Prefix, bits int) (netip.Prefix, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	u, err := w.readClaims(ctx)
	if err != nil {
		return netip.Prefix{}, err
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	taken := w.takenLocators(data)
	own, err := netip.ParsePrefix(data[w.config.Node])
	if err == nil && own.Bits() == bits && pool.Overlaps(own) && !slices.ContainsFunc(taken, own.Overlaps) {
		return own, nil
	}
	if own, err = nextLocator(pool, bits, taken); err != nil {
		return own, err
	}
	if data == nil {
		data = map[string]string{}
	}
	data[w.config.Node] = own.String()
	return own, w.writeClaims(ctx, u, data)
}

// takenLocators are those of other nodes: what they claimed, and what they say
// they have without it.
func (w *Watcher) takenLocators(data map[string]string) (taken []netip.Prefix) {
	for node, text := range data {
		if p, err := netip.ParsePrefix(text); err == nil && node != w.config.Node {
			taken = append(taken, p)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.reported.nodes {
		if n.Locator.IsValid() {
			taken = append(taken, n.Locator)
		}
	}
	return taken
}

// nextLocator is the free one behind the last that is taken, or the first free
// one: what was given back rests for as long as it can. The first of all has
// nothing but zeros behind the pool, which is easily taken for something else.
func nextLocator(pool netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, error) {
	zero := netip.PrefixFrom(pool.Masked().Addr(), bits)
	last := zero
	for _, p := range taken {
		if pool.Contains(p.Addr()) && p.Addr().Compare(last.Addr()) > 0 {
			last = netip.PrefixFrom(p.Addr(), bits).Masked()
		}
	}
	for _, behind := range []netip.Prefix{last, zero} {
		p, inside := following(behind, pool)
		for inside {
			i := slices.IndexFunc(taken, p.Overlaps)
			if i < 0 {
				return p, nil
			}
			whole := netip.PrefixFrom(p.Addr(), min(bits, taken[i].Bits())).Masked()
			whole, inside = following(whole, pool)
			p = netip.PrefixFrom(whole.Addr(), bits)
		}
	}
	return netip.Prefix{}, fmt.Errorf("%w %s", ErrPoolExhausted, pool)
}

// following is the prefix behind p, if it is in the pool.
func following(p, pool netip.Prefix) (netip.Prefix, bool) {
	b := p.Addr().As16()
	carry := uint16(1) << (7 - (p.Bits()-1)%8)
	for i := (p.Bits() - 1) / 8; i >= 0 && carry > 0; i-- {
		carry += uint16(b[i])
		b[i] = byte(carry)
		carry >>= 8
	}
	next := netip.PrefixFrom(netip.AddrFrom16(b), p.Bits())
	return next, carry == 0 && pool.Contains(next.Addr())
}

func (w *Watcher) configMaps() dynamic.ResourceInterface {
	return w.api.objects.Resource(configMapResource).Namespace(w.config.Namespace)
}

// readClaims returns the ConfigMap LocatorsName, an empty one if none exists.
func (w *Watcher) readClaims(ctx context.Context) (*unstructured.Unstructured, error) {
	u, err := w.configMaps().Get(ctx, LocatorsName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": LocatorsName, "namespace": w.config.Namespace},
		}}, nil
	}
	return u, err
}

// writeClaims fails if the object has changed since u was read.
func (w *Watcher) writeClaims(ctx context.Context, u *unstructured.Unstructured, data map[string]string) error {
	err := unstructured.SetNestedStringMap(u.Object, data, "data")
	switch {
	case err != nil:
	case u.GetResourceVersion() == "":
		_, err = w.configMaps().Create(ctx, u, metav1.CreateOptions{})
	default:
		_, err = w.configMaps().Update(ctx, u, metav1.UpdateOptions{})
	}
	return err
}

// releaseRest is how long the second node waits for the first to release what a
// node that is gone has claimed, the third for the second, and so on.
const (
	releaseRest = 20 * time.Second
	releasers   = 3
)

// releaseSoon has the claims of nodes that are gone released. The first few
// nodes do it, one after the other: one would do, but may be away.
func (w *Watcher) releaseSoon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.claims || !w.nodes.complete() {
		return
	}
	rank := 0
	for _, name := range w.nodes.informer.GetStore().ListKeys() {
		if name < w.config.Node {
			rank++
		}
	}
	if rank < releasers {
		w.write.AddAfter(task{about: aboutClaims}, time.Duration(rank)*releaseRest)
	}
}

// releaseClaims releases the claims of Nodes that are gone.
func (w *Watcher) releaseClaims(ctx context.Context) error {
	u, err := w.readClaims(ctx)
	if err != nil {
		return err
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	var gone []string
	for node := range data {
		if object[metav1.PartialObjectMetadata](w.nodes, node) != nil {
			continue
		}
		_, err := w.api.metadata.Resource(nodeResource).Get(ctx, node, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			gone = append(gone, node)
			delete(data, node)
		case err != nil:
			return err
		}
	}
	if len(gone) == 0 {
		return nil
	}
	slices.Sort(gone)
	if err := w.writeClaims(ctx, u, data); err != nil {
		return err
	}
	w.log.Info("locators of nodes that are gone are free again", "nodes", gone)
	return nil
}
