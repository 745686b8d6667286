package pfcp

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wmnsk/go-pfcp/message"

	layers "github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

// TestTsharkFindsNoFault: what the server sends in the other tests is PFCP to
// somebody else too, of every kind, without a warning.
func TestTsharkFindsNoFault(t *testing.T) {
	var all [][]byte
	seen = func(b []byte) { all = append(all, b) }
	defer func() { seen = nil }()
	for name, test := range map[string]func(*testing.T){
		"association": TestAssociation, "again": TestAgain, "own setup": TestOurOwnSetup, "PFDs": TestPFDs,
		"F-TEIDs": TestFTEIDs, "UE addresses": TestUEAddresses, "usage": TestUsageReports, "reports": TestReports,
		"node reports": TestNodeReports, "refused": TestRefusedModification, "captures": TestCaptures,
		"hardening": TestHardeningEstablishment, "node hardening": TestHardeningNode,
	} {
		t.Run(name, test)
	}
	out := read(t, sentPackets(t, all), "-T", "fields", "-e", "pfcp.msg_type",
		"-e", "_ws.expert.severity", "-e", "_ws.expert.message", "-e", "_ws.malformed")
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if len(lines) != len(all) {
		t.Fatalf("tshark read %d messages of %d", len(lines), len(all))
	}
	types := map[uint8]int{}
	for i, line := range lines {
		fields := strings.Split(line, "\t")
		msgType, err := strconv.Atoi(fields[0])
		if err != nil || msgType != int(all[i][1]) {
			t.Errorf("tshark sees message type %q in %x", fields[0], all[i])
			continue
		}
		types[uint8(msgType)]++
		if fields[3] != "" || slices.ContainsFunc(strings.Split(fields[1], ","), tshark.IsWarning) {
			t.Errorf("message type %d: %s %s\n%x", msgType, fields[2], fields[3], all[i])
		}
	}
	for _, msgType := range []uint8{
		message.MsgTypeHeartbeatResponse, message.MsgTypePFDManagementResponse,
		message.MsgTypeAssociationSetupRequest, message.MsgTypeAssociationSetupResponse, message.MsgTypeAssociationUpdateRequest,
		message.MsgTypeAssociationUpdateResponse, message.MsgTypeAssociationReleaseResponse,
		message.MsgTypeVersionNotSupportedResponse, message.MsgTypeNodeReportRequest, message.MsgTypeSessionSetDeletionResponse,
		message.MsgTypeSessionEstablishmentResponse, message.MsgTypeSessionModificationResponse,
		message.MsgTypeSessionDeletionResponse, message.MsgTypeSessionReportRequest,
	} {
		if types[msgType] == 0 {
			t.Errorf("no %s was looked at", messageName(msgType))
		}
	}
}

// TestTsharkSeesWhatIsSaid: fields of some messages, as tshark decodes them.
func TestTsharkSeesWhatIsSaid(t *testing.T) {
	var all [][]byte
	seen = func(b []byte) { all = append(all, b) }
	defer func() { seen = nil }()
	t.Run("UE addresses", TestUEAddresses)
	t.Run("usage", TestUsageReports)
	t.Run("reports", TestReports)
	t.Run("association", TestAssociation)
	path := sentPackets(t, all)
	for _, check := range []string{
		"pfcp.msg_type == 6 && pfcp.node_id_fqdn == \"upf.example.org\" && pfcp.up_function_features.ftup == 1 && pfcp.up_function_features.ueip == 1 && pfcp.up_function_features.ip6pl == 1 && pfcp.up_function_features.bucp == 0",
		"pfcp.msg_type == 51 && pfcp.cause == 1 && pfcp.ue_ip_addr_ipv4 == 10.99.0.1 && pfcp.ue_ip_addr_ipv6 == 2001:db8:0:1:: && pfcp.f_teid.teid == 1 && pfcp.f_teid.ipv6_addr == fd00::8",
		"pfcp.msg_type == 51 && pfcp.cause == 73 && pfcp.failed_rule_id_type == 0",
		"pfcp.msg_type == 53 && pfcp.urr_id == 4 && pfcp.ur_seqn == 3 && pfcp.volume_measurement.tovol == 30 && pfcp.volume_measurement.dlnop == 2 && pfcp.duration_measurement == 9",
		"pfcp.msg_type == 55 && pfcp.usage_report_trigger.term == 1",
		"pfcp.msg_type == 56 && pfcp.report_type.dldr == 1 && pfcp.report_type.upir == 1 && pfcp.pdr_id == 2 && pfcp.f_teid.teid == 0x99",
	} {
		if read(t, path, "-Y", check) == "" {
			t.Errorf("holds for no message: %s", check)
		}
	}
}

// sentPackets writes messages as if they had been seen on a link. They are of many
// tests: each has a conversation of its own.
func sentPackets(t *testing.T, messages [][]byte) string {
	t.Helper()
	packets := make([][]byte, len(messages))
	for i, m := range messages {
		packets[i] = layers.Frame(layers.IPv4{Src: netip.MustParseAddr("127.0.0.1"), Dst: netip.MustParseAddr("127.0.0.2")},
			layers.UDP{Sport: Port, Dport: uint16(10000 + i)}, layers.Payload{Data: m})
	}
	return tshark.Packets(t, packets)
}

func read(t *testing.T, path string, args ...string) string {
	t.Helper()
	return tshark.Read(t, path, append([]string{"-d", fmt.Sprintf("udp.port==%d,pfcp", Port)}, args...)...)
}
