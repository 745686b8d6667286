package bgp

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te/linkstate"
	"github.com/culvert-net/culvert/srv6"
)

// Each target passes what a peer may write on as GoBGP does. Whatever the input,
// nothing panics, each update that is accepted can be used, and it means the same
// after it is written and read again.

// FuzzUpdate writes all between the header of an UPDATE and its end.
func FuzzUpdate(f *testing.F) {
	for _, attrs := range soundUpdates(f) {
		f.Add(updateOf(attrs))
	}
	f.Fuzz(receiveUpdate)
}

// FuzzPolicy writes the sub-TLVs of an SR policy's tunnel.
func FuzzPolicy(f *testing.F) {
	for _, text := range []string{goldTunnel, "0d 06 00 00 00064000 0e 03 00 00 04 0f 02 07 00" + goldTunnel,
		strings.NewReplacer("14 12 00 00", "14 1a 20 00", "0000 01c3", "0000 01c3 0047 0000 30 10 10 00").Replace(goldTunnel)} {
		f.Add(fromHex(f, text))
	}
	f.Fuzz(func(t *testing.T, subTLVs []byte) {
		tunnel := append(binary.BigEndian.AppendUint16([]byte{0, 15}, uint16(len(subTLVs))), subTLVs...)
		receiveUpdate(t, updateOf(slices.Concat(fromHex(t, wellKnown+policy6+"c0 08 04 ffffff02"), attribute(bgp.BGP_ATTR_TYPE_TUNNEL_ENCAP, tunnel))))
	})
}

// attribute is one that is optional and transitive.
func attribute(kind bgp.BGPAttrType, value []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xd0, byte(kind)}, uint16(len(value))), value...)
}

// updateOf is the body of an UPDATE without IPv4 prefixes.
func updateOf(attrs []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attrs))), attrs...)
}

