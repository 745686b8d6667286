package gtpulink

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMessages(t *testing.T) {
	tests := []struct {
		name string
		wire string
		message
	}{
		{"G-PDU", "30 ff 0002 00000101 4500", message{kind: gPDU, teid: 0x101, payload: []byte{0x45, 0}}},
		{"uplink container, as captured", "34 ff 0009 00000123 0000 00 85 01 10 05 00 45",
			message{kind: gPDU, teid: 0x123, container: Uplink, qfi: 5, payload: []byte{0x45}}},
		{"downlink container with RQI", "34 ff 0009 00000123 0000 00 85 01 00 49 00 45",
			message{kind: gPDU, teid: 0x123, container: Downlink, qfi: 9, rqi: true, payload: []byte{0x45}}},
		{"Echo Request", "32 01 0004 00000000 1234 00 00", message{kind: echoRequest, sequenced: true, sequence: 0x1234, payload: []byte{}}},
		{"Echo Response", "32 02 0006 00000000 1234 00 00 0e00", message{kind: echoResponse, sequenced: true, sequence: 0x1234, payload: []byte{14, 0}}},
		{"Error Indication", "32 1a 0010 00000000 0000 00 00 10 00000101 85 0004 0a010001",
			message{kind: errorIndication, sequenced: true, payload: appendFTEID(nil, 0x101, netip.MustParseAddr("10.1.0.1"))}},
		{"End Marker", "30 fe 0000 00000101", message{kind: endMarker, teid: 0x101, payload: []byte{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wire := unhex(t, tt.wire)
			if got := tt.message.appendTo(nil); !bytes.Equal(got, wire) {
				t.Errorf("wrote % x, want % x", got, wire)
			}
			got, err := parse(wire)
			if err != nil || !reflect.DeepEqual(got, tt.message) {
				t.Errorf("read %+v, %v, want %+v", got, err, tt.message)
			}
		})
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		name, wire string
		want       error
		payload    string
	}{
		{"what is behind the length is cut off", "30 ff 0001 00000101 45 ffff", nil, "45"},
		{"sequence and N-PDU numbers", "33 ff 0005 00000101 0001 07 00 45", nil, "45"},
		{"type without E is no extension", "32 ff 0005 00000101 0001 00 85 45", nil, "45"},
		{"two extensions", "34 ff 0011 00000101 0000 00 40 01 1234 85 02 00 09 00 00 00 00 00 45", nil, "45"},
		{"empty", "", errShort, ""},
		{"seven octets", "30 ff 0000 000001", errShort, ""},
		{"version 2", "48 ff 0000 00000101", errVersion, ""},
		{"GTP'", "20 ff 0000 00000101", errVersion, ""},
		{"longer than the packet", "30 ff 0003 00000101 4500", errShort, ""},
		{"options cut short", "32 ff 0003 00000101 000100", errShort, ""},
		{"extension of length 0", "34 ff 0008 00000101 0000 00 85 00 00 05 00", errExtension, ""},
		{"extension past the end", "34 ff 0008 00000101 0000 00 85 02 00 05 00", errExtension, ""},
		{"extension without end", "34 ff 0008 00000101 0000 00 85 01 00 05 85", errExtension, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := parse(unhex(t, tt.wire))
			if !errors.Is(err, tt.want) || err == nil && !bytes.Equal(m.payload, unhex(t, tt.payload)) {
				t.Errorf("payload % x, error %v: want %s, %v", m.payload, err, tt.payload, tt.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	good := `{"device": "g", "local": "10.0.0.1", "remote": "10.0.0.2", "container": "downlink", "qfi": 9, "rqi": true}`
	tests := []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"no device", `"g"`, `""`, "device"},
		{"long device", `"g"`, `"ggggggggggggggggg"`, "device"},
		{"no remote", `"remote": "10.0.0.2", `, ``, "remote"},
		{"families", `10.0.0.2`, `2001:db8::2`, "families"},
		{"QFI", `9`, `64`, "qfi"},
		{"RQI uplink", `downlink`, `uplink`, "rqi"},
		{"container", `downlink", "qfi": 9, "rqi": true`, `up"`, "container"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := link1(t, strings.Replace(good, tt.old, tt.new, 1)).Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v: want %q", err, tt.want)
			}
		})
	}
}

func TestRefusedFTEID(t *testing.T) {
	for _, addr := range []string{"10.1.0.1", "2001:db8::1"} {
		want := netip.MustParseAddr(addr)
		if teid, got, ok := refusedFTEID(append(appendFTEID(nil, 0x101, want), 255, 0, 0)); !ok || teid != 0x101 || got != want {
			t.Errorf("%s: %#x %v (%v)", addr, teid, got, ok)
		}
	}
	for name, wire := range map[string]string{
		"empty": "", "no address": "10 00000101", "cut short": "10 00000101 85 0004 0a0100", "length of nothing": "10 00000101 85 0005 0a01000100",
		"another first": "0e 00000101 85 0004 0a010001", "another second": "10 00000101 80 0004 0a010001",
	} {
		if teid, addr, ok := refusedFTEID(unhex(t, wire)); ok {
			t.Errorf("%s: %#x %v", name, teid, addr)
		}
	}
}
