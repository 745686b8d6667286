package kube

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
)

const (
	manifestFile  = "../../dist/kubernetes/culvert.yaml"
	uninstallFile = "../../dist/kubernetes/uninstall.yaml"
)

var update = flag.Bool("update", false, "write the manifest")

// render is what Helm does with the chart's templates and its own values, or others in their
// place, of what they use: Go's templates, sprig, and toYaml.
func render(t *testing.T, others map[string]any) string {
	t.Helper()
	const chart = "../../dist/kubernetes/chart"
	read := func(file string) (fields map[string]any) {
		text, err := os.ReadFile(filepath.Join(chart, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &fields); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return fields
	}
	about, own := read("Chart.yaml"), read("values.yaml")
	merge(own, others)
	values := map[string]any{
		"Values":  own,
		"Chart":   map[string]any{"Name": about["name"], "AppVersion": about["appVersion"]},
		"Release": map[string]any{"Name": "culvert", "Namespace": "kube-system"},
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	toYAML := func(v any) string {
		text, err := yaml.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	out := &bytes.Buffer{}
	out.WriteString("# Culvert as the network of a cluster's pods: kubectl apply -f this.\n# It is what the chart beside it renders; README.md says what there is to choose.\n")
	for _, file := range files {
		one, err := template.New(filepath.Base(file)).Option("missingkey=error").
			Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{"toYaml": toYAML}).ParseFiles(file)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := one.Execute(&text, values); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(text.String()) != "" {
			out.WriteString("---\n" + strings.TrimPrefix(text.String(), "\n"))
		}
	}
	return out.String()
}

// manifestIn are the objects of a manifest, in order.
func manifestIn(t *testing.T, file string) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return objectsIn(t, string(text))
}

// objectsIn are those of YAML documents.
func objectsIn(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for part := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(part+"\n"), &u.Object); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		if u.Object != nil {
			all = append(all, u)
		}
	}
	return all
}

func TestManifestIsTheChart(t *testing.T) {
	want := render(t, nil)
	if *update {
		if err := os.WriteFile(manifestFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("dist/kubernetes/culvert.yaml is not what the chart renders: go test ./internal/kube -run TestManifest -update")
	}
}

func TestManifest(t *testing.T) {
	kinds := map[string]*unstructured.Unstructured{}
	for _, u := range manifestIn(t, manifestFile) {
		kinds[u.GetKind()] = u
	}
	for _, kind := range []string{"CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ConfigMap", "DaemonSet"} {
		if kinds[kind] == nil {
			t.Fatalf("there is no %s", kind)
		}
	}
	data, _, err := unstructured.NestedStringMap(kinds["ConfigMap"].Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse([]byte(data["culvert.yaml"]))
	if err != nil {
		t.Fatalf("the configuration is refused: %v", err)
	}
	if c.Overlay.Mode != config.OverlayKube || c.Overlay.Kube.Namespace != kinds["DaemonSet"].GetNamespace() {
		t.Errorf("the overlay is %+v, the daemons are in %s", c.Overlay, kinds["DaemonSet"].GetNamespace())
	}
	containers, _, err := unstructured.NestedSlice(kinds["DaemonSet"].Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%d containers, %v", len(containers), err)
	}
	privileged, _, _ := unstructured.NestedBool(containers[0].(map[string]any), "securityContext", "privileged")
	if privileged {
		t.Error("the daemon is privileged")
	}
}

// What takes it away is of the same image and finds the same folders.
func TestUninstall(t *testing.T) {
	images, paths := map[any]bool{}, map[any]bool{}
	collect := func(file string) {
		for _, u := range manifestIn(t, file) {
			for _, list := range []string{"containers", "initContainers"} {
				containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", list)
				for _, c := range containers {
					images[c.(map[string]any)["image"]] = true
				}
			}
			volumes, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "volumes")
			for _, v := range volumes {
				path, _, _ := unstructured.NestedString(v.(map[string]any), "hostPath", "path")
				paths[path] = true
			}
		}
	}
	collect(manifestFile)
	before := len(paths)
	collect(uninstallFile)
	if len(images) != 1 || len(paths) != before || before < 5 {
		t.Errorf("images %v, paths %v", images, paths)
	}
}
