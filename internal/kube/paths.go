package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/overlay"
)

// reported is what the handler has received or knew before.
type reported struct {
	self  Self
	nodes map[string]overlay.Node
	paths map[string]Path
	sids  LocalSIDs

	classes map[string]Class
}

// origin is an object that candidate paths, or a traffic class, come from.
type origin struct {
	object   *unstructured.Unstructured // as it is now
	text     string                     // what it says
	problem  error                      // why it is not what is used
	entries  []entry                    // of what could be read last
	sids     LocalSIDs                  // too
	listing  *reading                   // of a ConfigMap: too
	waiting  map[string]error           // why entries are not reported, by name
	progress map[string]progress        // of the entries, by name
	note     string                     // of a class that is in use by others
}

// Origins are named after the kind and the name of the object.
const (
	ofConfigMap  = "configmap "
	ofSRv6Policy = "srv6policy "
)

// listingOrigin is the origin of the paths in a node's ConfigMap.
func listingOrigin(node string) string { return ofConfigMap + ListingName(node) }

// observePaths reports what has changed of the candidate paths for this node.
func (w *Watcher) observePaths(h Handler) {
	w.mu.Lock()
	w.readConfigMap()
	w.readPolicies()
	put, withdrawn := w.comparePaths()
	sids := w.reported.sids
	switch o := w.origins[listingOrigin(w.config.Node)]; {
	case o != nil:
		sids = o.sids
	case w.listing.complete():
		sids = LocalSIDs{}
	}
	newSIDs := sids != w.reported.sids
	w.reported.sids = sids
	w.mu.Unlock()
	if newSIDs {
		h.SetLocalSIDs(sids)
	}
	// New ones first: where a path takes the place of another there is always one.
	for _, p := range put {
		h.PutPath(p)
	}
	for _, name := range withdrawn {
		h.WithdrawPath(name)
	}
}

// readConfigMap reads this node's ConfigMap, if it is there.
func (w *Watcher) readConfigMap() {
	name := listingOrigin(w.config.Node)
	u := object[unstructured.Unstructured](w.listing, w.config.Namespace+"/"+ListingName(w.config.Node))
	if u == nil {
		if w.listing.complete() {
			delete(w.origins, name)
		}
		return
	}
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	var whole strings.Builder
	for _, key := range slices.Sorted(maps.Keys(data)) {
		whole.WriteString(key + "\n" + data[key] + "\x00")
	}
	w.readOrigin(name, u, whole.String(), func(o *origin) error {
		r, err := readListing(data, w.config.Node, o.listing)
		if err == nil {
			o.listing, o.sids, o.entries = r, r.sids, r.entries
		}
		return err
	})
}

// readPolicies reads the SRv6Policies that are for this node.
func (w *Watcher) readPolicies() {
	var labels map[string]string
	if self := object[unstructured.Unstructured](w.self, w.config.Node); self != nil {
		labels = self.GetLabels()
	}
	mine := map[string]bool{}
	for _, s := range []*source{w.named, w.selecting} {
		for _, o := range s.informer.GetStore().List() {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			name := ofSRv6Policy + u.GetName()
			is, err := isFor(u, w.config.Node, labels)
			if err != nil {
				w.log.Warn("an SRv6Policy chooses no nodes", "event", logevent.KubePolicyUnselected, "policy", u.GetName(), "error", err)
			}
			if !is || mine[name] {
				continue
			}
			mine[name] = true
			w.readOrigin(name, u, fmt.Sprintf("%s %d", u.GetUID(), u.GetGeneration()), func(o *origin) error {
				e, err := readPolicy(u, w.config.Node)
				if err == nil {
					o.entries = []entry{e}
				}
				return err
			})
		}
	}
	for name := range w.origins {
		if strings.HasPrefix(name, ofSRv6Policy) && !mine[name] && w.policiesComplete() {
			delete(w.origins, name)
			w.write.Add(task{aboutStatus, name}) // it may be there still, for other nodes
		}
	}
}

// policiesComplete: it is known which SRv6Policies are for this node. Without
// its labels it is not.
func (w *Watcher) policiesComplete() bool {
	return w.named.complete() && w.selecting.complete() && object[unstructured.Unstructured](w.self, w.config.Node) != nil
}

