package kube

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// templateHash is the label that a Deployment's ReplicaSet has, and its pods: its name is that
// of the Deployment and this.
const templateHash = "pod-template-hash"

// cronDigits is how many digits the names of a CronJob's Jobs end in: minutes since 1970.
const cronDigits = 8

// workloadOf is kind/name of what a pod belongs to: its controller, or the Deployment or CronJob
// that this is made by. A pod without a controller is its own.
func workloadOf(pod metav1.Object) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return "Pod/" + pod.GetName()
	}
	name := owner.Name
	switch owner.Kind {
	case "ReplicaSet":
		if hash := pod.GetLabels()[templateHash]; hash != "" && strings.HasSuffix(name, "-"+hash) {
			return "Deployment/" + strings.TrimSuffix(name, "-"+hash)
		}
	case "Job":
		at := len(name) - cronDigits
		if at > 1 && name[at-1] == '-' && strings.Trim(name[at:], "0123456789") == "" {
			return "CronJob/" + name[:at-1]
		}
	}
	return owner.Kind + "/" + name
}
