package node

import (
	"net/netip"

	"github.com/culvert-net/culvert/gtpu"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The functions here write what the benchmark configures as the management API
// has it; fields that no function sets are left out.

func pbSID(s srv6.LocalSID) *pb.LocalSID {
	out := &pb.LocalSID{
		Sid: s.SID.String(), Behavior: s.Behavior.String(), Table: s.Table, NextHop: text(s.NextHop), Interface: s.Interface,
		Policy: s.Policy, Map: text(s.Map), Source: text(s.Source), SourcePrefixLength: uint32(s.SourcePrefixLength),
		ArgsOffset: uint32(s.ArgsOffset), BlockLength: uint32(s.BlockLength),
	}
	for _, f := range s.Flavors {
		out.Flavors = append(out.Flavors, f.String())
	}
	if s.PDUType != srv6.PDUTypeNone {
		out.PduType = s.PDUType.String()
	}
	return out
}

func pbSteering(s srpolicy.Steering) *pb.Steering {
	out := &pb.Steering{Interface: s.Interface, Policy: s.Policy, Tunnel: s.Tunnel}
	if s.Prefix.IsValid() {
		out.Prefix = s.Prefix.String()
	}
	if g := s.GTP4D; g != nil {
		out.HMGtp4D = &pb.GTP4D{
			SidPrefix: g.SIDPrefix.String(), SourcePrefix: g.SourcePrefix.String(), PduType: g.PDUType.String(), Policy: g.Policy,
		}
	}
	return out
}

func pbTunnel(t gtpu.Tunnel) *pb.Tunnel {
	return &pb.Tunnel{
		Name: t.Name, LocalTeid: t.LocalTEID, Decapsulate: t.Decapsulate, SwitchTo: t.SwitchTo,
		Remote: text(t.Remote), RemoteTeid: t.RemoteTEID,
	}
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
