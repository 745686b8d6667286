package packet

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

// frame5 is a frame of a capture of another implementation
// (internal/model/testdata/vectors, h_m_gtp4_d).
const frame5 = "ffffffffffff 000000000000 0800 " +
	"4500 0048 0001 0000 40 11 663e 0a000002 0a630002 0868 0868 0034 9d84 " +
	"34 ff 0024 00000123 0000 00 85 01 00 05 00 " +
	"4500 001c 0001 0000 40 01 65dd 0a000002 0a000102 08 00 f7ff 0000 0000"

func TestLayersFromJSON(t *testing.T) {
	var in Layers
	text := `[{"ethernet": {"dst": "ffffffffffff", "src": "000000000000"}}, {"ipv4": {"src": "10.0.0.2", "dst": "10.99.0.2", "id": 1}},
		{"udp": {"sport": 2152, "dport": 2152}}, {"gtpu": {"teid": 291, "container": {"type": 0, "qfi": 5}}},
		{"ipv4.inner": {"src": "10.0.0.2", "dst": "10.0.1.2", "id": 1}}, {"icmp": {"type": 8}}]`
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(frame5, " ", "")
	if got := hex.EncodeToString(Frame(in...)); got != want {
		t.Errorf("\ngot  %s\nwant %s", got, want)
	}
	for text, want := range map[string]string{
		`[{"ipv5": {}}]`:                 "no such layer",
		`[{"udp": {"port": 1}}]`:         "port",
		`[{"udp": {}, "ipv4": {}}]`:      "want one key",
		`[{"payload": {"data": "0x1"}}]`: "payload",
	} {
		if err := json.Unmarshal([]byte(text), &in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}