// readOrigin reads an object if it says something else than before. What was
// read last stays in use where that cannot be read.
func (w *Watcher) readOrigin(name string, u *unstructured.Unstructured, text string, read func(*origin) error) {
	o := w.origins[name]
	switch {
	case o == nil:
		o = &origin{sids: w.reported.sids, progress: progressOf(u, w.config.Node)}
		for _, key := range slices.Sorted(maps.Keys(w.reported.paths)) { // that an earlier watcher read
			if p := w.reported.paths[key]; p.Origin == name {
				o.entries = append(o.entries, entry{p.Advertised.Name, p.Endpoint.String(), p})
			}
		}
		w.origins[name] = o
	case o.text == text:
		if !reflect.DeepEqual(saidOf(u, w.config.Node), saidOf(o.object, w.config.Node)) { // by us, or it was removed
			w.write.AddAfter(task{aboutStatus, name}, settlesSoon)
		}
		o.object = u
		w.watchSummary(name, u)
		return
	}
	o.object, o.text = u, text
	if o.problem = inShort(read(o)); o.problem != nil {
		w.log.Warn("SR policies cannot be used: what was read before stays", "event", logevent.KubePolicyRejected, "from", name, "error", o.problem)
		w.events.Event(u, "Warning", "InvalidPolicies", o.problem.Error())
	}
	w.write.AddAfter(task{aboutStatus, name}, settlesSoon)
}

// mostProblem is how much is said of what is wrong with an object, in octets: it has
// to fit into an annotation, an event, and somebody's head.
const mostProblem = 8 << 10

// inShort is an error with no more lines than that.
func inShort(err error) error {
	if err == nil || len(err.Error()) <= mostProblem {
		return err
	}
	lines := strings.Split(err.Error(), "\n")
	length, said := 0, 0
	for said < len(lines) && length+len(lines[said]) < mostProblem {
		length += len(lines[said]) + 1
		said++
	}
	if said == 0 {
		return errors.New(lines[0][:mostProblem])
	}
	return fmt.Errorf("%s\nand %d more", strings.Join(lines[:said], "\n"), len(lines)-said)
}

// comparePaths returns the paths to report, and notes them as reported.
func (w *Watcher) comparePaths() (put []Path, withdrawn []string) {
	now := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.origins)) {
		o := w.origins[name]
		if o.isClass() {
			continue
		}
		waited := o.waiting
		o.waiting = map[string]error{}
		for _, e := range o.entries {
			p := e.path
			p.Origin = name
			var err error
			if p.Endpoint, err = netip.ParseAddr(e.egress); err != nil { // it is a node's name
				n, there := w.reported.nodes[e.egress]
				switch {
				case !there:
					o.waiting[e.name] = fmt.Errorf("no node %s has published its address", e.egress)
					continue
				case n.Refused != "":
					o.waiting[e.name] = fmt.Errorf("node %s is not used: %s", e.egress, n.Refused)
					continue
				}
				p.Endpoint = n.Address
			}
			now[p.Name] = true
			if old, there := w.reported.paths[p.Name]; !there || !old.is(p) {
				w.reported.paths[p.Name] = p
				put = append(put, p)
			}
		}
		if len(waited) != len(o.waiting) {
			w.write.AddAfter(task{aboutStatus, name}, settlesSoon)
		}
	}
	for name, p := range w.reported.paths {
		// It is gone if its origin is read, or known to be gone.
		isRead := w.origins[p.Origin] != nil
		if strings.HasPrefix(p.Origin, ofSRv6Policy) {
			isRead = isRead || w.policiesComplete()
		} else {
			isRead = isRead || w.listing.complete()
		}
		if !now[name] && isRead {
			delete(w.reported.paths, name)
			delete(w.verdicts, name)
			withdrawn = append(withdrawn, name)
		}
	}
	slices.Sort(withdrawn)
	return put, withdrawn
}

// is says that the two are one. A listing has thousands: most have the very lists
// that they had.
func (p Path) is(o Path) bool {
	if len(p.SegmentLists) == 0 || len(p.SegmentLists) != len(o.SegmentLists) || &p.SegmentLists[0] != &o.SegmentLists[0] {
		return reflect.DeepEqual(p, o)
	}
	a, b := p.Advertised, o.Advertised
	return p.Name == o.Name && p.Origin == o.Origin && p.DelayConstraint == o.DelayConstraint && a.Color == b.Color && a.Endpoint == b.Endpoint && a.Distinguisher == b.Distinguisher &&
		a.PolicyName == b.PolicyName && a.Name == b.Name && a.Preference == b.Preference && a.BindingSID == b.BindingSID
}
