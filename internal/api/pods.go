package api

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
)

// podHandler is what the CNI plugin asks.
type podHandler struct{ agent agent.Service }

// withoutPods keeps callers from afar from pods' network namespaces.
func withoutPods(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/"+culvertv1connect.PodsName+"/") {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func attachmentTo(a agent.Attachment) *pb.Attachment {
	return &pb.Attachment{ContainerId: a.ContainerID, Interface: a.Interface}
}

func attachmentFrom(m *pb.Attachment) agent.Attachment {
	return agent.Attachment{ContainerID: m.GetContainerId(), Interface: m.GetInterface()}
}

func podTo(p agent.Pod) *pb.Pod {
	return &pb.Pod{Network: p.Network, Netns: p.NetNS, Namespace: p.Namespace, Name: p.Name, Uid: p.UID,
		HostInterface: p.HostInterface, HostIfindex: int32(p.HostIfindex), Mac: p.MAC, Shaped: p.Shaped}
}

func podFrom(m *pb.Pod) agent.Pod {
	return agent.Pod{Network: m.GetNetwork(), NetNS: m.GetNetns(), Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(),
		HostInterface: m.GetHostInterface(), HostIfindex: int(m.GetHostIfindex()), MAC: m.GetMac(), Shaped: m.GetShaped()}
}

func podStatusTo(s agent.PodStatus) (*pb.PodStatus, error) {
	return &pb.PodStatus{Attachment: attachmentTo(s.Attachment), Pod: podTo(s.Pod), Addresses: texts(s.Addresses), Problem: s.Problem}, nil
}

func podStatusFrom(m *pb.PodStatus) (agent.PodStatus, error) {
	s := agent.PodStatus{Attachment: attachmentFrom(m.GetAttachment()), Pod: podFrom(m.GetPod()), Problem: m.GetProblem()}
	var err error
	s.Addresses, err = each(m.GetAddresses(), netip.ParseAddr)
	return s, err
}

func texts(list []netip.Addr) []string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.String()
	}
	return out
}

func (h *handler) ListPods(_ context.Context, r *pb.ListPodsRequest) (*pb.ListPodsResponse, error) {
	out, err := list(h.agent.Pods, "pod", r.GetKey(), agent.PodStatus.Key, podStatusTo)
	return &pb.ListPodsResponse{Pods: out}, err
}

// Pods lists the pods on the node, or the one that key names: namespace/name.
func (c *Client) Pods(ctx context.Context, key string) ([]agent.PodStatus, error) {
	return fetch(ctx, c, c.rpc.ListPods, &pb.ListPodsRequest{Key: key}, (*pb.ListPodsResponse).GetPods, podStatusFrom)
}

func (h podHandler) AddPod(_ context.Context, r *pb.AddPodRequest) (*pb.AddPodResponse, error) {
	given, err := h.agent.AddPod(attachmentFrom(r.GetAttachment()), podFrom(r.GetPod()))
	return &pb.AddPodResponse{Addresses: texts(given.Addresses), Gateways: texts(given.Gateways), Mtu: uint32(given.MTU)}, err
}

func (h podHandler) DeletePod(_ context.Context, r *pb.DeletePodRequest) (*pb.DeletePodResponse, error) {
	return &pb.DeletePodResponse{}, h.agent.DeletePod(attachmentFrom(r.GetAttachment()))
}

func (h podHandler) CheckPod(_ context.Context, r *pb.CheckPodRequest) (*pb.CheckPodResponse, error) {
	differences, err := h.agent.CheckPod(attachmentFrom(r.GetAttachment()))
	return &pb.CheckPodResponse{Differences: differences}, err
}

func (h podHandler) RetainPods(_ context.Context, r *pb.RetainPodsRequest) (*pb.RetainPodsResponse, error) {
	valid := make([]agent.Attachment, len(r.GetValid()))
	for i, m := range r.GetValid() {
		valid[i] = attachmentFrom(m)
	}
	removed, err := h.agent.RetainPods(r.GetNetwork(), valid)
	response := &pb.RetainPodsResponse{}
	for _, a := range removed {
		response.Removed = append(response.Removed, attachmentTo(a))
	}
	return response, err
}

func (h podHandler) GetPodReadiness(context.Context, *pb.GetPodReadinessRequest) (*pb.GetPodReadinessResponse, error) {
	r, err := h.agent.PodReadiness()
	return &pb.GetPodReadinessResponse{Ready: r.Ready, Reason: r.Reason, Limited: r.Limited}, err
}
