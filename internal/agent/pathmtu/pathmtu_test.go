package pathmtu

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/packet"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, addr(s))
	}
	return out
}

const source = "2001:db8:5::1"

// paths are what the node has: links of 1500, two lists that begin alike, and tunnels.
func paths() []dataplane.Path {
	own, four := prefix(source+"/128"), prefix("10.0.3.1/32")
	return []dataplane.Path{
		{Source: own, Ends: addrs("fd00:0:1::", "fd00:0:2::", "fd00:0:9::"), MTU: 1500},
		{Source: own, Ends: addrs("fd00:0:1::", "fd00:0:3::", "fd00:0:9::"), MTU: 1500},
		{Source: own, Ends: addrs("fd00:0:1::"), MTU: 1500},
		{Source: own, Ends: addrs("fd00:0:9::"), MTU: 1500},
		{Source: own, Ends: addrs("fd00:0:a:b:c::"), MTU: 1500}, // compressed
		{Source: own, Ends: addrs("fd00:0:7::"), ArgsOffset: 64, MTU: 1500},
		{Source: prefix("fd00:5:5::/64"), Ends: addrs("fd00:0:6::"), Then: prefix("fd00:4::/32"), MTU: 1500},
		{Source: four, Ends: addrs("10.0.0.9"), GTPU: true, MTU: 1500},
		{Source: prefix("2001:db8:3::1/128"), Ends: addrs("2001:db8:3::9"), GTPU: true, MTU: 1500},
	}
}

// node is a data path that remembers what it was told.
type node struct {
	*Learner
	paths    []dataplane.Path
	set      map[adjacency.Path]int
	clock    time.Time
	resolved int
}

func newNode() *node {
	n := &node{paths: paths(), set: map[adjacency.Path]int{}, clock: time.Unix(1000, 0)}
	n.Learner = New(DataPath{
		Find: func(match func(*dataplane.Path) bool) (found []dataplane.Path) {
			for _, p := range n.paths {
				if match(&p) {
					if mtu := n.set[adjacency.PathOf(p.Ends...)]; mtu != 0 {
						p.MTU = mtu
					}
					found = append(found, p)
				}
			}
			return found
		},
		Set: func(mtu int, ends ...netip.Addr) error {
			n.set[adjacency.PathOf(ends...)] = mtu
			if mtu == 0 {
				delete(n.set, adjacency.PathOf(ends...))
			}
			return nil
		},
		Resolve: func() { n.resolved++ },
	}, slog.New(slog.DiscardHandler), func() time.Time { return n.clock })
	return n
}

// lowered are the ends of the paths with an MTU of their own.
func (n *node) lowered() []string {
	var out []string
	for p := range n.set {
		out = append(out, string(p))
	}
	slices.Sort(out)
	return out
}

func p8(v uint8) *uint8    { return &v }
func p16(v uint16) *uint16 { return &v }

// tooBig is the error of a router of the domain about a packet to dst, of 1500 octets, with an
// SRH if there are segments, in the order of travel.
func tooBig(mtu uint32, dst string, left uint8, segments ...string) []packet.Layer {
	all := []packet.Layer{
		packet.IPv6{Src: addr("fd00:0:1::1"), Dst: addr(source)}, packet.ICMP{V6: true, Type: 2, Rest: mtu},
		packet.IPv6{Src: addr(source), Dst: addr(dst), Length: p16(1460)},
	}
	if segments != nil {
		list := addrs(segments...)
		slices.Reverse(list)
		all = append(all, packet.SRH{Segments: list, Left: p8(left)})
	}
	return append(all, packet.IPv4{Src: addr("10.1.0.1"), Dst: addr("10.2.0.1")}, packet.Payload{Count: 40})
}

// of is tooBig about a packet that does not have the node's usual source.
func of(source string, layers []packet.Layer) []packet.Layer {
	inner := layers[2].(packet.IPv6)
	inner.Src = addr(source)
	layers[0] = packet.IPv6{Src: addr("fd00:0:1::1"), Dst: addr(source)}
	layers[2] = inner
	return layers
}

// gtpu4 is a router's error about a G-PDU of 1500 octets.
func gtpu4(mtu uint32, src, dst string, port uint16) []packet.Layer {
	return []packet.Layer{
		packet.IPv4{Src: addr("10.0.0.254"), Dst: addr(src)}, packet.ICMP{Type: 3, Code: 4, Rest: mtu},
		packet.IPv4{Src: addr(src), Dst: addr(dst), Length: p16(1500), Fragment: 0x4000},
		packet.UDP{Sport: 50000, Dport: port, Length: p16(1480), Checksum: p16(0)}, packet.Payload{Count: 20},
	}
}

