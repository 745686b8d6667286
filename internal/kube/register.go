package kube

import (
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

func keepNode(u *unstructured.Unstructured) (any, error) { return readOtherNode(u), nil }

func readOtherNode(u *unstructured.Unstructured) *otherNode {
	return &otherNode{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp()},
		says:       u.GetAnnotations()[NodeAnnotation], is: readSelf(u),
	}
}

// register says which node holds what, by what a Watcher has received.
type register struct {
	w *Watcher
	*holdings
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
	sortByAge(out)
	return out
}

// newRegister registers what Nodes hold.
func newRegister(w *Watcher) *register {
	nodes := w.others()
	if u := object[unstructured.Unstructured](w.self, w.config.Node); u != nil {
		nodes = slices.Insert(nodes, 0, readOtherNode(u))
	}
	return &register{w, holdingsOf(nodes, claimer{w}.allClaims(), claimer{w}.earlierClaims(), w.config.Trust)}
}

// before is what was used of a node until now.
func (r *register) before(name string) overlay.Node {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.w.accepted[name]
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
	n := r.use(said, node.is, r.before(name))
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
