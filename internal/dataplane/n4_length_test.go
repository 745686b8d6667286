package dataplane

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// lies are frames with a request whose lengths do not agree. Their checksums are those of what
// they say, so that nothing but a length is wrong.
func (r *n4Rig) lies() map[string][]byte {
	message := r.message(200, update(open5gsForward, 1, 2, "10.200.0.9"))
	lies := map[string][]byte{}
	for _, of := range []struct {
		name, smf          string
		ip, l4, own, first int // where the IP length is, UDP begins; what the length counts of the header; an address
	}{{"IPv4", "10.4.0.2", 16, 34, 20, 26}, {"IPv6", "fc00:4::2", 18, 54, 0, 22}} {
		whole := n4Frame(of.smf, message)
		udp := len(whole) - of.l4
		lie := func(what string, ip, length int) {
			b := slices.Clone(whole)
			binary.BigEndian.PutUint16(b[of.ip:], uint16(of.own+ip))
			binary.BigEndian.PutUint16(b[of.l4+4:], uint16(length))
			copy(b[of.l4+6:], []byte{0, 0})
			sum := uint32(17) + uint32(ip)
			for _, part := range [][]byte{b[of.first:of.l4], b[of.l4:min(of.l4+max(ip, 0), len(b))]} {
				for i, octet := range part {
					sum += uint32(octet) << (8 * (1 - i&1))
				}
			}
			binary.BigEndian.PutUint16(b[of.l4+6:], ^folded(sum))
			if of.own > 0 {
				copy(b[24:], []byte{0, 0})
				sum = 0
				for i := 14; i < 34; i += 2 {
					sum += uint32(binary.BigEndian.Uint16(b[i:]))
				}
				binary.BigEndian.PutUint16(b[24:], ^folded(sum))
			}
			lies[of.name+": "+what] = b
		}
		lie("the truth", udp, udp)
		lie("the IP packet longer than the frame", udp+1, udp)
		lie("both longer than the frame", udp+1, udp+1)
		lie("the IP packet as long as can be", 0xffff-of.own, udp)
		lie("the IP packet shorter than the datagram", udp-1, udp)
		lie("the IP packet shorter than UDP's header", 7, 7)
		lie("the IP packet without a datagram", 0, udp)
		if of.own > 0 {
			lie("the IP packet shorter than its header", -1, udp)
			lie("an IP packet of no octets", -of.own, udp)
		}
		lie("the datagram longer than the IP packet", udp, udp+1)
		lie("the datagram shorter than the IP packet", udp, udp-1)
		lie("the datagram shorter than its header", udp, 7)
		lie("a datagram of no octets", udp, 0)
	}
	return lies
}

// folded is a sum of words as one.
func folded(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// TestN4LeavesLies: a frame whose lengths do not agree is not answered, and changes nothing, by
// the program behind the data path and by the one before it.
func TestN4LeavesLies(t *testing.T) {
	for name, rig := range map[string]func(*testing.T) *n4Rig{"behind": func(t *testing.T) *n4Rig { return newN4Rig(t) }, "before": newN4Port} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			for what, frame := range r.lies() {
				r.publish()
				before := r.sessions.Get(n4Place)
				verdict, got, err := r.program.Test(frame, 1)
				must(t, err)
				if what[6:] == "the truth" {
					if verdict != xdp.VerdictRedirect {
						t.Errorf("%s: verdict %s", what, xdp.VerdictName(verdict))
					}
					continue
				}
				after := r.sessions.Get(n4Place)
				after.Left = before.Left
				if verdict != xdp.VerdictPass && verdict != xdp.VerdictDrop || !slices.Equal(got, frame) {
					t.Errorf("%s: verdict %s, frame %x", what, xdp.VerdictName(verdict), got)
				}
				if after != before || r.d.sessionTables.PDR.Load(r.rule, 2) != r.forward[0] {
					t.Errorf("%s: the session changed", what)
				}
			}
		})
	}
}