func gtpu6(mtu uint32, src, dst string) []packet.Layer {
	return []packet.Layer{
		packet.IPv6{Src: addr("2001:db8:3::fe"), Dst: addr(src)}, packet.ICMP{V6: true, Type: 2, Rest: mtu},
		packet.IPv6{Src: addr(src), Dst: addr(dst), Length: p16(1460)},
		packet.UDP{Sport: 50000, Dport: 2152, Length: p16(1460), Checksum: p16(1)}, packet.Payload{Count: 20},
	}
}

// What an error quotes is lowered, and nothing else.
func TestOnlyWhatIsQuoted(t *testing.T) {
	sr, peers := event.VouchesSR, event.VouchesGTPU
	for name, row := range map[string]struct {
		layers  []packet.Layer
		vouches uint32
		want    []netip.Addr // nil: none
	}{
		"a full SRH":                  {tooBig(1400, "fd00:0:2::", 1, "fd00:0:1::", "fd00:0:2::", "fd00:0:9::"), sr, addrs("fd00:0:1::", "fd00:0:2::", "fd00:0:9::")},
		"a reduced SRH":               {tooBig(1400, "fd00:0:1::", 2, "fd00:0:3::", "fd00:0:9::"), sr, addrs("fd00:0:1::", "fd00:0:3::", "fd00:0:9::")},
		"a reduced SRH, at its end":   {tooBig(1400, "fd00:0:9::", 0, "fd00:0:3::", "fd00:0:9::"), sr, addrs("fd00:0:1::", "fd00:0:3::", "fd00:0:9::")},
		"no SRH":                      {tooBig(1400, "fd00:0:1::", 0), sr, addrs("fd00:0:1::")},
		"the last one of several":     {tooBig(1400, "fd00:0:9::", 0), sr, addrs("fd00:0:9::")},
		"compressed, one done":        {tooBig(1400, "fd00:0:b:c::", 0), sr, addrs("fd00:0:a:b:c::")},
		"an argument":                 {tooBig(1400, "fd00:0:7:0:2401:203::", 0), sr, addrs("fd00:0:7::")},
		"a translator's":              {of("fd00:5:5::a00:9", tooBig(1400, "fd00:0:6::", 1, "fd00:4:a00:9::")), sr, addrs("fd00:0:6::")},
		"GTP-U over IPv4":             {gtpu4(1400, "10.0.3.1", "10.0.0.9", 2152), peers, addrs("10.0.0.9")},
		"GTP-U over IPv6":             {gtpu6(1400, "2001:db8:3::1", "2001:db8:3::9"), peers, addrs("2001:db8:3::9")},
		"1280":                        {tooBig(1280, "fd00:0:1::", 0), sr, addrs("fd00:0:1::")},
		"nobody vouches":              {tooBig(1400, "fd00:0:1::", 0), 0, nil},
		"a peer about a list":         {tooBig(1400, "fd00:0:1::", 0), peers, nil},
		"the domain about a tunnel":   {gtpu6(1400, "2001:db8:3::1", "2001:db8:3::9"), sr, nil},
		"1279":                        {tooBig(1279, "fd00:0:1::", 0), sr, nil},
		"0, of an old router":         {gtpu4(0, "10.0.3.1", "10.0.0.9", 2152), peers, nil},
		"1500, as the link":           {tooBig(1500, "fd00:0:1::", 0), sr, nil},
		"more than the packet":        {tooBig(9000, "fd00:0:1::", 0), sr, nil},
		"2^32-1":                      {tooBig(0xffffffff, "fd00:0:1::", 0), sr, nil},
		"a list that is not ours":     {tooBig(1400, "fd00:0:2::", 0, "fd00:0:1::", "fd00:0:2::", "fd00:0:8::"), sr, nil},
		"a list in another order":     {tooBig(1400, "fd00:0:2::", 0, "fd00:0:9::", "fd00:0:1::", "fd00:0:2::"), sr, nil},
		"a segment that is not next":  {tooBig(1400, "fd00:0:1::", 1, "fd00:0:1::", "fd00:0:2::", "fd00:0:9::"), sr, nil},
		"more segments left":          {tooBig(1400, "fd00:0:1::", 3, "fd00:0:1::", "fd00:0:2::", "fd00:0:9::"), sr, nil},
		"a destination not ours":      {tooBig(1400, "fd00:0:8::", 0), sr, nil},
		"somebody else's source":      {of("2001:db8:5::2", tooBig(1400, "fd00:0:1::", 0)), sr, nil},
		"an argument of no one's":     {tooBig(1400, "fd00:0:1:0:2401:203::", 0), sr, nil},
		"another peer":                {gtpu4(1400, "10.0.3.1", "10.0.0.8", 2152), peers, nil},
		"another port":                {gtpu4(1400, "10.0.3.1", "10.0.0.9", 53), peers, nil},
		"another source of GTP-U":     {gtpu4(1400, "10.0.3.2", "10.0.0.9", 2152), peers, nil},
		"a list's, as if it were UDP": {of(source, gtpu6(1400, source, "fd00:0:1::")), sr | peers, nil},
	} {
		n := newNode()
		n.Handle(packet.Frame(row.layers...), row.vouches)
		want := []string(nil)
		if row.want != nil {
			want = []string{string(adjacency.PathOf(row.want...))}
		}
		if got := n.lowered(); !slices.Equal(got, want) || (n.resolved == 1) != (want != nil) {
			t.Errorf("%s: lowered are %q, resolved %d times, want %q", name, got, n.resolved, want)
		}
		if refused := n.Counters.Refused.Load(); (refused == 1) != (want == nil) {
			t.Errorf("%s: %d refused", name, refused)
		}
	}
}

