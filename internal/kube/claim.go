package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/culvert-net/culvert/internal/logevent"
)

// ClaimLabel marks the ConfigMaps by which nodes claim locators: `kubectl get configmaps -l`
// finds them. There is one for each locator, named after it (ClaimName), so that the API
// server lets only one node create it. The node's Node owns it: Kubernetes deletes it with the
// Node. Nobody changes one.
const ClaimLabel = Group + "/locator"

// LocatorsName is the ConfigMap in which nodes of earlier builds have their locators. It is
// read, so that a locator stays a node's over the upgrade, and never written.
const LocatorsName = "culvert-locators"

// claimedBits is the length of a locator that is claimed. No two of one length overlap.
const claimedBits = 48

// ClaimName is the name of the ConfigMap by which a node claims a locator.
func ClaimName(locator netip.Prefix) string {
	return "culvert-locator-" + strings.NewReplacer(":", "-", "/", "-").Replace(locator.Masked().String())
}

// locatorClaim is a ConfigMap with ClaimLabel. Its locator is not valid if it is not what ClaimName
// and ClaimLabel promise.
type locatorClaim struct {
	metav1.ObjectMeta
	node    string
	owner   types.UID // of the Node
	locator netip.Prefix
}

// keepLocatorClaim keeps the part of a claim that nodes need.
func keepLocatorClaim(u *unstructured.Unstructured) (any, error) { return readLocatorClaim(u), nil }

func readLocatorClaim(u *unstructured.Unstructured) *locatorClaim {
	c := &locatorClaim{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
	}}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	p, err := netip.ParsePrefix(data["locator"])
	owners := u.GetOwnerReferences()
	_, labelled := u.GetLabels()[ClaimLabel]
	if err != nil || !labelled || p.Bits() != claimedBits || u.GetName() != ClaimName(p) ||
		len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != data["node"] {
		return c
	}
	c.node, c.owner, c.locator = data["node"], owners[0].UID, p.Masked()
	return c
}

// object is the ConfigMap of a claim.
func (c *locatorClaim) object(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"data": map[string]any{"node": c.node, "locator": c.locator.String()}}}
	u.SetName(ClaimName(c.locator))
	u.SetNamespace(namespace)
	u.SetLabels(map[string]string{ClaimLabel: ""})
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: c.node, UID: c.owner}})
	return u
}

// allClaims are those that the API server has.
func (f claimer) allClaims() (out []*locatorClaim) {
	for _, o := range f.w.claims.informer.GetStore().List() {
		if c, ok := o.(*locatorClaim); ok && c.locator.IsValid() {
			out = append(out, c)
		}
	}
	return out
}

// earlierClaims are the locators of nodes of earlier builds, by node.
func (f claimer) earlierClaims() map[string]netip.Prefix {
	return readEarlierClaims(object[unstructured.Unstructured](f.w.earlier, f.w.config.Namespace+"/"+LocatorsName))
}

