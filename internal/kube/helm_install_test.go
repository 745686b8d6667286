//go:build apiserver && helm

package kube

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Helm creates, changes and removes the same objects as the manifest.
func TestHelmInstalls(t *testing.T) {
	s := newServer(t)
	all := manifestIn(t, manifestFile)
	looked := time.Now()
	gone := func() error {
		var errs []error
		again := time.Since(looked) > 5*time.Second
		for _, u := range all {
			there, err := s.of(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			errs = append(errs, errors.New(u.GetKind()+" "+u.GetName()+" is there"))
			if again && err == nil && there.GetDeletionTimestamp() != nil {
				// Where Kubernetes fails to write that it deletes a definition, it forgets it for five
				// minutes (crd_finalizer.go), unless something else about it changes.
				_ = annotate(t.Context(), s.of(u), u.GetName(), "example.org/looked", time.Now().String()) // it may be gone
				looked = time.Now()
			}
		}
		return errors.Join(errs...)
	}
	for _, u := range all {
		if err := s.of(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.waits(t, "nothing of the manifest is there", gone)
	do := func(args ...string) {
		helm(t, append(args, "--namespace", namespace, "--kubeconfig", s.kubeconfig(t, "root"))...)
	}
	wantTag := func(tag string) {
		for _, u := range all {
			text, err := json.Marshal(s.get(t, u).Object)
			if err != nil {
				t.Fatal(err)
			}
			if u.GetKind() == "DaemonSet" && !strings.Contains(string(text), `"image":"ghcr.io/culvert-net/culvert:`+tag+`"`) {
				t.Errorf("want the image of %s: %s", tag, text)
			}
		}
	}
	do("install", "culvert", chartFolder)
	wantTag("latest")
	do("upgrade", "culvert", chartFolder, "--set", "image.tag=v2")
	wantTag("v2")
	do("uninstall", "culvert")
	s.waits(t, "Helm has taken all away", gone)
}