// A packet with a wrong checksum, or cut short, is no error that anybody sent.
func TestDamagedErrors(t *testing.T) {
	good := packet.Frame(tooBig(1400, "fd00:0:2::", 1, "fd00:0:1::", "fd00:0:2::", "fd00:0:9::")...)
	for i := range good {
		if i >= 8 && i < 24 || i < 4 || i == 7 { // the router's address is no matter but to the checksum
			continue
		}
		n := newNode()
		bad := slices.Clone(good)
		bad[i] ^= 1
		n.Handle(bad, event.VouchesSR)
		if got := n.lowered(); got != nil {
			t.Errorf("octet %d is wrong: lowered are %q", i, got)
		}
	}
	for length := range good {
		n := newNode()
		n.Handle(good[:length], event.VouchesSR)
		if got := n.lowered(); got != nil {
			t.Errorf("%d octets: lowered are %q", length, got)
		}
	}
}

// A path keeps its MTU for ten minutes, and only a lower one takes its place.
func TestAge(t *testing.T) {
	n := newNode()
	tell := func(mtu uint32) { n.Handle(packet.Frame(tooBig(mtu, "fd00:0:1::", 0)...), event.VouchesSR) }
	path := adjacency.PathOf(addr("fd00:0:1::"))
	for i, step := range []struct {
		wait time.Duration
		tell uint32 // 0: nothing
		want int
	}{
		{0, 1400, 1400}, {time.Minute, 1450, 1400}, {time.Minute, 1300, 1300}, {9 * time.Minute, 0, 1300},
		{0, 1300, 1300}, {9 * time.Minute, 0, 1300}, {time.Minute, 0, 0}, {0, 1450, 1450},
	} {
		n.clock = n.clock.Add(step.wait)
		if step.tell != 0 {
			tell(step.tell)
		}
		n.Expire()
		if n.set[path] != step.want || n.Of(addr("fd00:0:1::")).MTU != step.want {
			t.Errorf("step %d: the MTU is %d, and said to be %d, want %d", i, n.set[path], n.Of(addr("fd00:0:1::")).MTU, step.want)
		}
	}
	n.clock = n.clock.Add(time.Minute)
	if got := n.Of(addr("fd00:0:1::")); got.Age != time.Minute {
		t.Errorf("it is %s old", got.Age)
	}
	if aged := maps.Collect(n.Counters.All())["path_mtu_aged"]; aged != 1 {
		t.Errorf("%d aged", aged)
	}
}

// Without an SRH the error may be about a list that ends there, whose SRH is removed: only if
// the list of one segment cannot be meant.
func TestRemovedSRH(t *testing.T) {
	n := newNode()
	tell := func() {
		n.Handle(packet.Frame(tooBig(1400, "fd00:0:9::", 0)...), event.VouchesSR)
	}
	tell()
	tell() // of what was on its way
	if got := n.lowered(); len(got) != 1 {
		t.Fatalf("at once lowered are %q", got)
	}
	n.clock = n.clock.Add(settling)
	tell()
	if got := n.lowered(); len(got) != 3 {
		t.Errorf("lowered are %q, want the lists that end there, too", got)
	}
}

// A flood of errors changes no more than so many paths in a second.
func TestFlood(t *testing.T) {
	n := newNode()
	for i := range uint32(1000) {
		n.Handle(packet.Frame(tooBig(1499-i%200, "fd00:0:1::", 0)...), event.VouchesSR)
	}
	if n.resolved > perSecond || n.Counters.Limited.Load() != 1000-perSecond {
		t.Errorf("%d changes, %d beyond the limit", n.resolved, n.Counters.Limited.Load())
	}
	n = newNode()
	n.paths = nil
	for i := range mostPaths + 50 {
		end := netip.AddrFrom16([16]byte{0xfd, 0, 14: byte(i >> 8), 15: byte(i)})
		n.paths = append(n.paths, dataplane.Path{Source: prefix(source + "/128"), Ends: []netip.Addr{end}, MTU: 1500})
		n.clock = n.clock.Add(time.Second / perSecond)
		n.Handle(packet.Frame(tooBig(1400, end.String(), 0)...), event.VouchesSR)
	}
	if len(n.set) != mostPaths || n.Counters.Limited.Load() != 50 {
		t.Errorf("%d paths are lowered, %d not", len(n.set), n.Counters.Limited.Load())
	}
}

