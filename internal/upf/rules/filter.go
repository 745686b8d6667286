package rules

import (
	"fmt"
	"slices"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// maxFilters bounds the filters of a session in a direction. An SDF filter with
// lists of ports counts once for each pair of ranges.
const maxFilters = 64

// filtersOf returns the filters of a PDR, at most so many. A rule without filters
// takes every packet.
func (c *compiler) filtersOf(p *session.PDR, most int) ([]datapath.Filter, error) {
	if !c.ethernet() {
		if slices.ContainsFunc(p.PDI.Filters, takesAll) {
			return nil, nil
		}
		return expand(p.PDI.Filters, most)
	}
	out, err := expand(p.PDI.Filters, most)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Frame = &datapath.FrameFilter{IP: true}
	}
	for i := range p.PDI.Ethernet {
		e := &p.PDI.Ethernet[i]
		inside := e.Filters
		if len(inside) == 0 {
			inside = []session.Filter{{AnyProtocol: true}}
		}
		more, err := expand(inside, most-len(out))
		if err != nil {
			return nil, err
		}
		for n := range more {
			more[n].Frame = &datapath.FrameFilter{Source: e.Source, Destination: e.Destination,
				SourceTo: e.SourceTo, DestinationTo: e.DestinationTo, EtherType: e.EtherType,
				CTag: e.CVLAN, STag: e.SVLAN, IP: len(e.Filters) > 0}
		}
		out = append(out, more...)
	}
	return out, nil
}

func takesAll(f session.Filter) bool {
	return !f.Remote.IsValid() && !f.Local.IsValid() && f.AnyProtocol && len(f.RemotePorts) == 0 && len(f.LocalPorts) == 0 &&
		f.ToSMask == 0 && f.FlowLabel == nil && f.SPI == nil
}

// expand makes one filter for each pair of ranges of ports, because the data path
// compares one range a side.
func expand(list []session.Filter, most int) ([]datapath.Filter, error) {
	var out []datapath.Filter
	anyPort := []session.PortRange{{From: 0, To: 65535}}
	for i := range list {
		f := &list[i]
		remote, local := f.RemotePorts, f.LocalPorts
		if len(remote) == 0 {
			remote = anyPort
		}
		if len(local) == 0 {
			local = anyPort
		}
		if len(out)+len(remote)*len(local) > most {
			return nil, fmt.Errorf("the limit of %d SDF filters in a direction is exceeded: %w", maxFilters, pfcp.ErrNoResources)
		}
		for _, r := range remote {
			for _, l := range local {
				out = append(out, filter(f, r, l))
			}
		}
	}
	return out, nil
}

func filter(f *session.Filter, remote, local session.PortRange) datapath.Filter {
	out := datapath.Filter{
		Remote: f.Remote, Local: f.Local, AnyProtocol: f.AnyProtocol, Protocol: f.Protocol,
		RemotePorts: [2]uint16{remote.From, remote.To}, LocalPorts: [2]uint16{local.From, local.To},
		ToS: f.ToS & f.ToSMask, ToSMask: f.ToSMask,
	}
	if f.FlowLabel != nil {
		out.HasFlowLabel, out.FlowLabel = true, *f.FlowLabel
	}
	if f.SPI != nil {
		out.HasSPI, out.SPI = true, *f.SPI
	}
	return out
}
