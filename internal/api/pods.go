package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/pods"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/api/message"
)

// podHandler serves the CNI plugin.
type podHandler struct{ agent agent.Service }

// withoutPods refuses calls about pods: nobody may change their network namespaces
// from another machine.
func withoutPods(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/"+culvertv1connect.PodsName+"/") {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func attachment(m *pb.Attachment) pods.Attachment {
	return pods.Attachment{ContainerID: m.GetContainerId(), Interface: m.GetInterface()}
}

func (h podHandler) AddPod(_ context.Context, r *pb.AddPodRequest) (*pb.AddPodResponse, error) {
	pod, err := message.Decode[pods.Pod](r.GetPod())
	if err != nil {
		return nil, err
	}
	given, err := h.agent.AddPod(attachment(r.GetAttachment()), pod)
	if err != nil {
		return nil, err
	}
	response := &pb.AddPodResponse{}
	return response, message.Encode(&given, response)
}

func (h podHandler) DeletePod(_ context.Context, r *pb.DeletePodRequest) (*pb.DeletePodResponse, error) {
	return &pb.DeletePodResponse{}, h.agent.DeletePod(attachment(r.GetAttachment()))
}

func (h podHandler) CheckPod(_ context.Context, r *pb.CheckPodRequest) (*pb.CheckPodResponse, error) {
	pod, err := message.Decode[pods.Pod](r.GetPod())
	if err != nil {
		return nil, err
	}
	differences, err := h.agent.CheckPod(attachment(r.GetAttachment()), pod)
	return &pb.CheckPodResponse{Differences: differences}, err
}

func (h podHandler) RetainPods(_ context.Context, r *pb.RetainPodsRequest) (*pb.RetainPodsResponse, error) {
	var valid []pods.Attachment
	for _, m := range r.GetValid() {
		valid = append(valid, attachment(m))
	}
	removed, err := h.agent.RetainPods(r.GetNetwork(), valid)
	return encoded(&pb.RetainPodsResponse{}, removed, err)
}

func (h podHandler) GetPodReadiness(context.Context, *pb.GetPodReadinessRequest) (*pb.GetPodReadinessResponse, error) {
	r, err := h.agent.PodReadiness()
	return &pb.GetPodReadinessResponse{Ready: r.Ready, Reason: r.Reason, Limited: r.Limited}, err
}
