package upf

import (
	"errors"
	"testing"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// What an SMF asks for and the data path refuses has a Cause of its own: Cause 77 (system
// failure) is none of the SMF's mistakes. Nothing is left of what is refused.
func TestRefusedRulesHaveCauses(t *testing.T) {
	n := newN4(t)
	sound := func() {
		t.Helper()
		if err := errors.Join(n.Establish(sample.Session(7)), n.Drop(7)); err != nil {
			t.Fatal(err)
		}
	}
	rate := &session.BitRate{Uplink: 1e6, Downlink: 1e6}
	for name, c := range map[string]struct {
		change func(s *session.Session)
		want   error
	}{
		"an F-TEID for both directions": {func(s *session.Session) {
			s.PDRs[1].PDI.TEID = s.PDRs[0].PDI.TEID
		}, pfcp.ErrUnsupported},
		"no TEID and no UE address": {func(s *session.Session) {
			s.PDRs[0].PDI.UE, s.PDRs[1].PDI.UE = nil, nil
		}, pfcp.ErrUnsupported},
		"QERs that PDRs share crosswise": {func(s *session.Session) {
			s.QERs = nil
			for id := range uint32(3) {
				s.QERs = append(s.QERs, session.QER{ID: id + 1, MBR: rate})
			}
			s.PDRs = append(s.PDRs, s.PDRs[0], s.PDRs[0])
			s.PDRs[0].QERs, s.PDRs[1].QERs = []uint32{1, 2}, nil
			s.PDRs[2].ID, s.PDRs[2].QERs = 3, []uint32{2, 3}
			s.PDRs[3].ID, s.PDRs[3].QERs = 4, []uint32{1, 3}
		}, pfcp.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			s := sample.Session(7)
			c.change(s)
			err := n.Establish(s)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			eventually(t, "something is left of what is refused", func() bool {
				use := n.path.Usage()
				return n.Len()+use["pdr"].Used+use["filter"].Used+use["meter"].Used+use["pdr_by_teid"].Used+use["pdr_by_ue"].Used == 0
			})
			sound()
		})
	}
}

// What another session has in the data path is refused with Cause 73.
func TestTakenByAnotherSession(t *testing.T) {
	n := newN4(t)
	if err := n.Establish(sample.Session(7)); err != nil {
		t.Fatal(err)
	}
	s := sample.Session(8)
	s.PDRs[1].PDI.UE = sample.Session(7).PDRs[1].PDI.UE
	if err := n.Establish(s); !errors.Is(err, pfcp.ErrTaken) || n.Len() != 1 {
		t.Errorf("%v, %d sessions", err, n.Len())
	}
}
