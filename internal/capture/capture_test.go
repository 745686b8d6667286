package capture

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

func TestText(t *testing.T) {
	const frame = "020000000002020000000001080045000014" + "6162636465666768"
	for name, text := range map[string]string{
		"hex stream":     frame,
		"in groups":      "02:00:00:00:00:02 02-00-00-00-00-01 0800 45000014 6162636465666768\n",
		"tshark -x":      "Packet (26 bytes):\n0000  02 00 00 00 00 02 02 00 00 00 00 01 08 00 45 00   ..............E.\n0010  00 14 61 62 63 64 65 66 67 68                     ..abcdefgh\n",
		"tcpdump -XX":    "12:00:00.000000 IP a > b:\r\n\t0x0000:  0200 0000 0002 0200 0000 0001 0800 4500  ..............E.\r\n\t0x0010:  0014 6162 6364 6566 6768                 ..abcdefgh\r\n",
		"tcpdump -xx":    "\t0x0000:  0200 0000 0002 0200 0000 0001 0800 4500\n\t0x0010:  0014 6162 6364 6566 6768",
		"xxd":            "00000000: 0200 0000 0002 0200 0000 0001 0800 4500  ..............E.\n00000010: 0014 6162 6364 6566 6768  ..abcdefgh\n",
		"text of digits": "0000  02 00 00 00 00 02 02 00 00 00 00 01 08 00 45 00  ..\n0010  00 14 61 62 63 64 65 66 67 68  ab cd ef\n",
	} {
		got, err := Text(text, 1)
		if err != nil || len(got) != 1 || hex.EncodeToString(got[0]) != frame {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
	if got, err := Text("0000  01 02\n0010  03\n\n0000  04\n05\n06", 9); err != nil || len(got) != 4 || len(got[0]) != 3 {
		t.Errorf("four packets: %x, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                     "no packet",
		"hello":                "no packet",
		"012":                  "no packet",
		"01\n02\n03":           "more than 2 packets",
		"0010  01 02  ..\n":    "begins at offset 0010",
		"0000  01\n\n0010  02": "begins at offset 0010",
	} {
		if got, err := Text(text, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %x, %v; want an error with %q", text, got, err, want)
		}
	}
}

// Files of both kinds hold the same frames as text does.
func TestFrames(t *testing.T) {
	frame := bytes.Repeat([]byte{2}, 60)
	file := func(link layers.LinkType, cut int) []byte {
		var b bytes.Buffer
		w := pcapgo.NewWriter(&b)
		if err := w.WriteFileHeader(65536, link); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(frame) - cut, Length: len(frame)}, frame[cut:]); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	got, err := Frames(bytes.NewReader(file(layers.LinkTypeEthernet, 0)), 2)
	if err != nil || len(got) != 2 || !bytes.Equal(got[1], frame) {
		t.Errorf("pcap: %x, %v", got, err)
	}
	if got, err := Frames(strings.NewReader(hex.EncodeToString(frame)), 1); err != nil || !bytes.Equal(got[0], frame) {
		t.Errorf("text: %x, %v", got, err)
	}
	whole := file(layers.LinkTypeEthernet, 0)
	for name, bad := range map[string]struct {
		file []byte
		want string
	}{
		"too many":       {whole, "more than 1 packets"},
		"cut off":        {whole[:len(whole)-1], "cut off here"},
		"no packet":      {whole[:24], "no packet"},
		"short packets":  {file(layers.LinkTypeEthernet, 1), "only 59 of 60 octets"},
		"of any":         {file(layers.LinkTypeLinuxSLL, 0), "capture on one interface"},
		"half a head":    {whole[:20], "not a capture"},
		"nothing at all": {nil, "no packet"},
	} {
		most := 2
		if name == "too many" {
			most = 1
		}
		if got, err := Frames(bytes.NewReader(bad.file), most); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %x, %v; want an error with %q", name, got, err, bad.want)
		}
	}
}

func TestFramesOfNg(t *testing.T) {
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte{3}, 60)
	if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: 60, Length: 60}, frame); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := Frames(&b, 1); err != nil || len(got) != 1 || !bytes.Equal(got[0], frame) {
		t.Errorf("%x, %v", got, err)
	}
}

func FuzzText(f *testing.F) {
	f.Add("0000  01 02  ..\n0010  03")
	f.Add("0x0000:  0102 03")
	f.Add("01:02 03")
	f.Fuzz(func(t *testing.T, text string) {
		frames, err := Text(text, 3)
		if err == nil && (len(frames) == 0 || len(frames) > 3) {
			t.Errorf("%d frames of %q", len(frames), text)
		}
		for _, one := range frames {
			if len(one) == 0 || len(one) > len(text) {
				t.Errorf("%x of %q", one, text)
			}
		}
	})
}
