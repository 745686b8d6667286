package daemon

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// access is the source interface of what comes from the RAN (TS 29.244 section 8.2.2).
const access = 0

// rulesView is what culvert shows of the rules of a session.
type rulesView struct {
	PDRs []struct {
		PDI struct {
			Source uint8      `json:"source"`
			TEID   uint32     `json:"teid"`
			TEID4  netip.Addr `json:"teid4"`
		} `json:"pdi"`
	} `json:"pdrs"`
	FARs []struct {
		Forwarding struct {
			Outer struct {
				Addr netip.Addr `json:"addr"`
				TEID uint32     `json:"teid"`
			} `json:"outer"`
		} `json:"forwarding"`
	} `json:"fars"`
}

// SessionTunnel is the F-TEID to which a gNB sends what a UE sends, as the UPF has it from
// the SMF. It is an error until the UPF sends to the gNB's end of the tunnel.
func SessionTunnel(ctx context.Context, in *instance.Instance, upf *topology.Node, ue netip.Addr, gnb *gtpulink.Link) (at netip.Addr, teid uint32, err error) {
	var list []struct {
		SEID  uint64    `json:"seid"`
		Rules rulesView `json:"rules"`
	}
	if err := AskJSON(ctx, in, upf, &list, "session", "--ue", ue.String()); err != nil {
		return at, 0, err
	}
	if len(list) != 1 {
		return at, 0, fmt.Errorf("%s has %d sessions of %v: want 1", upf.Name, len(list), ue)
	}
	one := list[:1]
	if err := AskJSON(ctx, in, upf, &one[0], "session", "show", fmt.Sprint(list[0].SEID)); err != nil {
		return at, 0, err
	}
	sends := false
	for _, f := range one[0].Rules.FARs {
		sends = sends || f.Forwarding.Outer.Addr == gnb.Local && f.Forwarding.Outer.TEID == gnb.TEID
	}
	if !sends {
		return at, 0, fmt.Errorf("%s: the session of %v has no FAR that sends to %v, TEID %d", upf.Name, ue, gnb.Local, gnb.TEID)
	}
	for _, p := range one[0].Rules.PDRs {
		if p.PDI.Source == access && p.PDI.TEID != 0 && p.PDI.TEID4.IsValid() {
			return p.PDI.TEID4, p.PDI.TEID, nil
		}
	}
	return at, 0, fmt.Errorf("%s: the session of %v has no PDR with an F-TEID on the access side", upf.Name, ue)
}
