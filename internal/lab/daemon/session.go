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

// sessionView is what culvert shows of a session: its rules only where one is asked for.
type sessionView struct {
	SEID   uint64    `json:"seid,string"`
	CPSEID uint64    `json:"cp_seid,string"`
	Rules  rulesView `json:"rules"`
}

// sessionOf is the only session of a UE at a UPF.
func sessionOf(ctx context.Context, in *instance.Instance, upf *topology.Node, ue netip.Addr) (sessionView, error) {
	var list []sessionView
	if err := AskJSON(ctx, in, upf, &list, "session", "--ue", ue.String()); err != nil {
		return sessionView{}, err
	}
	if len(list) != 1 {
		return sessionView{}, fmt.Errorf("%s has %d sessions of %v: want 1", upf.Name, len(list), ue)
	}
	return list[0], nil
}

// CPSEID is the SMF's SEID of the only session of a UE at a UPF.
func CPSEID(ctx context.Context, in *instance.Instance, upf *topology.Node, ue netip.Addr) (uint64, error) {
	session, err := sessionOf(ctx, in, upf, ue)
	return session.CPSEID, err
}

// SessionTunnel is the F-TEID to which a gNB sends what a UE sends, as the UPF has it from
// the SMF. It is an error until the UPF sends to the gNB's end of the tunnel.
func SessionTunnel(ctx context.Context, in *instance.Instance, upf *topology.Node, ue netip.Addr, gnb *gtpulink.Link) (at netip.Addr, teid uint32, err error) {
	session, err := sessionOf(ctx, in, upf, ue)
	if err != nil {
		return at, 0, err
	}
	if err := AskJSON(ctx, in, upf, &session, "session", "show", fmt.Sprint(session.SEID)); err != nil {
		return at, 0, err
	}
	sends := false
	for _, f := range session.Rules.FARs {
		sends = sends || f.Forwarding.Outer.Addr == gnb.Local && f.Forwarding.Outer.TEID == gnb.TEID
	}
	if !sends {
		return at, 0, fmt.Errorf("%s: the session of %v has no FAR that sends to %v, TEID %d", upf.Name, ue, gnb.Local, gnb.TEID)
	}
	for _, p := range session.Rules.PDRs {
		if p.PDI.Source == access && p.PDI.TEID != 0 && p.PDI.TEID4.IsValid() {
			return p.PDI.TEID4, p.PDI.TEID, nil
		}
	}
	return at, 0, fmt.Errorf("%s: the session of %v has no PDR with an F-TEID on the access side", upf.Name, ue)
}
