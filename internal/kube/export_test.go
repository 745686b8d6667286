//go:build apiserver

package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Kubeconfigs starts a kube-apiserver with what the manifest has, and writes how
// an administrator reaches it, and somebody who may do nothing.
func Kubeconfigs(t *testing.T) (admin, nobody string) {
	t.Helper()
	s := newServer(t)
	s.apply(t, nodeObject("node-1", map[string]any{"name": "node-1", "address": "2001:db8::1", "locator": "fc00:0:1::/48"}))
	s.waits(t, "everybody may ask what they may do", func() error {
		c := rest.CopyConfig(s.admin)
		c.BearerToken = "nobody"
		asks, err := dynamic.NewForConfig(c)
		if err != nil {
			return err
		}
		_, err = asks.Resource(schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}).
			Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
				"spec": map[string]any{"resourceAttributes": map[string]any{"verb": "list", "resource": "nodes"}},
			}}, metav1.CreateOptions{})
		return err
	})
	return s.kubeconfig(t, "root"), s.kubeconfig(t, "nobody")
}

// kubeconfig writes how somebody reaches it.
func (s *server) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "k", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "u", "user": {"token": %q}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`, s.admin.Host, token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// kubectl is what kubectl prints for somebody.
func (s *server) kubectl(t *testing.T, token string, args ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(programs(t), "kubectl"), append(args, "--kubeconfig", s.kubeconfig(t, token))...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
