package probe

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/packet"
)

// Frames made by hand are found at the other end of a link, by whatever is there to see them:
// an interface sees all, a socket what is for it.
func TestFrames(t *testing.T) {
	from, at := newSpace(t), newSpace(t)
	from.ip(t, fmt.Sprintf("link add name a address 02:00:00:00:00:0a type veth peer name b address 02:00:00:00:00:0b netns /proc/%d/fd/%d", os.Getpid(), at.ns.Fd()), "link set dev a up")
	at.ip(t, "link set dev b up", "address add 10.0.0.2/24 dev b", "route add default dev b")
	frames := func(vlan []uint16, to string) func([]byte) []byte {
		return func(data []byte) []byte {
			return packet.Frame(packet.Ethernet{Src: packet.Hex{2, 0, 0, 0, 0, 10}, Dst: packet.Hex{2, 0, 0, 0, 0, 11}, VLAN: vlan},
				packet.IPv4{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr(to)}, packet.UDP{Sport: 1, Dport: 4000}, packet.Payload{Data: data})
		}
	}
	for _, c := range []struct {
		name  string
		frame func([]byte) []byte
		at    Space
		port  uint16
		want  int
	}{
		{"an interface", frames(nil, "10.0.0.2"), at, 0, 20},
		{"a socket", frames(nil, "10.0.0.2"), at, 4000, 20},
		{"an interface, for somebody else, with a tag", frames([]uint16{7}, "10.0.0.3"), at, 0, 20},
		{"a socket, for somebody else", frames(nil, "10.0.0.3"), at, 4000, 0},
		{"a socket at another port", frames(nil, "10.0.0.2"), at, 4001, 0},
		{"the sender's own interface", frames(nil, "10.0.0.2"), from, 0, 0},
	} {
		f := Frames{From: from, Device: "a", At: c.at, Port: c.port, Frame: c.frame, Count: 20, Wait: 200 * time.Millisecond}
		if c.want > 0 {
			f.Wait = 10 * time.Second
		}
		if r, err := f.Run(t.Context()); err != nil || r.Sent != 20 || r.Received != c.want {
			t.Errorf("%s: %+v, %v: want %d", c.name, r, err, c.want)
		}
	}
	if _, err := (Frames{From: from, Device: "none", At: at, Frame: frames(nil, "10.0.0.2"), Count: 1}).Run(t.Context()); err == nil {
		t.Error("frames are sent by no device")
	}
}
