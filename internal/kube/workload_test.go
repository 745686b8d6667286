package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWorkloadOf(t *testing.T) {
	yes := true
	owned := func(kind, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "p", Labels: labels, OwnerReferences: []metav1.OwnerReference{{Kind: "Other", Name: "o"}, {Kind: kind, Name: name, Controller: &yes}}}
	}
	for want, pod := range map[string]metav1.ObjectMeta{
		"Pod/p":                 {Name: "p", OwnerReferences: []metav1.OwnerReference{{Kind: "Other", Name: "o"}}},
		"DaemonSet/agent":       owned("DaemonSet", "agent", nil),
		"Deployment/web":        owned("ReplicaSet", "web-5d9c7b8f6d", map[string]string{"pod-template-hash": "5d9c7b8f6d"}),
		"ReplicaSet/web-5d9c7b": owned("ReplicaSet", "web-5d9c7b", nil),
		"ReplicaSet/web-b":      owned("ReplicaSet", "web-b", map[string]string{"pod-template-hash": "a"}),
		"CronJob/backup":        owned("Job", "backup-29391040", nil),
		"Job/backup-2939104":    owned("Job", "backup-2939104", nil),
		"Job/-29391040":         owned("Job", "-29391040", nil),
		"Job/29391040":          owned("Job", "29391040", nil),
		"Job/x-2939104a":        owned("Job", "x-2939104a", nil),
	} {
		if got := workloadOf(&pod); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
