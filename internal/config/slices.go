package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/srv6"
)

// maxSlices is how many slices the data path can count and limit.
const maxSlices = 255

// waysBetweenUEs are the values of ue_to_ue.
var waysBetweenUEs = []string{string(slice.UEToUEDrop), string(slice.UEToUERoute), string(slice.UEToUEN6)}

func checkSlices(v *validator) {
	v.refuse(len(v.Slices) > maxSlices, "slices", "use fewer", "%d slices exceed the limit of %d", len(v.Slices), maxSlices)
	names, chosen := v.unique(), v.unique()
	for i := range v.Slices {
		s := &v.Slices[i]
		at := fmt.Sprintf("slices[%d]", i)
		v.fields(at, srv6.CheckName("name", s.Name))
		v.fields(at, srv6.CheckTable("table", s.Table))
		names.check(at+".name", s.Name, "give each slice its own name")
		if _, ok := s.SNSSAI.Value(); !ok && s.SNSSAI != (slice.SNSSAI{}) {
			v.add(at+".snssai", `sst from 1 to 255, and sd (if there is one) of six hex digits in quotes: {sst: 1, sd: "000001"}`,
				"sst %d, sd %q is not an S-NSSAI", s.SNSSAI.SST, s.SNSSAI.SD)
		}
		chosen.check(at+".snssai", fmt.Sprintf("the choice of sst %d, sd %q, network instance %q", s.SNSSAI.SST, s.SNSSAI.SD, s.NetworkInstance),
			"let S-NSSAI or network_instance differ: a session is of one slice")
		for name, rate := range map[string]uint64{"uplink": s.RateLimit.Uplink, "downlink": s.RateLimit.Downlink} {
			v.refuse(rate > math.MaxUint32,
				at+".rate_limit."+name, fmt.Sprintf("at most %d (kbit/s)", uint32(math.MaxUint32)), "%d kbit/s is more than can be limited", rate)
		}
		v.oneOf(at+".ue_to_ue", string(s.UEToUE), waysBetweenUEs...)
		if s.N6 != nil {
			checkN6(v, at+".n6", s.N6)
		}
		if s.N9 != nil {
			checkN9(v, at+".n9", s.N9)
		}
		if s.VPN != nil {
			checkSliceVPN(v, at+".vpn", s)
		}
	}
}

// checkSliceVPN checks what BGP peers hear of a slice.
func checkSliceVPN(v *validator, at string, s *slice.Slice) {
	p := s.VPN
	v.prefix6(at+".sid", p.SID)
	checkAdministered(v, at+".route_distinguisher", p.Distinguisher)
	v.refuse(len(p.Export) == 0, at+".export_targets", "the targets that the VPN's routers import, such as [\"65001:7\"]", "is missing")
	for i, target := range p.Export {
		checkAdministered(v, fmt.Sprintf("%s.export_targets[%d]", at, i), target)
	}
	v.refuse(len(v.Overlay.Tenants) > 0, at, "let one node have tenants of pods or VPNs of slices", "overlay.tenants are VPNs too")
	if s.Imports() {
		checkImports(v, at+".import_targets", s)
	}
}

// checkImports checks that packets of a slice's UEs can leave by the routes of its VPN, and by
// nothing else.
func checkImports(v *validator, at string, s *slice.Slice) {
	for i, target := range s.VPN.Import {
		checkAdministered(v, fmt.Sprintf("%s[%d]", at, i), target)
	}
	v.refuse(s.Table != 0, at, "remove table or import_targets", "packets leave by the VPN's routes, and not by table %d", s.Table)
	v.refuse(s.N9 != nil && (s.N9.Uplink.IsValid() || s.N9.UplinkPolicy != ""),
		at, "remove the uplink of n9 or import_targets", "packets leave by the VPN's routes, and not by n9")
	v.refuse(s.UEToUE == slice.UEToUEN6 || s.UEToUE == "" && v.UPF.UEToUE == slice.UEToUEN6,
		at, "set ue_to_ue of the slice to drop or route", "packets from one UE to another do not come back by a VPN")
	announces := func(e announce.Entry) bool { return e.VPN == s.Name }
	v.refuse(!slices.ContainsFunc(v.UPF.Announce, announces),
		at, fmt.Sprintf("add an entry with vpn: %s to upf.announce", s.Name), "nothing comes back: no UE pool is announced in this VPN")
	v.refuse(!v.Encapsulation.Source.IsValid(),
		at, "set encapsulation.source, an IPv6 address of this node", "packets by SRv6 have no outer source address")
}

