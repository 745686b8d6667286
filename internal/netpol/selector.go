package netpol

import (
	"fmt"
	"maps"
	"slices"
)

// Operators of a label selector's requirements.
const (
	opIn           = "In"
	opNotIn        = "NotIn"
	opExists       = "Exists"
	opDoesNotExist = "DoesNotExist"
)

// labelSelector is a LabelSelector as the API has it.
type labelSelector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []requirement     `json:"matchExpressions"`
}

// requirement is what a selector requires of one label.
type requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// selector has all requirements of a LabelSelector, in an order that depends on nothing but
// them. Without any it matches everything.
type selector []requirement

// selector checks it, and puts it in order.
func (l labelSelector) selector() (selector, error) {
	var s selector
	for _, key := range slices.Sorted(maps.Keys(l.MatchLabels)) {
		s = append(s, requirement{key, opIn, []string{l.MatchLabels[key]}})
	}
	for _, r := range l.MatchExpressions {
		if r.Key == "" {
			return nil, fmt.Errorf("a requirement has no key")
		}
		switch r.Operator {
		case opIn, opNotIn:
			if len(r.Values) == 0 {
				return nil, fmt.Errorf("label %s: %s needs values", r.Key, r.Operator)
			}
		case opExists, opDoesNotExist:
			if len(r.Values) > 0 {
				return nil, fmt.Errorf("label %s: %s takes no values", r.Key, r.Operator)
			}
		default:
			return nil, fmt.Errorf("label %s: %q is no operator", r.Key, r.Operator)
		}
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		s = append(s, r)
	}
	slices.SortFunc(s, requirement.compare)
	return slices.CompactFunc(s, func(a, b requirement) bool { return a.compare(b) == 0 }), nil
}

func (r requirement) compare(o requirement) int {
	return slices.Compare(append([]string{r.Key, r.Operator}, r.Values...), append([]string{o.Key, o.Operator}, o.Values...))
}

// matches says whether labels fulfil all requirements. A missing label fulfils NotIn.
func (s selector) matches(labels map[string]string) bool {
	for _, r := range s {
		value, there := labels[r.Key]
		ok := false
		switch r.Operator {
		case opIn:
			ok = there && slices.Contains(r.Values, value)
		case opNotIn:
			ok = !there || !slices.Contains(r.Values, value)
		case opExists:
			ok = there
		case opDoesNotExist:
			ok = !there
		}
		if !ok {
			return false
		}
	}
	return true
}

func (s selector) appendKey(b []byte) []byte {
	b = appendCount(b, len(s))
	for _, r := range s {
		b = appendText(appendText(b, r.Key), r.Operator)
		b = appendCount(b, len(r.Values))
		for _, v := range r.Values {
			b = appendText(b, v)
		}
	}
	return b
}
