package smf

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

// conversation is all that the SMF sends of one session in a dialect: of each
// procedure something.
func conversation(t *testing.T, d Dialect, s Spec) []request {
	t.Helper()
	u := newUPF(t)
	c := dial(t, fast(u, d))
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	one, err := c.Establish(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{
		func() error {
			return c.Handover(t.Context(), one, Tunnel{Address: addr("192.0.2.2"), TEID: 0xabcd}, true)
		},
		func() error { return c.Idle(t.Context(), one) },
	}
	if s.URR != nil {
		steps = append(steps,
			func() error { _, err := c.Query(t.Context(), one); return err },
			func() error {
				return c.Modify(t.Context(), one, Change{MBR: &session.BitRate{Uplink: 7, Downlink: 8}, Gates: &Gates{DownlinkClosed: true}, Uplink: "drop", Downlink: "forward", URR: s.URR, DropBuffered: true})
			})
	}
	steps = append(steps, func() error { _, err := c.Delete(t.Context(), one); return err }, func() error { return c.Release(t.Context()) })
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests
}

// capture writes messages as if they had been seen on a link.
func capture(t *testing.T, messages []request) string {
	t.Helper()
	packets := make([][]byte, len(messages))
	for i, m := range messages {
		packets[i] = packet.Frame(packet.IPv4{Src: addr("127.0.0.1"), Dst: addr("127.0.0.3")}, packet.UDP{Sport: Port, Dport: Port}, packet.Payload{Data: m.raw})
	}
	return tshark.Packets(t, packets)
}

func read(t *testing.T, path string, args ...string) []string {
	t.Helper()
	return strings.Split(strings.TrimRight(tshark.Read(t, path, args...), "\n"), "\n")
}

// What is sent decodes without a warning, in both dialects, whatever the
// sessions are.
func TestTsharkFindsNoFault(t *testing.T) {
	var messages []request
	var names []string
	for _, dialect := range []Dialect{Open5GS, Free5GC} {
		for name, s := range specs(dialect) {
			sent := conversation(t, dialect, s)
			if len(sent) < 7 {
				t.Errorf("%s %s: %d messages", dialect, name, len(sent))
			}
			messages = append(messages, sent...)
			for range sent {
				names = append(names, fmt.Sprintf("%s %s", dialect, name))
			}
		}
	}
	lines := read(t, capture(t, messages), "-T", "fields", "-e", "pfcp.msg_type", "-e", "_ws.expert.severity", "-e", "_ws.expert.message", "-e", "_ws.malformed")
	if len(lines) != len(messages) {
		t.Fatalf("%d messages, tshark has read %d", len(messages), len(lines))
	}
	for i, line := range lines {
		fields := strings.Split(line, "\t")
		if fields[0] != strconv.Itoa(int(messages[i].message.MessageType())) || len(fields) > 1 && strings.Join(fields[1:], "") != "" {
			t.Errorf("%s: %q\n% x", names[i], line, messages[i].raw)
		}
	}
}

// tree is the IE types of a message, in order.
func tree(t *testing.T, path, filter string) []string {
	t.Helper()
	return read(t, path, "-Y", filter, "-T", "fields", "-e", "pfcp.ie_type")
}

// The messages have the IEs of those that the real SMFs sent, in the same
// order.
func TestLikeTheRealOnes(t *testing.T) {
	open := Spec{
		UE4: netip4("10.60.0.2/16"), NetworkInstance: "internet", DNN: "internet", QFI: 1, MBR: &session.BitRate{Uplink: 200_000, Downlink: 100_000},
		Access: &Tunnel{Address: addr("10.200.0.2"), TEID: 1}, URR: &URR{VolumeThreshold: &session.Volume{Total: new(uint64(104_857_600))}}, CPFunction: addr("10.200.0.1"),
	}
	open.SNSSAI.SST = 1
	free := Spec{
		UE4: netip4("10.60.0.1/16"), NetworkInstance: "internet", QFI: 1, MBR: &session.BitRate{Uplink: 200_000, Downlink: 100_000},
		Access: &Tunnel{Address: addr("127.0.1.1"), TEID: 1}, Local: &Local{Address: addr("127.0.0.8"), AccessTEID: 2},
		URR: &URR{VolumeThreshold: &session.Volume{Uplink: new(uint64(500_000)), Downlink: new(uint64(500_000))}, Period: Duration(30e9), Packets: true},
	}
	const (
		establishment = "pfcp.msg_type == 50"
		modification  = "pfcp.msg_type == 52"
	)
	for _, tt := range []struct {
		name, theirs, their, ours string
		dialect                   Dialect
		spec                      Spec
		nth                       int
		// differs rewrites theirs by what we do otherwise on purpose.
		differs func(string) string
	}{
		{"open5gs establishment", "replay/captures/open5gs.pcap", "frame.number == 7", establishment, Open5GS, open, 0, func(s string) string {
			s = strings.Replace(s, "124,160,95,108,109", "124,160,95,108,81,109", 1) // usage of uplink packets counts too
			return strings.Replace(s, ",141,", ",", 1)                               // nobody is identified
		}},
		{"open5gs forward", "replay/captures/open5gs.pcap", "frame.number == 9", modification, Open5GS, open, 0, nil},
		{"open5gs idle", "replay/captures/open5gs.pcap", "frame.number == 23", modification, Open5GS, open, 2, nil},
		{"free5gc establishment", "replay/captures/free5gc.pcap", "frame.number == 5", establishment, Free5GC, free, 0, nil},
		{"free5gc forward", "replay/captures/free5gc.pcap", "frame.number == 7", modification, Free5GC, free, 0, nil},
		{"free5gc handover", "testdata/free5gc-handover.pcap", "frame.number == 5", modification, Free5GC, free, 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := tree(t, tt.theirs, tt.their)[0]
			if want == "" {
				t.Fatal("the capture has no such frame")
			}
			if tt.differs != nil {
				want = tt.differs(want)
			}
			ours := tree(t, capture(t, conversation(t, tt.dialect, tt.spec)), tt.ours)
			if ours[tt.nth] != want {
				t.Errorf("IEs\n%s, want\n%s", ours[tt.nth], want)
			}
		})
	}
}

