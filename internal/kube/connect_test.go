package kube

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// An API server that cannot be reached: in a pod that is most often for want of
// what translates Services' addresses.
func TestUnreachable(t *testing.T) {
	api, err := connectTo(&rest.Config{Host: "https://127.0.0.1:1"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for kubeconfig, hint := range map[string]bool{"": true, "/root/.kube/config": false} {
		w, _, stop := starts(t, api, Config{Node: me, Namespace: namespace, Kubeconfig: kubeconfig}, Known{})
		waits(t, "an error", func() bool { return w.Status().Error != "" })
		got := w.Status().Error
		if !strings.HasPrefix(got, "dial tcp 127.0.0.1:1: ") || strings.Contains(got, "does kube-proxy run") != hint {
			t.Errorf("with kubeconfig %q: %s", kubeconfig, got)
		}
		stop()
	}
}