// readEarlierClaims reads the ConfigMap LocatorsName; nil: it is missing.
func readEarlierClaims(u *unstructured.Unstructured) map[string]netip.Prefix {
	out := map[string]netip.Prefix{}
	if u == nil {
		return out
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	for node, text := range data {
		if p, err := netip.ParsePrefix(text); err == nil {
			out[node] = p.Masked()
		}
	}
	return out
}

// claimer claims locators for a Watcher.
type claimer struct{ w *Watcher }

// errIncomplete is that the API server has not sent all claims yet.
var errIncomplete = errors.New("not all claims are known yet")

// Claim claims a locator of 48 bits in a pool that no other node has, or returns the one that
// this node has claimed. It asks until there is one or ctx ends: in a pool that is full
// another node may be deleted. A Node that is made anew (Self.UID) has to claim again.
func (w *Watcher) Claim(ctx context.Context, pool netip.Prefix) (netip.Prefix, error) {
	for wait := firstRetry / 10; ; wait = min(2*wait, lastRetry/4) {
		p, err := claimer{w}.claimOnce(ctx, pool)
		if err == nil {
			w.mu.Lock()
			w.claimed = p
			w.mu.Unlock()
			return p, nil
		}
		if errors.Is(err, errIncomplete) {
			wait = firstRetry / 10
		} else {
			w.log.Warn("cannot claim a locator: it is tried again", "event", logevent.KubeClaimFailed, "pool", pool, "error", err)
		}
		select {
		case <-ctx.Done():
			return netip.Prefix{}, errors.Join(ctx.Err(), err)
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

func (f claimer) claimOnce(ctx context.Context, pool netip.Prefix) (netip.Prefix, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	self := object[unstructured.Unstructured](f.w.self, f.w.config.Node)
	if self == nil || !f.w.isComplete() {
		return netip.Prefix{}, errIncomplete
	}
	uid := self.GetUID()
	own, stale, taken := f.sortClaims(pool, uid)
	for _, c := range stale {
		if err := f.release(ctx, c); err != nil {
			return netip.Prefix{}, err
		}
	}
	if own.IsValid() {
		return own, nil
	}
	wished := f.wishedLocator(pool, stale, taken)
	for losses := 0; ; losses++ {
		p, err := chooseLocator(pool, wished, taken, losses)
		if err != nil {
			return p, err
		}
		c := &locatorClaim{node: f.w.config.Node, owner: uid, locator: p}
		_, err = f.w.configMaps().Create(ctx, c.object(f.w.config.Namespace), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var isOwn bool
			if isOwn, err = f.hasClaimed(ctx, c); err == nil && !isOwn {
				wished, taken = netip.Prefix{}, append(taken, p)
				continue
			}
		}
		if err == nil {
			f.w.log.Info("this node's locator is claimed", "event", logevent.KubeClaimed, "locator", p)
		}
		return p, err
	}
}

// sortClaims returns the locator that this node has claimed in a pool, this node's claims
// that are of no use (of another pool, or of a former Node of this name), and what others have.
func (f claimer) sortClaims(pool netip.Prefix, uid types.UID) (own netip.Prefix, stale []*locatorClaim, taken []netip.Prefix) {
	claims := f.allClaims()
	slices.SortFunc(claims, func(a, b *locatorClaim) int { return a.locator.Addr().Compare(b.locator.Addr()) })
	claimants := map[string]bool{}
	for _, c := range claims {
		claimants[c.node] = true
		switch {
		case c.node != f.w.config.Node:
			taken = append(taken, c.locator)
		case c.owner == uid && pool.Overlaps(c.locator) && !own.IsValid():
			own = c.locator
		default:
			stale = append(stale, c)
		}
	}
	for node, p := range f.earlierClaims() {
		if node != f.w.config.Node && !claimants[node] && f.hasNode(node) {
			taken = append(taken, p)
		}
	}
	r := newRegister(f.w)
	for _, o := range f.w.others() { // configured ones, which nobody claims
		if n, err := readNode(o.Name, o.says); err == nil && n.Locator.IsValid() && r.judge(n, o.is, r.before(o.Name)).Refused == "" {
			taken = append(taken, n.Locator)
		}
	}
	return own, stale, taken
}

// wishedLocator is the one that this node has had, if it can have it again.
func (f claimer) wishedLocator(pool netip.Prefix, stale []*locatorClaim, taken []netip.Prefix) netip.Prefix {
	var wishes []netip.Prefix
	for _, c := range stale {
		wishes = append(wishes, c.locator)
	}
	wishes = append(wishes, f.earlierClaims()[f.w.config.Node])
	f.w.mu.Lock()
	wishes = append(wishes, f.w.claimed)
	f.w.mu.Unlock()
	for _, p := range wishes {
		if p.IsValid() && p.Bits() == claimedBits && pool.Overlaps(p) && !slices.ContainsFunc(taken, p.Overlaps) {
			return p
		}
	}
	return netip.Prefix{}
}

// chooseLocator is the one that is wished for, or one that is free. Nodes that lose to others
// which claim at the same time move apart.
func chooseLocator(pool, wished netip.Prefix, taken []netip.Prefix, losses int) (netip.Prefix, error) {
	if wished.IsValid() {
		return wished, nil
	}
	p, err := nextLocator(pool, claimedBits, taken)
	taken = slices.Clone(taken)
	for range rand.N(2*losses + 1) {
		taken = append(taken, p)
		further, err := nextLocator(pool, claimedBits, taken)
		if err != nil {
			break
		}
		p = further
	}
	return p, err
}

// hasClaimed says whether a claim that exists is this one. It releases one that is of a former
// Node of this node's name: then the claim is free, and an error says to try again.
func (f claimer) hasClaimed(ctx context.Context, c *locatorClaim) (bool, error) {
	u, err := f.w.configMaps().Get(ctx, ClaimName(c.locator), metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	there := readLocatorClaim(u)
	if there.node != c.node || there.owner == c.owner {
		return there.node == c.node, nil
	}
	if err := f.release(ctx, there); err != nil {
		return false, err
	}
	return false, fmt.Errorf("%s was claimed by a Node %s that is gone", c.locator, c.node)
}

// release deletes a claim of this node.
func (f claimer) release(ctx context.Context, c *locatorClaim) error {
	err := f.w.configMaps().Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
	return ButGone(err)
}

// hasNode says whether there is a Node of a name.
func (f claimer) hasNode(name string) bool {
	_, there, err := f.w.nodes.informer.GetStore().GetByKey(name)
	return err == nil && there
}

// observeClaims reports that this node's claim is gone, as somebody deleted it.
func (w *Watcher) observeClaims(h Handler) {
	w.mu.Lock()
	p := w.claimed
	w.mu.Unlock()
	if !p.IsValid() || !w.claims.complete() {
		return
	}
	if object[locatorClaim](w.claims, w.config.Namespace+"/"+ClaimName(p)) == nil {
		h.ClaimGone()
	}
}

func (w *Watcher) configMaps() dynamic.ResourceInterface {
	return w.api.objects.Resource(configMapResource).Namespace(w.config.Namespace)
}
