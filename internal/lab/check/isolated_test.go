package check

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods that were made after the policy count, and those before it that began in a later second.
func TestLateSenders(t *testing.T) {
	policy := time.Unix(1000, 0)
	pod := func(i int, after time.Duration) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sender-%d", i)}, Status: corev1.PodStatus{
			PodIPs:            []corev1.PodIP{{IP: fmt.Sprintf("10.0.0.%d", i)}, {IP: fmt.Sprintf("fd00::%d", i)}},
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: policy.Add(after)}}}}},
		}}
	}
	pods := []corev1.Pod{pod(0, -time.Second), pod(1, time.Second), pod(2, 2*time.Second), pod(3, 0)}
	late, err := lateSenders(pods, policy, 3, 4)
	if err != nil || len(late) != 2 || late[0].name != "sender-2" || late[1].name != "sender-3" {
		t.Errorf("%v, %v", late, err)
	}
	a := netip.MustParseAddr
	if n := late[0].count(map[netip.Addr]int{a("10.0.0.2"): 2, a("fd00::2"): 3, a("fd00::3"): 9}); n != 5 {
		t.Errorf("%d packets of it, want 5", n)
	}
	_, err = lateSenders(pods, policy, 3, 5)
	wantError(t, err, "4 of 5 pods")
	pods[1].Status.ContainerStatuses[0].State.Running = nil
	_, err = lateSenders(pods, policy, 3, 4)
	wantError(t, err, "sender-1 does not run")
}

// Who sends what is counted by address, in both families, until it is stopped.
func TestListenForPings(t *testing.T) {
	r := kernelsCluster(t)
	q := netip.MustParseAddr("10.244.1.3")
	seen, stop, err := listenForPings(r, "q", []netip.Addr{q, netip.MustParseAddr("::1")})
	must(t, err)
	defer stop()
	for _, ping := range [][]string{{"p", "10.244.1.3"}, {"q", "::1"}} {
		_, err := r.Namespace(r.Node(ping[0])).Output("ping", "-c", "3", "-i", "0.05", ping[1])
		must(t, err)
	}
	if got := seen.snapshot(); got[netip.MustParseAddr("10.244.1.2")] != 3 || got[netip.MustParseAddr("::1")] < 3 || got[q] != 0 {
		t.Errorf("%v", got)
	}
	if _, _, err := listenForPings(r, "q", []netip.Addr{netip.MustParseAddr("192.0.2.1")}); err == nil {
		t.Error("an address that the pod has not is listened at")
	}
}
