package kube

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// withDelay is an SRv6Policy with more lines in its spec.
func withDelay(t *testing.T, lines string) *unstructured.Unstructured {
	t.Helper()
	var spec map[string]any
	if err := yaml.Unmarshal([]byte(policySpec+lines), &spec); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": policyVersion, "kind": policyKind, "spec": spec}}
	u.SetName("core")
	return u
}

func TestPolicyDelay(t *testing.T) {
	e, err := readPolicy(withDelay(t, "delayBound: 15ms\nlowestDelay: true"), me)
	if want := (srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(15 * time.Millisecond), LowestDelay: true}); err != nil || e.path.DelayConstraint != want {
		t.Errorf("constraint is %+v, want %+v; %v", e.path.DelayConstraint, want, err)
	}
	if e, err := readPolicy(withDelay(t, ""), me); err != nil || e.path.DelayConstraint.IsSet() {
		t.Errorf("constraint is %+v, want none; %v", e.path.DelayConstraint, err)
	}
	for lines, words := range map[string]string{
		"delayBound: 15":     "spec.delayBound: give a time with its unit",
		"delayBound: 0s":     "spec.delayBound: give a time with its unit",
		"delayBound: -15ms":  "spec.delayBound: is -15ms (fix: more than 0s, and at most 10s)",
		"delayBound: 11s":    "spec.delayBound: is 11s",
		"lowestDelay: often": "spec.lowestDelay",
	} {
		if _, err := readPolicy(withDelay(t, lines), me); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", lines, err, words)
		}
	}
}

// A path with the same lists and another constraint is another path.
func TestPathWithAnotherDelayDiffers(t *testing.T) {
	e, err := readPolicy(withDelay(t, "delayBound: 15ms"), me)
	if err != nil {
		t.Fatal(err)
	}
	other := e.path
	if other.DelayBound *= 2; !e.path.is(e.path) || e.path.is(other) {
		t.Errorf("%s and %s are one", e.path.DelayBound, other.DelayBound)
	}
}
