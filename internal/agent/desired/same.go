package desired

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Same says whether two values ask for the same. Nil and empty lists do, so
// where the values differ, it compares what the configuration would print.
func Same(a, b any) bool {
	switch p := a.(type) { // of these there are thousands
	case srpolicy.Policy:
		if q, ok := b.(srpolicy.Policy); ok && EqualPolicies(&p, &q) {
			return true
		}
	case srpolicy.CandidatePath:
		if q, ok := b.(srpolicy.CandidatePath); ok && p.Name == q.Name && p.Policy == q.Policy && p.Preference == q.Preference && equalLists(p.SegmentLists, q.SegmentLists) {
			return true
		}
	case srpolicy.Steering:
		if q, ok := b.(srpolicy.Steering); ok && EqualSteering(&p, &q) {
			return true
		}
	}
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// EqualPolicies is reflect.DeepEqual, and quicker: most policies have the very
// lists that they had.
func EqualPolicies(p, q *srpolicy.Policy) bool {
	return p.Name == q.Name && p.Behavior == q.Behavior && p.Source == q.Source && p.Color == q.Color && p.Endpoint == q.Endpoint &&
		p.BindingSID == q.BindingSID && p.Preference == q.Preference && equalLists(p.SegmentLists, q.SegmentLists)
}

func equalLists(a, b []srpolicy.SegmentList) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, func(x, y srpolicy.SegmentList) bool {
		return x.Weight == y.Weight && slices.Equal(x.Segments, y.Segments)
	}))
}

// EqualSteering is reflect.DeepEqual, and quicker.
func EqualSteering(p, q *srpolicy.Steering) bool {
	return p.Prefix == q.Prefix && p.Interface == q.Interface && p.Policy == q.Policy && p.Tunnel == q.Tunnel &&
		slices.Equal(p.VLANs, q.VLANs) && (p.GTP4D == q.GTP4D || p.GTP4D != nil && q.GTP4D != nil && *p.GTP4D == *q.GTP4D)
}
