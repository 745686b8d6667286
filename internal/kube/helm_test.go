//go:build helm

package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const chartFolder = "../../dist/kubernetes/chart"

// helm runs Helm, which `tools/cluster/build.sh all` builds, without what its user
// has of it.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), filepath.Join(cache, "culvert", "cluster", "bin", "helm"), args...)
	home := t.TempDir()
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("helm %s: %v: %s (tools/cluster/build.sh all makes it)", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// objectsByName are the objects of YAML documents by kind, namespace and name.
func objectsByName(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, u := range objectsIn(t, text) {
		key := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if all[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		all[key] = u.Object
	}
	return all
}

func sameObjects(t *testing.T, got, want map[string]any) {
	t.Helper()
	if names, wanted := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(names, wanted) {
		t.Fatalf("there are %q: want %q", names, wanted)
	}
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s is\n%v\nwant\n%v", name, got[name], want[name])
		}
	}
}

// checksum is the annotation by which agents start again when their configuration
// changes.
func checksum(config string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(config)))
	return hex.EncodeToString(sum[:])
}

const oldest = "--kube-version=1.32.0" // of what the chart is for; else Helm takes its own

// What Helm renders of the chart is the manifest, and of each value the manifest with
// that change.
func TestHelm(t *testing.T) {
	const (
		node = "fieldPath: spec.nodeName}}"
		env  = "\n            - {name: KUBERNETES_SERVICE_"
	)
	config, err := yaml.Marshal(chartValues(t)["config"])
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ReplaceAll(string(config), "fc00::/32", "fd55::/32")
	text, err := os.ReadFile(manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	cases := map[string]struct {
		values  string
		old, to []string // of the manifest
	}{
		"image.repository": {"image: {repository: r.example/c}", []string{"ghcr.io/culvert-net/culvert:latest"}, []string{"r.example/c:latest"}},
		"image.tag":        {"image: {tag: v1.2.3}", []string{"culvert:latest"}, []string{"culvert:v1.2.3"}},
		"image.pullPolicy": {"image: {pullPolicy: Always}", []string{"IfNotPresent"}, []string{"Always"}},
		"imagePullSecrets": {"imagePullSecrets: [{name: secret}]", []string{"      initContainers:"}, []string{"      imagePullSecrets: [{name: secret}]\n      initContainers:"}},
		"config":           {"config: {overlay: {locator_pool: \"fd55::/32\"}}", []string{"fc00::/32", checksum(string(config))}, []string{"fd55::/32", checksum(changed)}},
		"apiServer.host":   {"apiServer: {host: \"2001:db8::1\"}", []string{node}, []string{node + env + `HOST, value: "2001:db8::1"}` + env + `PORT, value: "6443"}`}},
		"apiServer.port":   {"apiServer: {host: k, port: 443}", []string{node}, []string{node + env + `HOST, value: "k"}` + env + `PORT, value: "443"}`}},
		"cni.version":      {"cni: {version: 1.1.0}", []string{"--cni-version=1.0.0"}, []string{"--cni-version=1.1.0"}},
		"cni.binDir":       {"cni: {binDir: /usr/lib/cni}", []string{"path: /opt/cni/bin"}, []string{"path: /usr/lib/cni"}},
		"cni.confDir":      {"cni: {confDir: /etc/other}", []string{"path: /etc/cni/net.d"}, []string{"path: /etc/other"}},
		"cni.netnsDir":     {"cni: {netnsDir: /run/other}", []string{"/var/run/netns"}, []string{"/run/other"}},
		"cni.chain":        {"cni: {chain: [tuning]}", []string{"--cni-chain=portmap,bandwidth"}, []string{"--cni-chain=tuning"}},
		"nodeSelector":     {"nodeSelector: {pool: a}", []string{"kubernetes.io/os: linux"}, []string{"kubernetes.io/os: linux\n        pool: a"}},
		"resources":        {"resources: {limits: {cpu: 2}}", []string{"memory: 100Mi"}, []string{"memory: 100Mi\n            limits: {cpu: 2}"}},
	}
	there := slices.DeleteFunc(leaves(t), func(name string) bool { return strings.HasPrefix(name, "te.") }) // TestHelmEngine
	if !slices.Equal(there, slices.Sorted(maps.Keys(cases))) {
		t.Errorf("values.yaml has %q", there)
	}
	helm(t, "lint", "--strict", oldest, chartFolder)
	render := func(t *testing.T, args ...string) map[string]any {
		return objectsByName(t, helm(t, append([]string{"template", "culvert", chartFolder, oldest}, args...)...))
	}
	sameObjects(t, render(t, "--namespace", namespace), objectsByName(t, manifest))
	sameObjects(t, render(t, "--namespace", "other"), objectsByName(t, strings.ReplaceAll(manifest, namespace, "other")))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(c.values), 0o600); err != nil {
				t.Fatal(err)
			}
			want := manifest
			for i, old := range c.old {
				if !strings.Contains(want, old) {
					t.Fatalf("%q is not in the manifest", old)
				}
				want = strings.ReplaceAll(want, old, c.to[i])
			}
			sameObjects(t, render(t, "--namespace", namespace, "--values", file), objectsByName(t, want))
		})
	}
}

// Helm renders the engine as the tests of its objects do.
func TestHelmEngine(t *testing.T) {
	text, err := yaml.Marshal(engineValues)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	helm(t, "lint", "--strict", oldest, "--values", file, chartFolder)
	got := helm(t, "template", "culvert", chartFolder, oldest, "--namespace", namespace, "--values", file)
	sameObjects(t, objectsByName(t, got), objectsByName(t, render(t, engineValues)))
}

// leaves are the names of all values of the chart, whose own sections are one level
// deep; what is in config and resources is not the chart's.
func leaves(t *testing.T) (names []string) {
	t.Helper()
	for name, value := range chartValues(t) {
		section, is := value.(map[string]any)
		if !is || slices.Contains([]string{"config", "nodeSelector", "resources"}, name) {
			names = append(names, name)
			continue
		}
		for inner := range section {
			names = append(names, name+"."+inner)
		}
	}
	slices.Sort(names)
	return names
}

// chartValues are those of the chart unless others are given.
func chartValues(t *testing.T) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartFolder, "values.yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return values
}
