package pfcp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// captured message of a conversation.
type sample struct {
	from, to netip.Addr
	data     []byte
}

// conversation are the PFCP messages of a capture.
func conversation(t testing.TB, dialect string) []sample {
	t.Helper()
	f, err := os.Open("testdata/n4-" + dialect + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var list []sample
	for {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(frame, r.LinkType(), gopacket.Default)
		ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, ok2 := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok || !ok2 || udp.DstPort != Port {
			continue
		}
		from, _ := netip.AddrFromSlice(ip.SrcIP.To4())
		to, _ := netip.AddrFromSlice(ip.DstIP.To4())
		list = append(list, sample{from, to, slices.Clone(udp.Payload)})
	}
}

// TestCaptures plays the SMFs' part of two conversations to our server. Its
// answers must say what the SMF got from its own UPF: the same causes, and the
// same PDRs with F-TEIDs that are shared in the same way.
func TestCaptures(t *testing.T) {
	for dialect, want := range map[string]struct{ answered, reports int }{
		"free5gc": {11, 0},
		"open5gs": {23, 2},
	} {
		t.Run(dialect, func(t *testing.T) {
			r := newReplay(t, dialect)
			for i := range r.all {
				r.step(i)
			}
			if r.answered != want.answered || r.reports != want.reports {
				t.Errorf("%d answers and %d reports, want %+v", r.answered, r.reports, want)
			}
			r.b.upf.consistent(t)
			r.compareSessions("testdata/n4-" + dialect + ".json")
		})
	}
}

// compareSessions compares what the SMF's rules have become with a file.
func (r *replay) compareSessions(file string) {
	sessions := slices.SortedFunc(maps.Values(r.b.upf.sessions), func(a, b *session.Session) int {
		return cmp.Compare(a.CPSEID, b.CPSEID)
	})
	for _, s := range sessions {
		s.SEID = 0 // another one each time
		s.CPAddr = r.smf
		for i := range s.FARs {
			if f := s.FARs[i].Forwarding; f != nil && f.Outer != nil && f.Outer.Addr == r.m.addr {
				f.Outer.Addr = r.smf
			}
		}
		s.Node = strings.ReplaceAll(s.Node, r.m.addr.String(), r.smf.String())
	}
	got, err := json.MarshalIndent(sessions, "", "  ")
	if err != nil {
		r.t.Fatal(err)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)+"\n"); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// replay is a conversation in progress.
type replay struct {
	t        *testing.T
	all      []sample
	smf, upf netip.Addr // in the capture
	b        *bed
	m        *smf
	seids    map[uint64]uint64 // theirs to ours
	teids    map[uint32]uint32
	lost     bool // the capture's UPF does not answer any more
	answered int
	reports  int
}

func newReplay(t *testing.T, dialect string) *replay {
	r := &replay{t: t, all: conversation(t, dialect), seids: map[uint64]uint64{}, teids: map[uint32]uint32{}}
	r.smf, r.upf = r.all[0].from, r.all[0].to // the SMF speaks first
	r.b = newBed(t, func(_ *Config, u *fakeUPF) { u.v4, u.v6 = r.upf, netip.Addr{} })
	r.m = r.b.smf(2)
	return r
}

// answerTo finds the response to a request of the SMF's in the capture.
func (r *replay) answerTo(i int) []byte {
	h, _, _, err := wire.ReadHeader(r.all[i].data)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range r.all[i+1:] {
		if a, _, _, err := wire.ReadHeader(s.data); err == nil && s.from == r.upf &&
			a.Type == h.Type+1 && a.Sequence == h.Sequence {
			return s.data
		}
	}
	return nil
}

func (r *replay) step(i int) {
	h, _, _, err := wire.ReadHeader(r.all[i].data)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.all[i].from == r.upf {
		if h.Type == message.MsgTypeSessionReportRequest {
			r.report(i)
		}
		return
	}
	if isResponse(h.Type) {
		return
	}
	theirs := r.answerTo(i)
	if theirs == nil {
		r.lost = true
		return
	}
	if r.lost {
		// The UPF was started anew, and knew nothing.
		r.lost = false
		r.b.stop()
		r.b.upf = newFakeUPF()
		r.b.start(func(_ *Config, u *fakeUPF) { u.v4, u.v6 = r.upf, netip.Addr{} })
		clear(r.teids)
	}
	r.m.sendRaw(r.translate(r.all[i].data))
	ours := r.m.receiveRaw(patience)
	if ours == nil {
		r.t.Fatalf("message %d: no answer", i)
	}
	r.compare(i, theirs, ours)
	r.answered++
}

// translate puts our addresses and SEIDs into a message of the capture's SMF.
func (r *replay) translate(data []byte) []byte {
	data = bytes.ReplaceAll(data, r.smf.AsSlice(), r.m.addr.AsSlice())
	if h, _, _, _ := wire.ReadHeader(data); h.HasSEID && h.SEID != 0 {
		ours, ok := r.seids[h.SEID]
		if !ok {
			r.t.Fatalf("the capture names SEID %#x before it was given", h.SEID)
		}
		binary.BigEndian.PutUint64(data[4:], ours)
	}
	return data
}

// compare fails unless ours says to the SMF what theirs did.
func (r *replay) compare(i int, theirs, ours []byte) {
	r.t.Helper()
	want, got := said(r.t, theirs), said(r.t, ours)
	if want.up != 0 {
		r.seids[want.up] = got.up
	}
	if want.msgType != got.msgType || want.sequence != got.sequence || want.seid != got.seid || want.cause != got.cause {
		r.t.Fatalf("message %d: answered\n%+v, the SMF needs\n%+v", i, got, want)
	}
	if len(want.created) != len(got.created) {
		r.t.Fatalf("message %d: created PDRs %+v, want %+v", i, got.created, want.created)
	}
	for k, w := range want.created {
		g := got.created[k]
		if known, ok := r.teids[w.teid]; ok && known != g.teid {
			r.t.Errorf("message %d: PDR %d has TEID %#x, and not %#x as others of its CHOOSE ID", i, g.pdr, g.teid, known)
		}
		r.teids[w.teid] = g.teid
		if w.pdr != g.pdr || w.addr != g.addr || g.teid == 0 {
			r.t.Errorf("message %d: created %+v, want %+v", i, g, w)
		}
	}
	ourTEIDs := map[uint32]bool{}
	for _, teid := range r.teids {
		ourTEIDs[teid] = true
	}
	if len(ourTEIDs) != len(r.teids) {
		r.t.Errorf("message %d: TEIDs that differ for the SMF are the same: %v", i, r.teids)
	}
}

// saying is what an SMF looks for in an answer.
type saying struct {
	msgType  uint8
	sequence uint32
	seid     uint64
	cause    uint8
	up       uint64 // UP F-SEID
	created  []createdPDR
}

type createdPDR struct {
	pdr  uint16
	teid uint32
	addr string
}

// said reads an answer with go-pfcp.
func said(t *testing.T, data []byte) (s saying) {
	t.Helper()
	msg, err := message.Parse(data)
	if err != nil {
		t.Fatalf("%x: %v", data, err)
	}
	s.msgType, s.sequence, s.seid = msg.MessageType(), msg.Sequence(), msg.SEID()
	var cause *ie.IE
	var created []*ie.IE
	switch m := msg.(type) {
	case *message.HeartbeatResponse:
		if _, err := m.RecoveryTimeStamp.RecoveryTimeStamp(); err != nil {
			t.Fatal(err)
		}
		return s
	case *message.AssociationSetupResponse:
		cause = m.Cause
	case *message.SessionEstablishmentResponse:
		cause, created = m.Cause, m.CreatedPDR
		if m.UPFSEID != nil {
			f, err := m.UPFSEID.FSEID()
			if err != nil {
				t.Fatal(err)
			}
			s.up = f.SEID
		}
	case *message.SessionModificationResponse:
		cause, created = m.Cause, m.CreatedPDR
	default:
		t.Fatalf("a %s", msg.MessageTypeName())
	}
	if s.cause, err = cause.Cause(); err != nil {
		t.Fatal(err)
	}
	for _, c := range created {
		id, err1 := c.PDRID()
		f, err2 := c.FTEID()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		s.created = append(s.created, createdPDR{id, f.TEID, f.IPv4Address.String()})
	}
	return s
}

// report has the server report what the capture's UPF did.
func (r *replay) report(i int) {
	theirs, err := message.Parse(r.all[i].data)
	if err != nil {
		r.t.Fatal(err)
	}
	want := theirs.(*message.SessionReportRequest)
	var seid uint64
	for _, s := range r.b.upf.sessions {
		if s.CPSEID == want.SEID() {
			seid = s.SEID
		}
	}
	pdr, err := want.DownlinkDataReport.PDRID()
	if err != nil {
		r.t.Fatal(err)
	}
	result := make(chan error, 1)
	r.b.s.Report(session.Report{SEID: seid, DownlinkData: []uint16{pdr}}, func(err error) { result <- err })
	got, ok := r.m.receive(patience).(*message.SessionReportRequest)
	if !ok || got.SEID() != want.SEID() {
		r.t.Fatalf("message %d: reported %v, want %v", i, got, want)
	}
	if diff := gocmp.Diff(want.DownlinkDataReport.Payload, got.DownlinkDataReport.Payload); diff != "" {
		r.t.Errorf("message %d: downlink data report (-theirs +ours):\n%s", i, diff)
	}
	if diff := gocmp.Diff(want.ReportType.Payload, got.ReportType.Payload); diff != "" {
		r.t.Errorf("message %d: report type (-theirs +ours):\n%s", i, diff)
	}
	r.m.send(message.NewSessionReportResponse(0, 0, seid, got.Sequence(), 0, ie.NewCause(ie.CauseRequestAccepted)))
	if err := <-result; err != nil {
		r.t.Errorf("message %d: report not taken: %v", i, err)
	}
	r.reports++
}