func fromHex(t testing.TB, text string) []byte {
	b, err := parseHex(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// receiveUpdate takes the body of an UPDATE.
func receiveUpdate(t *testing.T, body []byte) {
	size := len(body) + bgp.BGP_HEADER_LENGTH
	if size > bgp.BGP_MAX_EXTENDED_MESSAGE_LENGTH {
		return
	}
	all := map[bgp.Family]bgp.BGPAddPathMode{}
	for _, f := range slices.Concat(families, unicastFamilies, vpnFamilies, lsFamilies) {
		all[f] = bgp.BGP_ADD_PATH_NONE
	}
	m, err := bgp.ParseBGPBody(&bgp.BGPHeader{Type: bgp.BGP_MSG_UPDATE, Len: uint16(size)}, body, &bgp.MarshallingOption{AddPath: all, ExtendedMessage: true})
	if err == nil {
		_, err = bgp.ValidateUpdateMsg(m.Body.(*bgp.BGPUpdate), all, false, false, false)
	}
	var message *bgp.MessageError
	if err != nil && (!errors.As(err, &message) || message.ErrorHandling != bgp.ERROR_HANDLING_ATTRIBUTE_DISCARD) {
		return
	}
	s := listener(t, &checked{T: t})
	s.update(pathsOf(m.Body.(*bgp.BGPUpdate)), time.Time{})
	topology, _ := linkstate.Topology(s.Network(time.Hour).Objects)
	soundTopology(t, topology)
}

// pathsOf are an update's routes as GoBGP reports them.
func pathsOf(u *bgp.BGPUpdate) (out []*apiutil.Path) {
	add := func(f bgp.Family, list []bgp.PathNLRI, withdrawal bool) {
		for _, n := range list {
			out = append(out, &apiutil.Path{Family: f, Nlri: n.NLRI, Attrs: u.PathAttributes, Withdrawal: withdrawal,
				PeerASN: 65001, PeerID: addr("10.0.0.66"), PeerAddress: addr("127.94.10.66")})
		}
	}
	add(bgp.RF_IPv4_UC, u.NLRI, false)
	for _, attr := range u.PathAttributes {
		switch v := attr.(type) {
		case *bgp.PathAttributeMpReachNLRI:
			add(bgp.NewFamily(v.AFI, v.SAFI), v.Value, false)
		case *bgp.PathAttributeMpUnreachNLRI:
			add(bgp.NewFamily(v.AFI, v.SAFI), v.Value, true)
		}
	}
	add(bgp.RF_IPv4_UC, u.WithdrawnRoutes, true)
	return out
}

// listener is a speaker that has no sessions.
func listener(t *testing.T, h *checked) *Speaker {
	t.Helper()
	c := Config{ASN: 65001, RouterID: addr("10.0.0.5"), Log: slog.New(slog.DiscardHandler),
		Peers:   []Peer{{Address: addr("127.94.10.66"), ASN: 65001, Families: []Family{SRPolicy, Unicast, L3VPN, LinkState}}},
		Cluster: &Cluster{Handler: h, VPN: &VPN{Distinguisher: "65001:7", Import: []string{"65000:100"}}}}
	r, err := newReach(c)
	if err != nil {
		t.Fatal(err)
	}
	links := linkStateTables(&c)
	links[c.Peers[0].Address].begin(time.Now())
	return &Speaker{config: c, handler: h, log: c.Log, reach: r, links: links, isUp: func(netip.Addr) bool { return true },
		offers: map[key]map[netip.Addr]*offer{}, reported: map[key]Path{}, malformed: map[netip.Addr]uint64{}}
}

// checked wants whatever it receives to be of use.
type checked struct{ *testing.T }

func (c *checked) Put(p Path) {
	if errs := p.Validate(); len(errs) > 0 {
		c.Errorf("received %+v: %v", p, errs[0])
	}
	var kept Path
	if b, err := json.Marshal(p); err != nil {
		c.Errorf("%+v cannot be kept: %v", p, err)
	} else if err := json.Unmarshal(b, &kept); err != nil || !reflect.DeepEqual(p, kept) {
		c.Errorf("received %+v, kept %+v (%v)", p, kept, err)
	}
	n, attrs, err := writePolicy(p.Advertised, addr("fd11::1"), nil)
	if err != nil {
		c.Errorf("%+v cannot be advertised: %v", p, err)
		return
	}
	again, usable, err := readPolicy(n, decoded(c.T, attrs), addr("10.0.0.5"))
	want := p.Advertised
	want.Preference = want.EffectivePreference()
	for i := range want.SegmentLists {
		want.SegmentLists[i].Weight = want.SegmentLists[i].EffectiveWeight()
	}
	if err != nil || !usable || !reflect.DeepEqual(again, want) {
		c.Errorf("received %+v, read again %+v, usable %v (%v)", want, again, usable, err)
	}
}

func (c *checked) Withdraw(srpolicy.Advertised)      {}
func (c *checked) Complete(netip.Addr)               {}
func (c *checked) Speaks(netip.Addr, []string)       {}
func (c *checked) WithdrawReach(overlay.Destination) {}
func (c *checked) PutReach(to overlay.Destination, all []Route) {
	for _, r := range all {
		where := append([]netip.Addr{}, r.Segments...)
		if len(where) == 0 {
			where = append(where, r.Address)
		}
		for _, a := range where {
			if errs := srv6.CheckUnicast6("", a); len(errs) > 0 {
				c.Errorf("%s is behind %+v: %v", to, r, errs[0])
			}
		}
	}
}

// decoded are attributes as a peer reads them.
func decoded(t *testing.T, attrs []bgp.PathAttributeInterface) (out []bgp.PathAttributeInterface) {
	t.Helper()
	var b strings.Builder
	for _, a := range attrs {
		octets, err := a.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(hex.EncodeToString(octets))
	}
	return attributes(t, b.String())
}

// policy6 is the NLRI of a policy, as it is reached.
const policy6 = "80 0e 2e 0002 49 10 2001 0db8 0000 0000 0000 0000 0000 0066 00" + goldNLRI + "\n"

// soundUpdates are the attributes of some.
func soundUpdates(t testing.TB) (out [][]byte) {
	for _, text := range []string{
		wellKnown + vpn6 + target + transposed, wellKnown + unicast6 + whole, wellKnown + unicast6,
		wellKnown + policy6 + forUs + goldHeader + goldTunnel, "80 0f 1c 0002 49" + goldNLRI,
	} {
		out = append(out, fromHex(t, text))
	}
	return out
}
