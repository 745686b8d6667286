package dataplane

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/packet"
)

// downlinkFlow is a UE with two downlink rules, DNS and the rest, that share one
// rate. Its T-PDUs go on by the way that is given.
func downlinkFlow(n uint32, way Forwarding) *flow {
	const octets = 1400
	f := &flow{kind: "shared downlink", octets: octets, batch: 32, rules: []uint16{2, 3}, session: plain(n, n)}
	dns := anyFilter
	dns.AnyProtocol, dns.Protocol, dns.RemotePorts = false, 17, [2]uint16{53, 53}
	first := f.session.Rules[1]
	first.ID, first.Precedence, first.Filters = 3, 10, []Filter{dns}
	f.session.Rules = append(f.session.Rules, first)
	f.session.Meters = []Meter{{Rate: 1}}
	f.forward(way)
	for _, port := range []uint16{53, 80} {
		f.frames = append(f.frames, packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("192.0.2.1"), Dst: ue4(n)},
			packet.UDP{Sport: port, Dport: 5000}, packet.Payload{Count: octets - 28}))
	}
	return f
}

// forward sends downlink packets by another way. With a way by SRv6 the session has
// each rule twice: the second for what comes by GTP-U.
func (f *flow) forward(way Forwarding) {
	var list []Rule
	for _, r := range f.session.Rules {
		if r.Direction == Uplink {
			list = append(list, r)
		} else if r.TEID == 0 {
			r.Forward, r.Meters = way, []int{0}
			list = append(list, r)
			if way.Kind == ForwardSRv6 {
				r.ID, r.TEID, r.Destinations = r.ID|0x8000, 64, nil
				list = append(list, r)
			}
		}
	}
	f.session.Rules = list
}

// TestSharedRateSurvives holds a rate that downlink rules share against the clock:
// at first, after a kill and a start, after a change of the transport, after one
// more kill and start, and after a change between the two.
func TestSharedRateSurvives(t *testing.T) {
	const n, rate = 3, 50_000 // kbit/s
	ways := []Forwarding{
		gnb(n, "10.0.0.2"), {Kind: ForwardSRv6, Remote: addr("fc00:20::d46")}, {Kind: ForwardPolicy, Flow: class.SessionFlow{Policy: "n9"}},
	}
	names := []string{"GTP-U", "SRv6", "an SR policy"}
	for i := range ways {
		next := (i + 1) % len(ways)
		t.Run(fmt.Sprintf("%s, then %s", names[i], names[next]), func(t *testing.T) {
			path := filepath.Join(pinParent(t), "culvert")
			f := downlinkFlow(n, ways[i])
			start := func() {
				var err error
				f.d, err = Open(Options{PinPath: path, Limits: sessionLimits})
				must(t, err)
				prepareSessions(t, f.d)
				must(t, f.d.Sessions.TakeTEID(n))
				must(t, f.d.Sessions.Put(f.session))
				must(t, f.d.Sweep())
			}
			check := func() { newGauge(t, f, rate).measure(t, always) }
			kill := func() { must(t, f.d.Close()) }
			start()
			check()
			kill()
			start()
			check()
			f.forward(ways[next])
			must(t, f.d.Sessions.Put(f.session))
			check()
			kill()
			start()
			check()
			kill()
			f.forward(ways[i]) // while nobody was there
			start()
			check()
			kill()
			must(t, Remove(path))
		})
	}
}
