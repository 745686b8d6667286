//go:build apiserver

package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/culvert-net/culvert/internal/overlay"
)

// Audited is a kube-apiserver with what the chart has for an engine, which notes what the engine
// asks for.
type Audited struct {
	*server
	objects map[string]*unstructured.Unstructured // of the chart, by kind
	log     string
}

const engineUser = "system:serviceaccount:" + namespace + ":culvert-te"

// NewAudited starts one whose cluster has some nodes.
func NewAudited(t *testing.T, values map[string]any, nodes ...overlay.Node) *Audited {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy"), filepath.Join(dir, "log")
	text := fmt.Sprintf(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata", "users": [%q]}]}`, engineUser)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, "--audit-policy-file", policy, "--audit-log-path", log)
	for _, n := range nodes {
		s.apply(t, nodeObject(n.Name, n))
	}
	return &Audited{s, s.install(t, values), log}
}

// Command is what the engine's container runs.
func (a *Audited) Command(t *testing.T) []string {
	t.Helper()
	containers, _, _ := unstructured.NestedSlice(a.objects["Deployment"].Object, "spec", "template", "spec", "containers")
	command, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "command")
	if err != nil {
		t.Fatal(err)
	}
	return command
}

// Network is the file that the engine reads.
func (a *Audited) Network() string {
	text, _, _ := unstructured.NestedString(a.objects["ConfigMap"].Object, "data", "network.yaml")
	return text
}

// Kubeconfig has the engine's account reach the server.
func (a *Audited) Kubeconfig(t *testing.T) string {
	return a.kubeconfig(t, a.token(t, "culvert-te", nil))
}

// Authority is a file with a certificate.
func (a *Audited) Authority() string { return filepath.Join(a.dir, "certs", "apiserver.crt") }

// Waits waits until f returns no error.
func (a *Audited) Waits(t *testing.T, what string, f func() error) {
	t.Helper()
	a.waits(t, what, f)
}

// Paths are those of SRv6Policies for a node, by the objects' names, and the objects' versions.
func (a *Audited) Paths(node string) (paths map[string]Path, versions map[string]string, err error) {
	list, err := a.server.objects.Resource(policyResource).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	paths, versions = map[string]Path{}, map[string]string{}
	for i := range list.Items {
		u := &list.Items[i]
		e, err := readPolicy(u, node)
		if err != nil {
			return nil, nil, err
		}
		paths[u.GetName()], versions[u.GetName()] = e.path, u.GetResourceVersion()
	}
	return paths, versions, nil
}

// Rights are what the chart gives the engine, each as "verb group/resource".
func (a *Audited) Rights(t *testing.T) (rights []string) {
	t.Helper()
	all := map[string]bool{}
	for _, kind := range []string{"ClusterRole", "Role"} {
		text, err := json.Marshal(a.objects[kind].Object["rules"])
		var rules []rbacv1.PolicyRule
		if err == nil {
			err = json.Unmarshal(text, &rules)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			for _, verb := range r.Verbs {
				all[fmt.Sprintf("%s %s/%s", verb, r.APIGroups[0], r.Resources[0])] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Asked is what the engine has asked for so far, in the words of Rights. What was denied is an error.
func (a *Audited) Asked(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			ObjectRef      struct{ APIGroup, Resource, Subresource, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %s", err, lines.Bytes())
		}
		asked := fmt.Sprintf("%s %s/%s", e.Verb, e.ObjectRef.APIGroup, strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"))
		if e.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("denied: %s %s", asked, e.ObjectRef.Name)
		}
		all[asked] = true
	}
	return slices.Sorted(maps.Keys(all))
}