func checkN6(v *validator, at string, n *slice.N6) {
	v.attached(at+".interface", n.Interface, RoleN6)
	v.refuse(n.VLAN > 4094, at+".vlan", "1 to 4094, or leave it out", "%d is not a VLAN ID", n.VLAN)
	for i, s := range v.Steering {
		if s.Interface == n.Interface && (n.VLAN == 0 && len(s.VLANs) == 0 || len(s.VLANs) == 1 && s.VLANs[0] == n.VLAN) {
			v.add(at+".interface", fmt.Sprintf("remove steering[%d], or use another interface or VLAN", i), "frames from there are steered elsewhere")
		}
	}
}

func checkN9(v *validator, at string, n *slice.N9) {
	v.oneOf(at+".transport", string(n.Transport), string(slice.GTPU), string(slice.SRv6))
	v.oneOf(at+".mode", string(n.Mode), string(slice.Traditional), string(slice.Enhanced))
	if n.LocalSID.IsValid() {
		v.prefix6(at+".local_sid", n.LocalSID)
	}
	sids := n.Uplink.IsValid() || n.Downlink.IsValid()
	policies := n.UplinkPolicy != "" || n.DownlinkPolicy != ""
	switch {
	case n.Transport == "":
		v.add(at+".transport", "gtpu or srv6", "transport is missing")
	case n.Transport != slice.GTPU && n.Transport != slice.SRv6: // it is said already
	case n.Transport == slice.GTPU:
		v.refuse(n.Mode != "" || sids || policies || n.ArgsOffset != 0,
			at+".transport", "remove mode, uplink, downlink, policies and args_offset, or set transport: srv6", "with GTP-U the SMF says where packets go")
	case n.Mode == slice.Enhanced:
		v.refuse(sids,
			at+".mode", "set mode: traditional, or name policies in uplink_policy and downlink_policy", "uplink and downlink need mode traditional")
		v.refuse(n.UplinkPolicy == "" && n.DownlinkPolicy == "" && !sids,
			at+".uplink_policy", "name an SR policy in uplink_policy or downlink_policy or both", "no policy to send with is given")
		v.policyL3(at+".uplink_policy", n.UplinkPolicy)
		v.policyL3(at+".downlink_policy", n.DownlinkPolicy)
	default:
		v.refuse(policies, at+".mode", "set mode: enhanced, or name SIDs in uplink and downlink", "policies need mode enhanced")
		v.refuse(!n.Uplink.IsValid() && !n.Downlink.IsValid() && !policies,
			at+".uplink", "the End.DT4, End.DT6 or End.DT46 SID of the next UPF, in uplink or downlink or both", "no SID to send to is given")
		v.unicast6(at+".uplink", n.Uplink)
		v.unicast6(at+".downlink", n.Downlink)
		v.refuse(!v.Encapsulation.Source.IsValid(),
			at+".transport", "set encapsulation.source, an IPv6 address of this node", "packets by SRv6 have no outer source address")
	}
	if n.ArgsOffset > 128-argsBits {
		v.add(at+".args_offset", fmt.Sprintf("at most %d", 128-argsBits), "Args.Mob.Session would not fit at bit %d", n.ArgsOffset)
	} else if n.ArgsOffset != 0 {
		// Args.Mob.Session must overwrite nothing of the SIDs that frames are sent to.
		for name, a := range map[string]netip.Addr{"uplink": n.Uplink, "downlink": n.Downlink} {
			if argsOverwrite(a, n.ArgsOffset) {
				v.add(at+"."+name, fmt.Sprintf("leave bits %d to %d 0, or set args_offset to where its argument starts", n.ArgsOffset, int(n.ArgsOffset)+argsBits-1),
					"Args.Mob.Session would overwrite bits of %s", a)
			}
		}
		for i := range v.Policies {
			if p := &v.Policies[i]; slices.Contains(n.Policies(), p.Name) {
				v.argsOfPolicy(at, n.ArgsOffset, p)
			}
		}
	}
}
