package watch

import (
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
)

// paths reads policies and traffic classes.
type paths struct {
	agent   agent.Service
	current cell[*pb.WatchResponse]
	meter   meter
}

func newPaths(service agent.Service) *paths {
	p := &paths{agent: service}
	p.current.read = p.read
	return p
}

func (p *paths) read(now time.Time) (*pb.WatchResponse, error) {
	policies, err := p.agent.Policies()
	if err != nil {
		return nil, err
	}
	classes, err := p.agent.Classes()
	if err != nil {
		return nil, err
	}
	p.meter.begin(now)
	out := &pb.WatchResponse{}
	for _, v := range policies {
		w := &pb.WatchedPolicy{Policy: &pb.PolicyStatus{}, Rate: p.meter.rate(v.Name, v.Counter)}
		for i, c := range v.Lists {
			rate := p.meter.rate(fmt.Sprintf("%s\n%d %v", v.Name, i, v.SegmentLists[i].Segments), c)
			if rate == nil {
				rate = &pb.Rate{}
			}
			w.Lists = append(w.Lists, rate)
		}
		if err := message.Encode(&v, w.Policy); err != nil {
			return nil, err
		}
		out.Policies = append(out.Policies, w)
	}
	list := &pb.ListClassesResponse{}
	err = message.EncodeList(classes, list)
	out.Classes = list.GetClasses()
	return out, err
}
