//go:build helm

package upf_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
)

// run runs Helm, which `tools/cluster/build.sh all` builds, without what its user has of it.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	c := exec.CommandContext(t.Context(), filepath.Join(cache, "culvert", "cluster", "bin", "helm"), args...)
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w: %s (tools/cluster/build.sh all makes it)", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const oldest = "--kube-version=1.32.0" // of what the chart is for

// example is a configuration of a UPF, from examples/upf.yaml.
func example(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/upf.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return "config:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ") + "\n"
}

// rendered is the chart with values, each object read as strictly as the API server's strict
// validation does: a field that its kind does not have is an error.
type rendered struct {
	config     corev1.ConfigMap
	deployment appsv1.Deployment
	unpin      batchv1.Job
}

func render(t *testing.T, values string) (r rendered) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	helm(t, "lint", "--strict", oldest, "--values", file, "chart")
	text := helm(t, "template", "upf1", "chart", oldest, "--namespace", "core", "--values", file)
	seen := 0
	for _, document := range strings.Split(text, "\n---\n") {
		var into any
		switch {
		case strings.Contains(document, "\nkind: ConfigMap\n"):
			into = &r.config
		case strings.Contains(document, "\nkind: Deployment\n"):
			into = &r.deployment
		case strings.Contains(document, "\nkind: Job\n"):
			into = &r.unpin
		default:
			t.Fatalf("nobody knows %s", document)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatalf("%v: %s", err, document)
		}
		seen++
	}
	if seen != 3 {
		t.Fatalf("there are %d objects", seen)
	}
	return r
}

func TestChart(t *testing.T) {
	r := render(t, example(t))
	if _, err := config.Parse([]byte(r.config.Data["culvert.yaml"])); err != nil {
		t.Errorf("the chart's configuration: %v", err)
	}
	pod := r.deployment.Spec.Template.Spec
	c := pod.Containers[0]
	if !pod.HostNetwork || *pod.AutomountServiceAccountToken || c.Image != "ghcr.io/culvert-net/culvert-upf:latest" || len(pod.InitContainers) != 2 {
		t.Errorf("%+v", pod)
	}
	if c.SecurityContext.Privileged != nil || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.SecurityContext.Capabilities.Add) != 4 {
		t.Errorf("it may do more than it needs: %+v", c.SecurityContext)
	}
	if r.deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Error("two daemons would want one state")
	}
	unpin := r.unpin.Spec.Template.Spec
	if r.unpin.Annotations["helm.sh/hook"] != "post-delete" || !slices.Equal(unpin.Containers[0].Command[:2], []string{"/usr/bin/culvert", "unpin"}) {
		t.Errorf("%+v", r.unpin)
	}
	for _, p := range []corev1.PodSpec{pod, unpin} {
		alone := p.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if len(alone) != 1 || alone[0].TopologyKey != corev1.LabelHostname || alone[0].NamespaceSelector == nil || len(alone[0].NamespaceSelector.MatchLabels) != 0 {
			t.Fatalf("two releases may be on one node: %+v", alone)
		}
		selector, err := metav1.LabelSelectorAsSelector(alone[0].LabelSelector)
		if err != nil || !selector.Matches(labels.Set{"app.kubernetes.io/name": r.deployment.Spec.Template.Labels["app.kubernetes.io/name"], "app.kubernetes.io/instance": "another"}) {
			t.Errorf("it does not keep away from another release: %v, %v", selector, err)
		}
		if p.NodeSelector["culvert.net/upf"] != "true" || p.NodeSelector["kubernetes.io/os"] != "linux" {
			t.Errorf("the node: %v", p.NodeSelector)
		}
	}
}

