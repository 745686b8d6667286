package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/config"
)

// plugin is a caller as the CNI plugin is one.
func plugin(network, address string) culvertv1connect.PodsClient {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	return culvertv1connect.NewPodsClient(&http.Client{Transport: transport}, "http://localhost")
}

func TestPods(t *testing.T) {
	a, c, path := start(t, "edge.yaml")
	rpc, ctx := plugin("unix", path), t.Context()
	first, second := &pb.Attachment{ContainerId: "c1", Interface: "eth0"}, &pb.Attachment{ContainerId: "c2", Interface: "eth0"}
	want := pods.Status{Attachment: pods.Attachment{ContainerID: "c1", Interface: "eth0"}, Pod: pods.Pod{
		Network: "culvert", NetNS: "/run/netns/x", Namespace: "default", Name: "web", UID: "1-2", HostInterface: "culv0", HostIfindex: 7, MAC: "02:00:00:00:00:01", Shaped: true, Labels: map[string]string{"app": "web"},
	}}
	added, err := rpc.AddPod(ctx, &pb.AddPodRequest{Attachment: first, Pod: &pb.Pod{
		Network: "culvert", Netns: "/run/netns/x", Namespace: "default", Name: "web", Uid: "1-2", HostInterface: "culv0", HostIfindex: 7, Mac: "02:00:00:00:00:01", Shaped: true, Labels: map[string]string{"app": "web"},
	}})
	if err != nil || fmt.Sprint(added.Addresses, added.Gateways, added.Mtu) != "[10.244.1.2 fd00:10:244:1::2] [169.254.1.1 fe80::1] 1440" {
		t.Fatalf("add: %v, %v", added, err)
	}
	if _, err := rpc.AddPod(ctx, &pb.AddPodRequest{Attachment: second, Pod: &pb.Pod{Network: "culvert"}}); err != nil {
		t.Fatal(err)
	}
	both(t, "pods", c.Pods, a.Pods)
	list, err := c.Pods(ctx, "default/web")
	if len(list) != 1 {
		t.Fatalf("by its name: %v, %v", list, err)
	}
	want.Addresses = list[0].Addresses
	if !reflect.DeepEqual(list[0], want) {
		t.Errorf("got  %+v\nwant %+v", list[0], want)
	}
	if list, err := c.Pods(ctx, "c2/eth0"); err != nil || len(list) != 1 {
		t.Errorf("one without a name: %v, %v", list, err)
	}
	removed, err := rpc.RetainPods(ctx, &pb.RetainPodsRequest{Network: "culvert", Valid: []*pb.Attachment{first}})
	if err != nil || len(removed.Removed) != 1 || removed.Removed[0].ContainerId != "c2" {
		t.Errorf("retain: %v, %v", removed, err)
	}
	for range 2 {
		if _, err := rpc.DeletePod(ctx, &pb.DeletePodRequest{Attachment: first}); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	checked, err := rpc.CheckPod(ctx, &pb.CheckPodRequest{Attachment: first})
	if err != nil || len(checked.Differences) != 1 {
		t.Errorf("check: %v, %v", checked, err)
	}
	a.Readiness = pods.Readiness{Reason: "no uplink", Limited: true}
	ready, err := rpc.GetPodReadiness(ctx, &pb.GetPodReadinessRequest{})
	if err != nil || ready.Ready || ready.Reason != "no uplink" || !ready.Limited {
		t.Errorf("readiness: %v, %v", ready, err)
	}
	if r, err := api.PodReadiness(ctx, path); err != nil || r != a.Readiness {
		t.Errorf("readiness: %+v, %v", r, err)
	}
	if _, err := api.PodReadiness(ctx, path+".none"); err == nil || !strings.Contains(err.Error(), "no daemon at") {
		t.Errorf("readiness of nobody: %v", err)
	}
}

// The plugin decides by these codes.
func TestPodErrors(t *testing.T) {
	a, _, path := start(t, "edge.yaml")
	for cause, code := range map[error]connect.Code{
		pods.ErrNotReady:   connect.CodeUnavailable,
		pods.ErrExhausted:  connect.CodeResourceExhausted,
		desired.ErrInvalid: connect.CodeInvalidArgument,
	} {
		a.Err = fmt.Errorf("%w: and why", cause)
		_, err := plugin("unix", path).AddPod(t.Context(), &pb.AddPodRequest{})
		if connect.CodeOf(err) != code || !strings.Contains(err.Error(), "and why") {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// Pods' network namespaces are for callers on the socket.
func TestPodsFromAfar(t *testing.T) {
	a := apitest.New(load(t, "edge.yaml"))
	s := serve(t, config.API{Listen: "127.0.0.1:0"}, a, nil)
	address := s.Addresses()[0].String()
	if _, err := dial(t, api.Endpoint{Address: address}).Pods(t.Context(), ""); err != nil {
		t.Errorf("a list: %v", err)
	}
	_, err := plugin("tcp", address).AddPod(t.Context(), &pb.AddPodRequest{Attachment: &pb.Attachment{ContainerId: "c"}, Pod: &pb.Pod{}})
	if list, _ := a.Pods(); connect.CodeOf(err) != connect.CodeUnimplemented || len(list) > 0 {
		t.Errorf("add over TCP: %v, %v", err, list)
	}
}
