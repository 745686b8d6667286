package rules

import (
	"cmp"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

var uesToUEs = map[slice.UEToUE]datapath.UEToUE{slice.UEToUERoute: datapath.UEToUERoute, slice.UEToUEN6: datapath.UEToUEN6}

// groupOfUE is the UEs that the session's UE reaches, and how, or whose VPN leads to it.
func (c *compiler) groupOfUE() datapath.Group {
	way, isVPN := c.UEToUE, false
	if c.Slice != nil {
		way, isVPN = cmp.Or(c.Slice.UEToUE, way), c.Slice.VPN != nil
	}
	if c.ethernet() || uesToUEs[way] == datapath.UEToUEDrop && !isVPN {
		return 0
	}
	return datapath.GroupOf(uesToUEs[way], c.Index, networkInstance(c.Session))
}

// networkInstance is that of a session's data network: as its rules name it on the side of
// the core, or else the DNN.
func networkInstance(s *session.Session) string {
	name := ""
	for i := range s.FARs {
		if f := s.FARs[i].Forwarding; f != nil && isCore(f.Destination) {
			name = cmp.Or(name, f.NetworkInstance)
		}
	}
	for i := range s.PDRs {
		if p := &s.PDRs[i].PDI; isCore(p.Source) {
			name = cmp.Or(name, p.NetworkInstance)
		}
	}
	return cmp.Or(name, s.DNN)
}

func isCore(i session.Interface) bool { return i == session.Core || i == session.SGiLAN }
