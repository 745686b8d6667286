package operator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/culvert-net/culvert/internal/kube"
)

func TestProblemOf(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "culvert", Image: "an/image:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	crashed := waiting("CrashLoopBackOff", "back-off")
	crashed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Message: "unknown command"}
	talking := waiting("CrashLoopBackOff", "back-off")
	talking.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "level=INFO\nlevel=INFO\nculvert: c.yaml is not taken:\n  c.yaml:1: overlay: no\n"}
	for _, tt := range []struct {
		status corev1.PodStatus
		want   string
		fatal  bool
	}{
		{corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ImagePullBackOff", "not found")}}, "image an/image:1: ImagePullBackOff: not found", true},
		{corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ErrImagePull", "timeout")}}, "container culvert: ErrImagePull timeout", false},
		{corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{crashed}}, "container culvert ends, exit code 2: unknown command", true},
		{corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{crashed}, ContainerStatuses: []corev1.ContainerStatus{waiting("PodInitializing", "")}},
			"container culvert ends, exit code 2: unknown command", true},
		{corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{talking}}, "exit code 1: level=INFO culvert: c.yaml is not taken: c.yaml:1: overlay: no", true},
		{corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ContainerCreating", "")}}, "container culvert: ContainerCreating", false},
		{corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: no free ports"}}},
			"no free ports", false},
		{corev1.PodStatus{Phase: corev1.PodPending}, "it is Pending", false},
	} {
		if got, fatal := problemOf(&corev1.Pod{Status: tt.status}); !strings.Contains(got, tt.want) || fatal != tt.fatal {
			t.Errorf("%q, fatal %v: want %q, %v", got, fatal, tt.want, tt.fatal)
		}
	}
}

func TestPublished(t *testing.T) {
	n := &corev1.Node{}
	if published(n) != nil {
		t.Error("a node that says nothing")
	}
	n.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{kube.NodeAnnotation: `{"name": "node-1", "address": "2001:db8::1", "locator": "fc00:0:1::/48", "ipv4": ["fc00:0:1:4::"]}`}}
	if o := published(n); o == nil || o.End().String() != "fc00:0:1:1::" {
		t.Errorf("%+v", o)
	}
}