func TestChartValues(t *testing.T) {
	r := render(t, `
image: {repository: r.example/upf, tag: v1.2.3, pullPolicy: Always}
imagePullSecrets: [{name: secret}]
config: {metrics: {listen: "off"}}
nodeSelector: {kubernetes.io/hostname: a}
tolerations: [{operator: Exists}]
forwarding: false
resources: {limits: {cpu: 2}}
`)
	if !strings.Contains(r.config.Data["culvert.yaml"], `listen: "off"`) {
		t.Errorf("config: %v", r.config.Data)
	}
	for _, p := range []corev1.PodSpec{r.deployment.Spec.Template.Spec, r.unpin.Spec.Template.Spec} {
		c := p.Containers[0]
		if c.Image != "r.example/upf:v1.2.3" || c.ImagePullPolicy != corev1.PullAlways || p.ImagePullSecrets[0].Name != "secret" ||
			p.NodeSelector["kubernetes.io/hostname"] != "a" || p.Tolerations[0].Operator != corev1.TolerationOpExists {
			t.Errorf("%+v", p)
		}
	}
	if first := r.deployment.Spec.Template.Spec.InitContainers; len(first) != 1 || first[0].Image != "r.example/upf:v1.2.3" {
		t.Errorf("before the daemon: %+v", first)
	}
	if limit := r.deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Cpu().String(); limit != "2" {
		t.Errorf("limits: %s", limit)
	}
	was := render(t, example(t)).deployment.Spec.Template.Annotations["culvert.net/config"]
	if is := r.deployment.Spec.Template.Annotations["culvert.net/config"]; is == was {
		t.Error("a change of the configuration starts nobody again")
	}
}

// Where Culvert connects a node's pods, neither the daemon starts nor is the data path detached.
func TestChartBesidePods(t *testing.T) {
	r := render(t, example(t)+"cni: {binDir: /var/lib/cni/bin, confDir: /var/lib/cni/net.d}\n")
	daemon, unpin := r.deployment.Spec.Template.Spec, r.unpin.Spec.Template.Spec
	folders := []string{"--bin-dir=/host/cni/bin", "--conf-dir=/host/cni/net.d"}
	for _, c := range []struct {
		pod     corev1.PodSpec
		asks    corev1.Container // before anything changes the node
		command []string
	}{
		{daemon, daemon.InitContainers[0], append([]string{"/usr/bin/culvert", "cni", "absent"}, folders...)},
		{unpin, unpin.Containers[0], append([]string{"/usr/bin/culvert", "unpin", "--spare-pods"}, folders...)},
	} {
		from := map[string]string{}
		for _, v := range c.pod.Volumes {
			for _, m := range c.asks.VolumeMounts {
				if m.Name == v.Name && m.ReadOnly {
					from[m.MountPath] = v.HostPath.Path
				}
			}
		}
		if !slices.Equal(c.asks.Command, c.command) || from["/host/cni/bin"] != "/var/lib/cni/bin" || from["/host/cni/net.d"] != "/var/lib/cni/net.d" {
			t.Errorf("%v, with %v", c.asks.Command, from)
		}
	}
}

// The kubelet asks where the configuration says, and nobody where it says that nobody answers.
func TestChartHealth(t *testing.T) {
	for listen, want := range map[string]string{"": "127.0.0.1 9418", "10.0.0.1:9000": "10.0.0.1 9000", "0.0.0.0:9000": "127.0.0.1 9000", ":9000": "127.0.0.1 9000", "[::]:9000": "127.0.0.1 9000",
		"[2001:db8::1]:9000": "2001:db8::1 9000", "off": "nobody"} {
		values := example(t)
		if listen != "" {
			values += fmt.Sprintf("  metrics: {listen: %q}\n", listen)
		}
		got := "nobody"
		if p := render(t, values).deployment.Spec.Template.Spec.Containers[0].LivenessProbe; p != nil {
			got = fmt.Sprint(p.HTTPGet.Host, " ", p.HTTPGet.Port.String())
			if p.HTTPGet.Path != "/healthz" || p.TimeoutSeconds <= 10 {
				t.Errorf("%q: /healthz answers within 10 s: %+v", listen, p)
			}
		}
		if got != want {
			t.Errorf("%q: %s is asked, want %s", listen, got, want)
		}
	}
}

func TestChartWantsAConfiguration(t *testing.T) {
	if _, err := run(t, "template", "upf1", "chart", oldest); err == nil || !strings.Contains(err.Error(), "config: missing") {
		t.Errorf("no configuration: %v", err)
	}
}
