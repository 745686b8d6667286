package bgp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// unhex reads hexadecimal digits, spaces and comments of lines apart.
func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := parseHex(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parseHex(text string) ([]byte, error) {
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	return hex.DecodeString(digits.String())
}

func gold() srpolicy.Advertised {
	return srpolicy.Advertised{
		Color: 100, Endpoint: addr("fd11::1000"), Distinguisher: 7, PolicyName: "gold", Name: "by-r3", Preference: 200,
		BindingSID: addr("cafe::1c3"), SegmentLists: []srpolicy.SegmentList{
			{Weight: 3, Segments: []netip.Addr{addr("fcff:3::1"), addr("fcdd::11aa:c11:b42f:f17e:a683")}},
			{Weight: 1, Segments: []netip.Addr{addr("fcff:5::1")}},
		},
	}
}

// As RFC 9830 section 2 and RFC 9831 section 2.2 draw them.
const (
	goldNLRI = `
		c0        # 192 bits
		00000007  # distinguisher
		00000064  # color
		fd11 0000 0000 0000 0000 0000 0000 1000`
	goldHeader = `
		c0 17 85  # optional, transitive; Tunnel Encapsulation; 133 octets
		000f 0081 # SR Policy, 129 octets`
	goldTunnel = `
		0c 06 00 00 000000c8 # Preference
		14 12 00 00 cafe 0000 0000 0000 0000 0000 0000 01c3 # SRv6 Binding SID
		80 0031 00           # Segment List
		   09 06 00 00 00000003
		   0d 12 00 00 fcff 0003 0000 0000 0000 0000 0000 0001
		   0d 12 00 00 fcdd 0000 0000 11aa 0c11 b42f f17e a683
		80 001d 00
		   09 06 00 00 00000001
		   0d 12 00 00 fcff 0005 0000 0000 0000 0000 0000 0001
		81 0006 00 62792d7233 # Candidate Path Name
		82 0005 00 676f6c64   # Policy Name`
)

func TestPolicyBytes(t *testing.T) {
	nlri, attrs, err := writePolicy(gold(), addr("fd11::1"), []netip.Addr{addr("10.0.0.5")})
	if err != nil {
		t.Fatal(err)
	}
	if n, want := attrs[3].Len(), len(unhex(t, goldHeader+"\n"+goldTunnel)); n != want {
		t.Errorf("it is to take %d octets of a message, want %d", n, want)
	}
	got, err := nlri.Serialize()
	if want := unhex(t, goldNLRI); err != nil || string(got) != string(want) {
		t.Errorf("NLRI\n%x, want\n%x (%v)", got, want, err)
	}
	got, err = attrs[3].Serialize()
	if want := unhex(t, goldHeader+"\n"+goldTunnel); err != nil || string(got) != string(want) {
		t.Errorf("tunnel\n%x, want\n%x (%v)", got, want, err)
	}
	got, err = attrs[2].Serialize()
	if want := unhex(t, "c0 10 08 0102 0a000005 0000"); err != nil || string(got) != string(want) {
		t.Errorf("Route Target\n%x, want\n%x (%v)", got, want, err)
	}
	_, attrs, err = writePolicy(gold(), addr("fd11::1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err = attrs[2].Serialize()
	if want := unhex(t, "c0 08 04 ffffff02"); err != nil || string(got) != string(want) {
		t.Errorf("NO_ADVERTISE\n%x, want\n%x (%v)", got, want, err)
	}
}

// tunnel is the attribute of one tunnel of type SR Policy, around its sub-TLVs.
func tunnel(t *testing.T, subTLVs string) string {
	t.Helper()
	n := len(unhex(t, subTLVs))
	return fmt.Sprintf("c0 17 %02x 000f %04x\n%s", n+4, n, subTLVs)
}

// received is an update as a peer's bytes.
func received(t *testing.T, nlri, attrs string) (*bgp.SRPolicyNLRI, []bgp.PathAttributeInterface, error) {
	t.Helper()
	n, err := bgp.NLRIFromSlice(bgp.RF_SR_POLICY_IPv6, unhex(t, nlri))
	if err != nil {
		return nil, nil, err
	}
	var list []bgp.PathAttributeInterface
	for b := unhex(t, attrs); len(b) > 0; {
		a, err := bgp.GetPathAttribute(b)
		if err != nil {
			return nil, nil, err
		}
		if err := a.DecodeFromBytes(b); err != nil {
			return nil, nil, err
		}
		list, b = append(list, a), b[a.Len():]
	}
	return n.(*bgp.SRPolicyNLRI), list, nil
}

const forUs = "c0 10 08 0102 0a000005 0000\n"

func TestPolicyIsRead(t *testing.T) {
	us := addr("10.0.0.5")
	replace := func(pairs ...string) string { return tunnel(t, strings.NewReplacer(pairs...).Replace(goldTunnel)) }
	for name, tt := range map[string]struct {
		attrs  string
		usable bool
		change func(*srpolicy.Advertised)
	}{
		"by Route Target":          {forUs + replace(), true, nil},
		"one of several":           {"c0 10 10 0102 0a000009 0000 0102 0a000005 0000\n" + replace(), true, nil},
		"for another headend":      {"c0 10 08 0102 0a000009 0000\n" + replace(), false, nil},
		"NO_ADVERTISE":             {"c0 08 04 ffffff02\n" + replace(), true, nil},
		"with a SID structure":     {forUs + replace("14 12 00 00", "14 1a 20 00", "0000 01c3", "0000 01c3 0047 0000 30 10 10 00"), true, nil},
		"the older binding SID":    {forUs + replace("14 12", "0d 12"), true, nil},
		"the preference's default": {forUs + replace("0c 06 00 00 000000c8", ""), true, func(a *srpolicy.Advertised) { a.Preference = 0 }},
		"a list of weight 0":       {forUs + replace("00000001\n", "00000000\n"), true, func(a *srpolicy.Advertised) { a.SegmentLists = a.SegmentLists[:1] }},
		"an unknown sub-TLV":       {forUs + replace("14 12", "7b 02 abcd 14 12"), true, nil},
		"the lowest preference":    {forUs + replace("000000c8", "00000000"), true, func(a *srpolicy.Advertised) { a.Preference = 1 }},
		"names of control characters": {forUs + replace("62792d7233", "62791b5b6d", "676f6c64", "676fff64"), true,
			func(a *srpolicy.Advertised) { a.Name, a.PolicyName = "", "" }},
		"a long name": {forUs + longTunnel(t, strings.Replace(goldTunnel, "82 0005 00 676f6c64", "82 0101 00"+strings.Repeat("67", 256), 1)), true,
			func(a *srpolicy.Advertised) { a.PolicyName = strings.Repeat("g", 255) }},
		"a second preference": {forUs + replace("14 12", "0c 06 00 00 00000001 14 12"), true, nil},
	} {
		n, attrs, err := received(t, goldNLRI, tt.attrs)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, usable, err := readPolicy(n, attrs, us)
		want := gold()
		if tt.change != nil {
			tt.change(&want)
		}
		if err != nil || usable != tt.usable || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, usable %v (%v), want %+v, %v", name, got, usable, err, want, tt.usable)
		}
	}
}

// malformedPolicies are each one mutation of a sound update, and what is said of
// it; "": GoBGP refuses it by itself.
func malformedPolicies(t *testing.T) map[string]struct{ attrs, want string } {
	replace := func(pairs ...string) string {
		return forUs + tunnel(t, strings.NewReplacer(pairs...).Replace(goldTunnel))
	}
	const preference = "0c06 0000 000000c8"
	segment := "0d 12 00 00 fcff 0005 0000 0000 0000 0000 0000 0001\n"
	return map[string]struct{ attrs, want string }{
		"nobody is named":         {tunnel(t, goldTunnel), "neither a Route Target"},
		"a Route Target of an AS": {"c0 10 08 0002 fde8 0000000a\n" + tunnel(t, goldTunnel), "neither a Route Target"},
		"no tunnel":               {forUs, "no Tunnel Encapsulation"},
		"another tunnel":          {forUs + "c0 17 0e 0008 000a 04 08 030b 0000 00000064", "not one tunnel"},
		"two tunnels":             {forUs + "c0 17 18 000f 0008" + preference + "000f 0008" + preference, "not one tunnel"},
		"an empty tunnel":         {forUs + "c0 17 04 000f 0000", "not one tunnel"},
		"short binding SID":       {replace("14 12 00 00 cafe 0000 0000 0000", "14 0a 00 00"), "binding SID of 10 octets"},
		"structure without flag":  {replace("14 12", "14 1a", "0000 01c3", "0000 01c3 0047 0000 30 10 10 00"), "binding SID of 26 octets"},
		"flag without structure":  {replace("14 12 00", "14 12 20"), "binding SID of 18 octets"},
		"short older binding SID": {replace("14 12 00 00 cafe 0000 0000 0000", "0d 0a 00 00"), ""},
		"short preference":        {replace("0c 06 00 00 000000c8", "0c 05 00 00 0000c8"), ""},
		"long preference":         {replace("0c 06 00 00 000000c8", "0c 07 00 00 000000c800"), ""},
		"short weight":            {replace("1d 00\n\t\t   09 06 00 00 00000001", "1c 00\n\t\t   09 05 00 00 000001"), ""},
		"short segment":           {replace("80 001d", "80 001c", "0d 12 00 00 fcff 0005 0000 0000 0000 0000 0000 0001", "0d 11 00 00 fcff 0005 0000 0000 0000 0000 0000 00"), ""},
		"an MPLS segment":         {replace("80 001d", "80 0011", "0d 12 00 00 fcff 0005 0000 0000 0000 0000 0000 0001", "01 06 00 00 00000064"), "type B"},
		"no list":                 {forUs + tunnel(t, preference), "segment_lists: is missing"},
		"an empty list":           {forUs + tunnel(t, "80 0009 00 0906 0000 00000001"), "segments: is missing"},
		"thousands of segments":   {forUs + longTunnel(t, "80 ea61 00"+strings.Repeat(segment, 3000)), "3000 segments"},
		"a multicast segment":     {replace("fcff 0005", "ff02 0005"), "multicast"},
		"an empty policy name":    {replace("82 0005 00 676f6c64", "82 0001 00"), "policy name"},
		"octets behind the last":  {replace("82 0005 00 676f6c64", "82 0005 00 676f6c64 82 00"), "behind"},
		"a tunnel behind it":      {forUs + strings.Replace(tunnel(t, goldTunnel), "c0 17 85", "c0 17 89", 1) + "\n000f 0000", "behind"},
		"cut short":               {replace("82 0005 00 676f6c64", "82 0009 00 676f6c64"), ""},
	}
}

// longTunnel is tunnel with an attribute of two octets of length.
func longTunnel(t *testing.T, subTLVs string) string {
	t.Helper()
	n := len(unhex(t, subTLVs))
	return fmt.Sprintf("d0 17 %04x 000f %04x\n%s", n+4, n, subTLVs)
}

// What is malformed is said to be, and is of no use.
func TestMalformedPolicies(t *testing.T) {
	for name, tt := range malformedPolicies(t) {
		n, attrs, err := received(t, goldNLRI, tt.attrs)
		if err != nil {
			if tt.want != "" {
				t.Errorf("%s: GoBGP says %v, want it read and %q", name, err, tt.want)
			}
			continue
		}
		_, usable, err := readPolicy(n, attrs, addr("10.0.0.5"))
		if !errors.Is(err, errMalformed) || usable || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: usable %v, %v, want %q", name, usable, err, tt.want)
		}
	}
}

// An NLRI as long as that of the other address family is none of its own.
func TestNLRIOfAnotherFamily(t *testing.T) {
	s := listener(t, &checked{T: t})
	for _, nlri := range []string{"60 00000007 00000064 c0000207", goldNLRI} {
		for _, f := range families {
			n, err := bgp.NLRIFromSlice(f, unhex(t, nlri))
			if err != nil {
				t.Fatal(err)
			}
			_, attrs, err := received(t, goldNLRI, forUs+tunnel(t, goldTunnel))
			if err != nil {
				t.Fatal(err)
			}
			path := &apiutil.Path{Family: f, Nlri: n, Attrs: attrs, PeerAddress: addr("127.94.10.66")}
			s.update([]*apiutil.Path{path}, time.Time{})
			if want := len(n.(*bgp.SRPolicyNLRI).Endpoint) == net.IPv4len == (f == bgp.RF_SR_POLICY_IPv4); (len(s.reported) == 1) != want {
				t.Errorf("%s of %s: received %+v", n, f, s.reported)
			}
			path.Withdrawal = true
			s.update([]*apiutil.Path{path}, time.Time{})
		}
	}
}

// On the wire a policy that was sound goes with what is malformed, which is counted;
// the session stays, and what is sound is taken again.
func TestMalformedPoliciesAreWithdrawn(t *testing.T) {
	t.Parallel()
	h := newObserved()
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{addr("127.94.17.5")}, Peers: []Peer{
		{Address: addr("127.94.17.66"), ASN: 65001, Passive: true, Local: addr("127.94.17.5")}}}, h)
	peer := tellTo(t, addr("127.94.17.66"), addr("127.94.17.5"), bgp.RF_SR_POLICY_IPv6)
	established(t, headend)
	reach := wellKnown + policy6
	malformed := uint64(0)
	for name, tt := range malformedPolicies(t) {
		peer.update(reach + forUs + tunnel(t, goldTunnel))
		eventually(t, name+": a sound one is taken", func() bool { return h.has(100) })
		peer.update(reach + tt.attrs)
		eventually(t, name+": it is withdrawn", func() bool { return !h.has(100) })
		malformed++
		peers, err := headend.Peers(t.Context())
		if err != nil || peers[0].State != "established" || peers[0].Malformed < malformed {
			t.Errorf("%s: %+v, %v; want %d malformed", name, peers, err, malformed)
		}
	} // An NLRI that is none ends the session (RFC 9830 section 5), and with it what
	// came by it.
	peer.update(reach + forUs + tunnel(t, goldTunnel))
	eventually(t, "a sound one is taken", func() bool { return h.has(100) })
	peer.update(strings.Replace(reach, "c0        #", "bf        #", 1) + forUs + tunnel(t, goldTunnel))
	eventually(t, "the session ends", func() bool { return !isEstablished(headend) && !h.has(100) })
}

