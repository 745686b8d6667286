package pfcp

import (
	"encoding/hex"
	"testing"

	"github.com/culvert-net/culvert/internal/session"
)

// notes is a data path that is told what SMFs repeat.
type notes struct {
	alone
	places uint32
	said   map[uint64][][]byte
	node   Node
	takes  int
}

func (n *notes) Take(uint64, uint32) bool {
	n.takes++
	return false
}

func (n *notes) Places() uint32 { return n.places }

func (n *notes) SetNode(node Node) { n.node = node }

func (n *notes) Repeat(seid uint64, updates [][]byte) { n.said[seid] = updates }

// TestOnlyWhatIsRepeatedIsNoted: the data path hears of Update PDRs that have changed
// nothing, and that cannot change anything while the PDRs stay.
func TestOnlyWhatIsRepeatedIsNoted(t *testing.T) {
	const create, remove = "00010006003800020003", "000f0006003800020003"
	other, named := n4Session(t), n4Session(t)
	other.PDRs[1].Precedence = 7
	named.PDRs[1].PDI.ApplicationID = "video"
	for name, c := range map[string]struct {
		from, to *session.Session
		ies      string
		places   uint32
		want     int // Update PDRs
	}{
		"one":                 {n4Session(t), n4Session(t), n4FSEID + n4PDR + n4Forward5GC, 1, 1},
		"two":                 {n4Session(t), n4Session(t), n4PDR + n4Forward5GC + n4OtherPDR, 1, 2},
		"another precedence":  {n4Session(t), other, n4PDR, 1, 0},
		"an application":      {named, named, n4PDR, 1, 0},
		"a PDR that is new":   {n4Session(t), n4Session(t), create + n4PDR, 1, 0},
		"a PDR that went":     {n4Session(t), n4Session(t), n4PDR + remove, 1, 0},
		"upf.n4_fast is off":  {n4Session(t), n4Session(t), n4PDR, 0, 0},
		"an IE that is short": {n4Session(t), n4Session(t), n4PDR + "00090054", 1, 0},
	} {
		body, err := hex.DecodeString(c.ies)
		if err != nil {
			t.Fatal(err)
		}
		n := &notes{places: c.places, said: map[uint64][][]byte{}}
		s := &Server{signalling: n}
		s.repeat(c.from, c.to, body)
		if got := n.said[c.to.SEID]; len(got) != c.want {
			t.Errorf("%s: %d Update PDRs are noted, want %d", name, len(got), c.want)
		}
	}
}

// TestHeartbeatsOfRenewed: the data path has one Recovery Time Stamp of ours, so the
// heartbeats of an SMF that gets a later one are the daemon's.
func TestHeartbeatsOfRenewed(t *testing.T) {
	st, n := newStand(t), &notes{}
	st.s.signalling = n
	a := st.s.peers.Load().at(st.peers[0])[0]
	a.renewed = true
	st.s.node.setStamp(a, nil)
	st.s.share()
	if n.node.Recovery != 7 || len(n.node.Peers) != 2 {
		t.Fatalf("the data path has %+v", n.node)
	}
	for _, p := range n.node.Peers {
		of := st.s.peers.Load().byNode[p.Node]
		if answers := p.Recovery == of.recovery; answers == (of == a) {
			t.Errorf("the data path answers %s: %v", p.Node, answers)
		}
	}
}
