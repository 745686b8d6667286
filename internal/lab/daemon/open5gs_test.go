package daemon

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// database answers one message of MongoDB's protocol, and returns what it got.
func database(t *testing.T, answer []byte) (dial func(context.Context, string, string) (net.Conn, error), got chan []byte) {
	t.Helper()
	got = make(chan []byte, 1)
	return func(_ context.Context, _, address string) (net.Conn, error) {
		if address != "127.0.0.1:27017" {
			t.Errorf("dials %s", address)
		}
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			head := make([]byte, 16)
			if _, err := io.ReadFull(theirs, head); err != nil {
				return
			}
			body := make([]byte, binary.LittleEndian.Uint32(head)-16)
			if _, err := io.ReadFull(theirs, body); err != nil {
				return
			}
			got <- append(head, body...)
			_, _ = theirs.Write(answer)
		}()
		return ours, nil
	}, got
}

// reply is a message with a document.
func reply(d document) []byte {
	body := append(make([]byte, 5), encode(d)...)
	b := binary.LittleEndian.AppendUint32(nil, uint32(16+len(body)))
	b = append(b, make([]byte, 8)...)
	return append(binary.LittleEndian.AppendUint32(b, 2013), body...)
}

func TestSubscribeOpen5GS(t *testing.T) {
	text := fixture("core")
	for old, to := range map[string]string{"free5gc: 127.0.0.1:5000": "open5gs: 127.0.0.1:27017", ", charging: Online, quota: \"100000\"": "", "dnn: internet,": "dnn: internet, type: IPv4v6, ipv6: '2001:db8:5::1',"} {
		text = strings.Replace(text, old, to, 1)
	}
	s := parse(t, text).Node("x").Subscribers
	dial, got := database(t, reply(document{{"n", int32(1)}, {"ok", int32(1)}}))
	if err := subscribe(t.Context(), s, dial); err != nil {
		t.Fatal(err)
	}
	message := string(<-got)
	if length, op := binary.LittleEndian.Uint32([]byte(message)), binary.LittleEndian.Uint32([]byte(message[12:])); int(length) != len(message) || op != 2013 {
		t.Errorf("operation %d of %d octets, %d came", op, length, len(message))
	}
	for _, want := range []string{
		"\x02insert\x00\x0c\x00\x00\x00subscribers\x00", "\x02$db\x00\x08\x00\x00\x00open5gs\x00",
		"\x02imsi\x00\x10\x00\x00\x00208930000000001\x00", "\x02k\x00\x21\x00\x00\x008baf473f2f8fd09487cccbd7097c6862\x00",
		"\x10type\x00\x03\x00\x00\x00", "\x02ipv4\x00\x0c\x00\x00\x0010.60.100.1\x00", "\x02ipv6\x00\x0e\x00\x00\x002001:db8:5::1\x00",
		"\x10value\x00\x14\x00\x00\x00\x10unit\x00\x02\x00\x00\x00", "permit out ip from 198.51.100.1 to assigned\x00", "\x08default_indicator\x00\x01",
		"\x12sqn\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("no %q in %q", want, message)
		}
	}
	double := reply(document{{"ok", int64(0x3ff0000000000000)}}) // 1.0
	double[25] = bsonDouble
	dial, _ = database(t, double)
	if err := subscribe(t.Context(), s, dial); err != nil {
		t.Error(err)
	}
	short := reply(document{{"ok", int32(1)}})
	wrong := append([]byte{}, short...)
	wrong[21]++ // the length of the document
	other := append([]byte{}, short...)
	other[12]++
	for name, tt := range map[string]struct {
		answer []byte
		words  string
	}{
		"refused":    {reply(document{{"ok", int32(0)}, {"errmsg", "because"}}), "because"},
		"duplicates": {reply(document{{"ok", int32(1)}, {"writeErrors", []document{{{"errmsg", "there already"}}}}}), "there already"},
		"other":      {other, "operation 2014"},
		"no BSON":    {wrong, "no BSON"},
		"cut":        {short[:20], "EOF"},
		"nothing":    {nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			dial, _ := database(t, tt.answer)
			wantError(t, subscribe(t.Context(), s, dial), "subscribers", tt.words)
		})
	}
}

func TestOpenSubscription(t *testing.T) {
	s := &topology.Subscribers{Open5GS: netip.MustParseAddrPort("127.0.0.1:27017")}
	x := topology.Subscriber{Sessions: []topology.Subscription{{SST: 1, SD: "010203", DNN: "x", Uplink: "5 bps", Downlink: "2 Gbps"}}}
	text := string(encode(openSubscription(s, x)))
	for _, want := range []string{"\x10value\x00\x05\x00\x00\x00\x10unit\x00\x00\x00\x00\x00", "\x10value\x00\x02\x00\x00\x00\x10unit\x00\x03\x00\x00\x00", "\x10type\x00\x01\x00\x00\x00"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	for _, none := range []string{"pcc_rule", "\x03ue\x00"} {
		if strings.Contains(text, none) {
			t.Errorf("%q in %q", none, text)
		}
	}
}

// FuzzDecode reads answers of a database, which may be anything.
func FuzzDecode(f *testing.F) {
	f.Add(encode(document{{"ok", int32(1)}, {"b", true}, {"d", document{{"s", "x"}}}, {"l", []document{{}}}, {"n", int64(1)}}))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = decode(b) })
}