// gateways are the behaviours that take the destination from each packet, and a tunnel beside them.
func gateways() []dataplane.Path {
	return []dataplane.Path{
		{Source: prefix("10.0.3.1/32"), Ends: addrs("10.0.0.9"), GTPU: true, MTU: 1500},
		{Source: prefix("0.0.0.0/0"), To: prefix("0.0.0.0/0"), GTPU: true},
		{Source: prefix("2001:db8:3::1/128"), To: prefix("::/0"), GTPU: true},
		{Source: prefix("fd00:5:5::/64"), To: prefix("fd00:4e::/32"), ArgsOffset: 64},
	}
}

// The destination that an error quotes is lowered alone, with all that goes there.
func TestDestinationsOfPackets(t *testing.T) {
	sr, peers := event.VouchesSR, event.VouchesGTPU
	for name, row := range map[string]struct {
		layers  []packet.Layer
		vouches uint32
		want    string // "": none
	}{
		"End.M.GTP4.E":                       {gtpu4(1400, "10.99.0.7", "10.0.0.8", 2152), peers, "10.0.0.8"},
		"End.M.GTP4.E, another port":         {gtpu4(1400, "10.99.0.7", "10.0.0.8", 53), peers, ""},
		"End.M.GTP4.E, nobody vouches":       {gtpu4(1400, "10.99.0.7", "10.0.0.8", 2152), 0, ""},
		"End.M.GTP4.E, a tunnel's gNB":       {gtpu4(1400, "10.99.0.7", "10.0.0.9", 2152), peers, "10.0.0.9"},
		"End.M.GTP6.E":                       {gtpu6(1400, "2001:db8:3::1", "2001:db8:3::8"), peers, "2001:db8:3::8"},
		"End.M.GTP6.E, another source":       {gtpu6(1400, "2001:db8:3::2", "2001:db8:3::8"), peers, ""},
		"H.M.GTP4.D":                         {of("fd00:5:5::a00:9", tooBig(1400, "fd00:4e:a63:7:1400:1:2300:0", 0)), sr, "fd00:4e:a63:7::"},
		"H.M.GTP4.D, beside the SIDs":        {of("fd00:5:5::a00:9", tooBig(1400, "fd00:4f:a63:7:1400:1:2300:0", 0)), sr, ""},
		"H.M.GTP4.D, another source":         {of("fd00:5:6::a00:9", tooBig(1400, "fd00:4e:a63:7:1400:1:2300:0", 0)), sr, ""},
		"H.M.GTP4.D, an SRH that is not its": {of("fd00:5:5::a00:9", tooBig(1400, "fd00:4e:a63:7::", 1, "fd00:4e:a63:7::", "fd00:9::")), sr, ""},
	} {
		n := newNode()
		n.paths = gateways()
		n.Handle(packet.Frame(row.layers...), row.vouches)
		var want []string
		if row.want != "" {
			want = []string{string(adjacency.PathOf(addr(row.want)))}
		}
		if got := n.lowered(); !slices.Equal(got, want) {
			t.Errorf("%s: lowered are %q, want %q", name, got, want)
		}
	}
}

// Whoever invents destinations leaves room for the paths that the node is configured to have, and
// what is too old makes room for others.
func TestInventedDestinations(t *testing.T) {
	n := newNode()
	n.paths = gateways()
	tell := func(to string) {
		n.clock = n.clock.Add(time.Second / perSecond)
		n.Handle(packet.Frame(gtpu4(1400, "10.0.3.1", to, 2152)...), event.VouchesGTPU)
	}
	for i := range mostTaken + 50 {
		tell(netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)}).String())
	}
	tell("10.0.0.9")
	if len(n.set) != mostTaken+1 || n.Counters.Limited.Load() != 50 {
		t.Errorf("%d paths are lowered, %d not, want %d and 50", len(n.set), n.Counters.Limited.Load(), mostTaken+1)
	}
	n.clock = n.clock.Add(Lasting)
	n.Expire()
	tell("10.8.0.1")
	if len(n.set) != 1 {
		t.Errorf("when all are too old, %d paths are lowered, want 1", len(n.set))
	}
}