// Values are where the dialects differ as tshark sees them.
func TestTsharkSeesTheDialects(t *testing.T) {
	for dialect, checks := range map[Dialect][]string{
		Open5GS: {
			"pfcp.msg_type == 50 && pfcp.f_teid_flags.ch == 1 && pfcp.f_teid_flags.ch_id == 1 && pfcp.f_teid.choose_id == 5 && pfcp.mp_flag == 0",
			"pfcp.msg_type == 50 && pfcp.out_hdr_desc == 6 && pfcp.apply_action.buff == 1 && pfcp.apply_action.nocp == 1 && pfcp.bar_id == 1",
			"pfcp.msg_type == 50 && pfcp.network_instance == \"internet\" && pfcp.apn_dnn == \"internet\" && pfcp.s_nssai_sst.sst == 1 && pfcp.s_nssai_sst.sd == 01:00:00",
			"pfcp.msg_type == 50 && pfcp.ue_ip_addr_ipv4 == 10.0.0.1 && pfcp.ul_mbr == 100000 && pfcp.dl_mbr == 200000 && pfcp.qfi_value == 9",
			"pfcp.msg_type == 52 && pfcp.outer_hdr_creation.teid == 0xabcd && pfcp.outer_hdr_creation.ipv4 == 192.0.2.2 && pfcp.smreq_flags.sndem == 1",
		},
		Free5GC: {
			"pfcp.msg_type == 50 && pfcp.f_teid.teid == 0x2000 && pfcp.f_teid.ipv4_addr == 127.0.0.2 && pfcp.mp_flag == 1",
			"pfcp.msg_type == 50 && pfcp.out_hdr_desc == 0 && pfcp.network_instance == \"internet\" && pfcp.apply_action.forw == 1",
			"pfcp.msg_type == 52 && pfcp.outer_hdr_creation.teid == 0xabcd && pfcp.smreq_flags.sndem == 1 && pfcp.seid == 0x1",
			"pfcp.msg_type == 52 && pfcp.apply_action.buff == 1 && pfcp.outer_hdr_creation.teid == 0xabcd",
		},
	} {
		path := capture(t, conversation(t, dialect, spec(dialect, 1)))
		for _, check := range checks {
			if lines := read(t, path, "-Y", check, "-T", "fields", "-e", "frame.number"); lines[0] == "" {
				t.Errorf("%s: no message is: %s", dialect, check)
			}
		}
	}
}
