//go:build apiserver

package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Kubeconfigs starts a kube-apiserver with what the manifest has, and writes how
// an administrator reaches it, and somebody who may do nothing.
func Kubeconfigs(t *testing.T) (admin, nobody string) {
	t.Helper()
	s := newServer(t)
	s.apply(t, nodeObject("node-1", map[string]any{"name": "node-1", "address": "2001:db8::1", "locator": "fc00:0:1::/48"}))
	write := func(token string) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"clusters": [{"name": "k", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
			"users": [{"name": "u", "user": {"token": %q}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`, s.admin.Host, token)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("root"), write("nobody")
}
