package kube

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A reason is as long as the resources' schema takes it, whatever it quotes.
func TestLongReasons(t *testing.T) {
	c := newCluster(t)
	c.apply(classResource, `{kind: SRv6TrafficClass, metadata: {name: voice}, spec: {color: 100, match: {dscp: [46]}}}`)
	w, h, _ := c.starts(Known{})
	waits(t, "the class", func() bool { _, there := h.class("kube:voice"); return there })
	w.SetVerdicts([]Verdict{{Path: "kube:voice", Why: "begins " + strings.Repeat("ä", 100000)}})
	c.waitsState(classResource, "voice", stateInvalid, "begins ä")
	u, err := c.objects.Tracker().Get(classResource, "", "voice")
	c.must(err)
	reason, _ := nodeStatus(u.(*unstructured.Unstructured), me)["reason"].(string)
	if n := utf8.RuneCountInString(reason); n != maxReason || !utf8.ValidString(reason) || !strings.HasSuffix(reason, "ä…") {
		t.Errorf("a reason of %d characters that ends with %q", n, reason[len(reason)-10:])
	}
	if short := shortened("short", maxReason); short != "short" {
		t.Error(short)
	}
}

// TestSchemaOfStatus: the API server takes the longest reason of an agent, and none of somebody else that
// is longer.
func TestSchemaOfStatus(t *testing.T) {
	found := 0
	for _, u := range manifestIn(t, manifestFile) {
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		reason, there, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "nodes", "items", "properties", "reason")
		if !there || err != nil || fmt.Sprint(reason["maxLength"]) != fmt.Sprint(maxReason) {
			t.Errorf("%s: status.nodes[].reason is %v, %v", u.GetName(), reason, err)
		}
		found++
	}
	if found != 3 {
		t.Errorf("the manifest defines %d resources", found)
	}
}
