package kube

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
)

// engineValues are those of a chart with an engine.
var engineValues = map[string]any{
	"image":  map[string]any{"tag": "v1"},
	"config": map[string]any{"overlay": map[string]any{"accept": map[string]any{"sids": []any{"fcff::/16"}}}},
	"te": map[string]any{
		"enabled": true, "port": 7555, "secret": "other", "replicas": 3, "hostNetwork": true, "topology": []any{"kubernetes"},
		"nodeSelector": map[string]any{"pool": "a"},
		"resources":    map[string]any{"limits": map[string]any{"memory": "1Gi"}},
		"network": map[string]any{
			"links":  []any{map[string]any{"from": "node-1", "to": "node-2", "capacity": "1Gbit"}},
			"engine": map[string]any{"apply": true, "name": "red", "every": "5s"},
		},
	},
}

// engineObjects are what the chart has more with an engine, and its DaemonSet and ConfigMap.
func engineObjects(t *testing.T, values map[string]any) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, u := range objectsIn(t, render(t, values)) {
		all[u.GetKind()+" "+u.GetName()] = u
	}
	return all
}

// What the engine may do is this, and no more.
func TestEngineRights(t *testing.T) {
	var rules bytes.Buffer
	all := engineObjects(t, engineValues)
	for _, name := range []string{"ClusterRole culvert-te", "Role culvert-te", "ValidatingAdmissionPolicy culvert-te-own-paths"} {
		if all[name] == nil {
			t.Fatalf("there is no %s", name)
		}
		what := all[name].Object["rules"]
		if what == nil {
			what = all[name].Object["spec"]
		}
		text, err := yaml.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rules, "# %s\n%s", name, text)
	}
	const file = "testdata/engine_rights.yaml"
	if *update {
		if err := os.WriteFile(file, rules.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if golden, err := os.ReadFile(file); err != nil || string(golden) != rules.String() {
		t.Errorf("the rights have changed (%v): go test ./internal/kube -run TestEngineRights -update\n%s", err, rules.String())
	}
}

// The engine runs without privileges, reads the network file and the token but no key, and the
// agents give that token nothing but policies.
func TestEngineDeployment(t *testing.T) {
	all := engineObjects(t, engineValues)
	pod, _, _ := unstructured.NestedMap(all["Deployment culvert-te"].Object, "spec", "template", "spec")
	containers, _, _ := unstructured.NestedSlice(pod, "containers")
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "- ALL", "type: RuntimeDefault",
		"topologySpreadConstraints:", "path: /healthz", "--lease=kube-system/culvert-te", "--topology=kubernetes", "secretName: other", "image: ghcr.io/culvert-net/culvert:v1", "pool: a"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the pod has no %q", want)
		}
	}
	for _, never := range []string{"privileged", "tls.key", "hostPath", "\n    add:"} {
		if strings.Contains(string(text), never) {
			t.Errorf("the pod has %q", never)
		}
	}
	if n, _, _ := unstructured.NestedFieldNoCopy(all["Deployment culvert-te"].Object, "spec", "replicas"); fmt.Sprint(n) != "3" {
		t.Errorf("%v replicas", n)
	}
	if all["PodDisruptionBudget culvert-te"] == nil {
		t.Error("there is no PodDisruptionBudget")
	}
	data, _, _ := unstructured.NestedStringMap(all["ConfigMap culvert"].Object, "data")
	c, err := config.Parse([]byte(data["culvert.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if c.API.Listen != "[::]:7555" || c.API.PoliciesTokenFile == "" || c.API.TokenFile != "" || c.API.TLSKey == "" || c.Overlay.LocatorPool.String() != "fc00::/32" {
		t.Errorf("the agents have %+v", c.API)
	}
	data, _, _ = unstructured.NestedStringMap(all["ConfigMap culvert-te"].Object, "data")
	for _, want := range []string{"write: kubernetes", "port: 7555", "tls_name: culvert", "listen: :9474", "apply: true", "name: red", "to: node-2", "namespace: kube-system", "accept:\n      sids:\n      - fcff::/16"} {
		if !strings.Contains(data["network.yaml"], want) {
			t.Errorf("the network has no %q: %s", want, data["network.yaml"])
		}
	}
	without := engineObjects(t, nil)
	for name := range without {
		if strings.Contains(name, "culvert-te") {
			t.Errorf("there is a %s without an engine", name)
		}
	}
}