// What the traffic engineering engine sends, octet by octet (RFC 9830): a path of preference 150 and
// two weighted lists, with a name, for one headend, whose router ID is also the distinguisher.
func TestEnginePathOctets(t *testing.T) {
	segments := func(sids ...string) (list []netip.Addr) {
		for _, s := range sids {
			list = append(list, addr(s))
		}
		return list
	}
	_, attrs, err := writePolicy(srpolicy.Advertised{
		Color: 1, Endpoint: addr("fc00:d::d1"), Distinguisher: 0x0a000001, Name: "te:red", Preference: 150,
		SegmentLists: []srpolicy.SegmentList{{Weight: 3, Segments: segments("fc00:b::1", "fc00:d::d1")}, {Weight: 1, Segments: segments("fc00:d::d1")}},
	}, addr("fd11::9"), []netip.Addr{addr("10.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, a := range attrs {
		octets, err := a.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, octets...)
	}
	const (
		via, end = "fc00000b000000000000000000000001", "fc00000d0000000000000000000000d1"
		want     = "40 01 01 00" + // ORIGIN
			"80 0e 2e 0002 49 10 fd110000000000000000000000000009 00" + "c0 0a000001 00000001" + end +
			"c0 10 08 0102 0a000001 0000" + // Route Target of 10.0.0.1
			"c0 17 6a 000f 0066" + "0c 06 0000 00000096" + // preference
			"80 0031 00 09 06 0000 00000003 0d 12 0000" + via + "0d 12 0000" + end +
			"80 001d 00 09 06 0000 00000001 0d 12 0000" + end +
			"81 0007 00 74653a726564"
	)
	if !bytes.Equal(got, unhex(t, want)) {
		t.Errorf("%x\nwant %x", got, unhex(t, want))
	}
}
