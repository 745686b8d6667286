package kube

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
)

// otherNode is the part of another Node that this node needs: what the node says of itself,
// and what others say of it.
type otherNode struct {
	metav1.ObjectMeta
	says string // NodeAnnotation
	is   Self
}

func keepNode(u *unstructured.Unstructured) (any, error) {
	return &otherNode{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp()},
		says:       u.GetAnnotations()[NodeAnnotation], is: readSelf(u),
	}, nil
}

// register says which node holds what, by what a Watcher has received.
type register struct {
	w        *Watcher
	holdings []holding
	locators map[string]netip.Prefix // by node
}

// holding is something that a node holds.
type holding struct {
	prefix netip.Prefix
	node   string
}

// isComplete says whether everything was received.
func (w *Watcher) isComplete() bool {
	return w.self.complete() && w.nodes.complete() && w.claims.complete() && w.earlier.complete()
}

// others are the other Nodes, the oldest first.
func (w *Watcher) others() (out []*otherNode) {
	for _, o := range w.nodes.informer.GetStore().List() {
		if n, ok := o.(*otherNode); ok && n.Name != w.config.Node {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *otherNode) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// newRegister registers what Nodes hold. A claim of a Node that is gone counts for nobody.
func newRegister(w *Watcher) *register {
	r := &register{w: w, locators: map[string]netip.Prefix{}}
	uids := map[string]string{}
	add := func(node string, is Self) {
		uids[node] = is.UID
		for _, a := range is.Addresses {
			r.holdings = append(r.holdings, holding{netip.PrefixFrom(a, a.BitLen()), node})
		}
		for _, p := range is.PodCIDRs {
			r.holdings = append(r.holdings, holding{p, node})
		}
	}
	if u := object[unstructured.Unstructured](w.self, w.config.Node); u != nil {
		add(w.config.Node, readSelf(u))
	}
	for _, n := range w.others() {
		add(n.Name, n.is)
	}
	claims := claimer{w}.allClaims()
	slices.SortFunc(claims, func(a, b *locatorClaim) int { return a.locator.Addr().Compare(b.locator.Addr()) })
	for _, c := range claims {
		if uids[c.node] == string(c.owner) && c.owner != "" {
			r.holdings = append(r.holdings, holding{c.locator, c.node})
			if !r.locators[c.node].IsValid() {
				r.locators[c.node] = c.locator
			}
		}
	}
	for node, p := range (claimer{w}).earlierClaims() {
		_, isNode := uids[node]
		_, claims := r.locators[node]
		if isNode && !claims && r.holder(p, node) == "" {
			r.locators[node] = p
			r.holdings = append(r.holdings, holding{p, node})
		}
	}
	return r
}

// holder is a node other than `but` that holds a part of a prefix, or "".
func (r *register) holder(p netip.Prefix, but string) string {
	for _, h := range r.holdings {
		if h.node != but && h.prefix.Overlaps(p) {
			return h.node
		}
	}
	return ""
}

// judge returns the part of what a node says of itself that it may.
func (r *register) judge(n overlay.Node, is Self) overlay.Node {
	r.w.mu.Lock()
	before := r.w.accepted[n.Name]
	r.w.mu.Unlock()
	return overlay.Vouch(n, overlay.Vouched{Addresses: is.Addresses, PodCIDRs: is.PodCIDRs, Locator: r.locators[n.Name], Before: before,
		Holder: func(p netip.Prefix) string { return r.holder(p, n.Name) }}, r.w.config.Accept)
}

// use returns what is used of what a node says of itself. Where nothing of it is the node's, what
// was used before stays, as far as it still is: the cluster may vouch for the rest in a moment.
func (r *register) use(said overlay.Node, is Self) overlay.Node {
	n := r.judge(said, is)
	r.w.mu.Lock()
	before, there := r.w.accepted[n.Name]
	r.w.mu.Unlock()
	if n.Refused == "" || !there {
		return n
	}
	kept := r.judge(before, is)
	if kept.Refused != "" {
		return n
	}
	kept.Faults = append(kept.Faults, "what it says now is not used: "+n.Refused)
	return kept
}

// observeNode reports what has changed of another node. Nobody is judged before everything is
// known: what an earlier watcher reported stays valid until then.
func (w *Watcher) observeNode(name string, h Handler) {
	if name == w.config.Node || !w.isComplete() {
		return
	}
	node := object[otherNode](w.nodes, name)
	w.mu.Lock()
	seen := w.seen[name]
	w.mu.Unlock()
	switch {
	case node == nil || seen == nil || !reflect.DeepEqual(seen.is, node.is): // others may hold what it held
		w.observe.Add(task{about: aboutNodes})
	case seen.says != node.says:
		newRegister(w).observe(node, h)
	}
}

// observeNodes reports what has changed of any other node: what one may say depends on the
// others. Nodes that were there first come first.
func (w *Watcher) observeNodes(h Handler) {
	if !w.isComplete() {
		return
	}
	r := newRegister(w)
	for _, n := range w.others() {
		r.observe(n, h)
	}
	w.mu.Lock()
	var gone []string
	for name := range w.reported.nodes {
		if object[otherNode](w.nodes, name) == nil {
			gone = append(gone, name)
		}
	}
	w.mu.Unlock()
	slices.Sort(gone)
	for _, name := range gone {
		r.forget(name, h)
	}
}

func (r *register) observe(node *otherNode, h Handler) {
	name := node.Name
	r.w.mu.Lock()
	r.w.seen[name] = node
	r.w.mu.Unlock()
	if node.says == "" {
		r.forget(name, h)
		return
	}
	said, err := readNode(name, node.says)
	if err != nil {
		r.w.log.Warn("what a node says of itself cannot be used: what it said before stays", "event", logevent.KubeNodeRejected, "node", name, "annotation", NodeAnnotation, "error", err)
		return
	}
	n := r.use(said, node.is)
	r.w.mu.Lock()
	old, there := r.w.reported.nodes[name]
	r.w.reported.nodes[name] = n
	if n.Refused == "" {
		r.w.accepted[name] = n
	}
	r.w.mu.Unlock()
	if there && reflect.DeepEqual(old, n) {
		return
	}
	if n.Refused != "" || len(n.Faults) > 0 {
		r.w.log.Warn("a node says of itself what the cluster does not vouch for", "event", logevent.KubeNodeDisputed, "node", name, "refused", n.Refused, "left_out", n.Faults)
	}
	h.PutNode(n)
	if old.Address != n.Address || old.Refused != n.Refused { // paths that lead to it by name
		r.w.observe.Add(task{about: aboutPaths})
	}
}

func (r *register) forget(name string, h Handler) {
	r.w.mu.Lock()
	_, there := r.w.reported.nodes[name]
	delete(r.w.reported.nodes, name)
	delete(r.w.accepted, name)
	if object[otherNode](r.w.nodes, name) == nil {
		delete(r.w.seen, name)
	}
	r.w.mu.Unlock()
	if there {
		h.DeleteNode(name)
		r.w.observe.Add(task{about: aboutPaths})
	}
}
