package upf

import (
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// measured is a session with URRs, or a copy without any, of which PDRs 1 and 2 are measured.
func measured(t *testing.T, s *session.Session, urrs ...session.URR) *session.Session {
	to := sample.Copy(t, s)
	to.URRs = urrs
	for i := range to.PDRs {
		to.PDRs[i].URRs = nil
		for _, u := range urrs {
			to.PDRs[i].URRs = append(to.PDRs[i].URRs, u.ID)
		}
	}
	return to
}

// A URR that comes to a running session counts from then on, whatever the session had sent before
// and whatever another URR had counted.
func TestURRComesLater(t *testing.T) {
	w := newWorld(t)
	s := measured(t, sample.Session(1))
	w.establish(s)
	for range 1000 {
		w.path.packet(1, 1, 1000)
	}
	first := measured(t, s, session.URR{ID: 1, Volume: true, Trigger: session.TriggerVolumeQuota | session.TriggerVolumeThreshold,
		VolumeQuota: octets(500_000), VolumeThreshold: octets(400_000)})
	w.modify(s, first, session.Modification{})
	for range 10 {
		if !w.path.packet(1, 1, 1000) {
			t.Fatal("the quota is used up by what came before it")
		}
	}
	w.pass(time.Second)
	if got := w.smf.usage(); len(got) != 0 {
		t.Errorf("reports of what came before: %+v", got)
	}
	without := measured(t, s)
	wantVolume(t, w.modify(first, without, session.Modification{}), 1, session.CauseTermination, 10_000)
	w.path.packet(1, 1, 1000)
	second := measured(t, s, session.URR{ID: 2, Volume: true})
	w.modify(without, second, session.Modification{})
	w.path.packet(1, 1, 1000)
	last, err := w.remove(1)
	if err != nil {
		t.Fatal(err)
	}
	wantVolume(t, last, 2, session.CauseTermination, 1000)
}

// wantVolume wants one report, of a URR with a cause and a volume.
func wantVolume(t *testing.T, got []session.UsageReport, urr uint32, cause session.Cause, octets uint64) {
	t.Helper()
	if len(got) != 1 || got[0].URR != urr || got[0].Cause != cause || got[0].Volume.Total() != octets {
		t.Errorf("reports %+v, want one of URR %d with cause %#x and %d octets", got, urr, cause, octets)
	}
}

// A URR that a request removes and makes anew with the same ID begins anew, with a quota of its own.
func TestReplacedURR(t *testing.T) {
	w := newWorld(t)
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(5_000)}))
	for range 10 {
		w.path.packet(1, 1, 1000)
		w.settle()
	}
	wantVolume(t, w.smf.usage(), 1, session.CauseVolumeQuota, 5000)
	from := w.Session(1)
	to := sample.Copy(t, from)
	to.URRs[0].VolumeQuota = octets(50_000)
	wantVolume(t, w.modify(from, to, session.Modification{ReplacedURRs: []uint32{1}}), 1, session.CauseTermination, 0)
	if !w.path.packet(1, 1, 1000) {
		t.Error("nothing goes with the new URR's quota")
	}
	last, err := w.remove(1)
	if err != nil || len(last) != 1 || last[0].Sequence != 0 {
		t.Errorf("%+v, %v: want the first report of a new URR", last, err)
	}
}

// A Quota Validity Time alone opens what it had closed, unless the quota is used up.
func TestValidityRenewed(t *testing.T) {
	for _, used := range []bool{false, true} {
		w := newWorld(t)
		w.establish(countedBy(session.URR{Volume: true, VolumeQuota: octets(5_000), QuotaValidity: 10 * time.Second, Trigger: session.TriggerQuotaValidity}))
		for range 10 {
			if used {
				w.path.packet(1, 1, 1000)
			}
		}
		w.pass(11 * time.Second)
		s := w.Session(1)
		w.modify(s, sample.Copy(t, s), session.Modification{Renewed: []session.Renewed{{URR: 1, QuotaValidity: true}}})
		if went := w.path.packet(1, 1, 1000); went == used {
			t.Errorf("with a quota that is used up (%v) and a new validity time a packet went: %v", used, went)
		}
	}
}

// The UE is inactive, comes back, and is inactive again: the SMF hears of both. A timer that is set
// or changed begins then.
func TestInactiveAgain(t *testing.T) {
	w := newWorld(t)
	s := measured(t, sample.Session(1))
	s.InactivityTimer = 10 * time.Second
	w.establish(s)
	inactive := func(want int, when string) {
		t.Helper()
		n := 0
		for _, r := range w.smf.take() {
			if r.Inactive {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d reports of inactivity, want %d", when, n, want)
		}
	}
	w.pass(time.Minute)
	inactive(1, "no packet")
	for range 20 {
		w.path.packet(1, 1, 100)
		w.pass(time.Second)
	}
	inactive(0, "while packets come")
	w.pass(21 * time.Second) // the time of the last packet is known as precisely as the timer
	inactive(1, "21 s after the last of 20 packets")
	w.pass(10 * time.Minute)
	inactive(0, "still inactive")
	w.path.packet(1, 1, 100)
	w.settle()
	w.pass(21 * time.Second)
	inactive(1, "21 s after one more packet")
	from := w.Session(1)
	to := sample.Copy(t, from)
	to.InactivityTimer = 10 * time.Minute
	w.modify(from, to, session.Modification{})
	w.pass(9 * time.Minute)
	inactive(0, "9 minutes after the timer became 10 minutes")
	w.pass(12 * time.Minute)
	inactive(1, "21 minutes after it")
}

// Packets are reported where the SMF asks for their number (MNOP), and only there.
func TestNumberOfPackets(t *testing.T) {
	for _, asked := range []bool{false, true} {
		w := newWorld(t)
		w.establish(countedBy(session.URR{Volume: true, NumberOfPackets: asked}))
		for range 10 {
			w.path.packet(1, 1, 1000)
		}
		last, err := w.remove(1)
		if err != nil || len(last) != 1 || last[0].HasPackets != asked || last[0].Packets.Uplink != 10 {
			t.Errorf("asked for packets: %v: %+v, %v", asked, last, err)
		}
	}
}
