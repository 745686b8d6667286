package plan

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// A field that is new in one of these has to be looked at, too.
func TestEveryFieldIsCompared(t *testing.T) {
	differ[srpolicy.Policy](t, func(a, b *srpolicy.Policy) bool { return equal(a, b) })
	differ[class.Entry](t, func(a, b *class.Entry) bool { return equal(&Steering{Entry: *a}, &Steering{Entry: *b}) })
	differ[Steering](t, func(a, b *Steering) bool { return equal(a, b) })
	differ[srpolicy.CandidatePath](t, func(a, b *srpolicy.CandidatePath) bool { return desired.Same(*a, *b) })
	differ[srpolicy.DelayConstraint](t, func(a, b *srpolicy.DelayConstraint) bool {
		return desired.EqualPolicies(&srpolicy.Policy{DelayConstraint: *a}, &srpolicy.Policy{DelayConstraint: *b})
	})
	differ[srpolicy.Steering](t, desired.EqualSteering)
	differ[srpolicy.SegmentList](t, func(a, b *srpolicy.SegmentList) bool {
		return desired.EqualPolicies(&srpolicy.Policy{SegmentLists: []srpolicy.SegmentList{*a}}, &srpolicy.Policy{SegmentLists: []srpolicy.SegmentList{*b}})
	})
}

// differ sets one field after the other, and wants each to make a difference.
func differ[V any](t *testing.T, equal func(a, b *V) bool) {
	t.Helper()
	for i := range reflect.TypeFor[V]().NumField() {
		var zero, v V
		if name := reflect.TypeFor[V]().Field(i).Name; !setAny(reflect.ValueOf(&v).Elem().Field(i)) || equal(&zero, &v) {
			t.Errorf("%T: field %s makes no difference", v, name)
		}
	}
	var a, b V
	if !equal(&a, &b) {
		t.Errorf("%T: two of the same differ", a)
	}
}

// setAny makes a field something else than the zero value.
func setAny(v reflect.Value) bool {
	v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem() // fields of this package's own may be unexported
	switch p := v.Addr().Interface().(type) {
	case *netip.Addr:
		*p = netip.MustParseAddr("fc00::1")
	case *netip.Prefix:
		*p = netip.MustParsePrefix("fc00::/64")
	case *srpolicy.Steering:
		p.Policy = "p"
	case *srpolicy.DelayConstraint:
		p.LowestDelay = true
	case *class.Entry:
		p.Policy = "p"
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Uint8, reflect.Uint32:
			v.SetUint(1)
		default:
			return false
		}
	}
	return true
}
