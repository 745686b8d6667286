package traffic

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/dataplane/trafficrun"
	"github.com/culvert-net/culvert/internal/testutil/tshark"
)

var update = flag.Bool("update", false, "write what tshark sees of the templates into testdata")

// each calls f with every template in testdata.
func each(t *testing.T, f func(t *testing.T, file string, template Template)) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			template, err := ParseTemplate(text)
			if err != nil {
				t.Fatal(err)
			}
			f(t, file, template)
		})
	}
}

// written are the first packets of a template, as the AF_PACKET sender writes them.
func written(t *testing.T, template Template, count int) (trafficrun.Job, [][]byte) {
	t.Helper()
	j, err := template.job(nil, 7)
	if err != nil {
		t.Fatal(err)
	}
	j.Trial = 1
	s := &packetSender{job: j, clock: func() uint64 { return 0 }}
	var frames [][]byte
	for range count {
		b := make([]byte, trafficrun.MaxFrame)
		frames = append(frames, b[:s.make(b)])
	}
	return j, frames
}

// An independent decoder finds every length and checksum right, in packets with
// any number, and the fields that the template says.
func TestTshark(t *testing.T) {
	each(t, func(t *testing.T, file string, template Template) {
		_, frames := written(t, template, 500)
		path := tshark.Frames(t, frames)
		out := read(t, path, "-T", "fields", "-e", "_ws.expert.severity", "-e", "_ws.expert.message", "-e", "_ws.malformed")
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if len(lines) != len(frames) {
			t.Fatalf("tshark read %d frames of %d", len(lines), len(frames))
		}
		for i, line := range lines {
			f := strings.Split(line, "\t")
			if f[2] != "" || slices.ContainsFunc(strings.Split(f[0], ","), tshark.IsWarning) {
				t.Fatalf("packet %d: %s %s\n%x", i, f[1], f[2], frames[i])
			}
			if err := verify(frames[i]); err != nil {
				t.Fatalf("packet %d: %v\n%x", i, err, frames[i])
			}
		}
		same(t, strings.TrimSuffix(file, ".yaml")+".txt", seen(t, path))
	})
}

// seen are the fields of the first packets.
func seen(t *testing.T, path string) string {
	t.Helper()
	args := []string{"-c", "6", "-T", "fields", "-E", "header=y", "-E", "separator=;"}
	for _, field := range []string{
		"frame.len", "ip.src", "ip.dst", "ip.ttl", "ip.dsfield", "ipv6.src", "ipv6.dst", "ipv6.hlim", "ipv6.tclass", "ipv6.flow",
		"ipv6.routing.segleft", "ipv6.routing.srh.addr", "udp.srcport", "udp.dstport", "udp.checksum.status",
		"gtp.teid", "gtp.ext_hdr.pdu_ses_con.pdu_type", "gtp.ext_hdr.pdu_ses_con.qos_flow_id",
	} {
		args = append(args, "-e", field)
	}
	return read(t, path, args...)
}

// read goes without tapa, which takes whatever goes to port 5000.
func read(t *testing.T, path string, args ...string) string {
	t.Helper()
	return tshark.Read(t, path, append([]string{"--disable-protocol", "tapa"}, args...)...)
}

func same(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("%s: %v: tshark sees\n%s\nwant\n%s", file, err, got, want)
	}
}

// The kernel's program writes what the AF_PACKET sender does, octet by octet but
// for the time, and the receiver finds nothing wrong with any of it.
func TestKernelWritesTheSame(t *testing.T) {
	p := open(t, joined(t))
	each(t, func(t *testing.T, _ string, template Template) {
		const packets = 500
		j, err := p.prepare(Trial{Template: template, Rate: 20000, Duration: packets * time.Second / 20000})
		if err != nil {
			t.Fatal(err)
		}
		want := &packetSender{job: j, clock: func() uint64 { return 0 }}
		if err := p.engine.Prepare(j); err != nil {
			t.Fatal(err)
		}
		if err := proc.Inside(p.options.TX.Namespace, func() error { _, err := p.live(j, nil); return err }); err != nil {
			t.Fatal(err)
		}
		n := 0
		err = p.engine.Show(func(s trafficrun.Shown) {
			b := make([]byte, trafficrun.MaxFrame)
			frame := b[:want.make(b)]
			if s.Wrong != trafficrun.Right {
				t.Errorf("packet %d: the receiver says %d\n%x", n, s.Wrong, s.Data)
			}
			if !bytes.Equal(timeless(frame), timeless(s.Data)) && !t.Failed() {
				t.Errorf("packet %d is\n%x, want\n%x", n, s.Data, frame)
			}
			n++
		})
		if err != nil || n != packets {
			t.Errorf("%d packets came, %v: want %d", n, err, packets)
		}
	})
}

// timeless is a frame without the tag's time and check.
func timeless(frame []byte) []byte {
	f := bytes.Clone(frame)
	clear(f[len(f)-10 : len(f)-8])
	clear(f[len(f)-4:])
	return f
}

// Sequential numbers are dealt out evenly, and no two packets of a flow are of
// two streams.
func TestFlowsStayInTheirStream(t *testing.T) {
	for _, order := range []Order{Sequential, Random} {
		template := gtpu4()
		template.TEIDs, template.UEs, template.Sources, template.Flows, template.Order = 1000, 1000, 10, 3, order
		j, err := template.job(nil, 7)
		if err != nil {
			t.Fatal(err)
		}
		streamOf, seen := map[uint32]uint32{}, map[uint32]int{}
		for i := range uint32(64000) {
			stream, sequence := i&(1<<j.StreamBits-1), i>>j.StreamBits
			n := numbersOf(j, stream, sequence)
			if was, ok := streamOf[n[keySession]]; ok && was != stream {
				t.Fatalf("%s: session %d is in streams %d and %d", order, n[keySession], was, stream)
			}
			streamOf[n[keySession]] = stream
			seen[n[keySession]]++
			if n[keySession] >= 1000 || n[keySource] >= 10 || n[keyFlow] >= 3 {
				t.Fatalf("%s: numbers %v", order, n)
			}
		}
		if len(seen) != 1000 {
			t.Errorf("%s: %d sessions of 1000", order, len(seen))
		}
		for n, count := range seen {
			if order == Sequential && (count < 62 || count > 66) || count < 20 {
				t.Errorf("%s: session %d had %d of 64000 packets", order, n, count)
			}
		}
	}
}

func TestIMIX(t *testing.T) {
	template := plain4()
	template.IMIX = true
	count := map[uint8]int{}
	for _, s := range template.slots() {
		count[s]++
	}
	if fmt.Sprint(count) != "map[0:28 1:16 2:4]" || fmt.Sprint(template.sizes()) != "[64 570 1518]" {
		t.Errorf("of 48 packets %v, of %v octets", count, template.sizes())
	}
}

// What paper 001 calls 26 and 1440 octets of payload are its frames' lengths.
func TestPapersLengths(t *testing.T) {
	plain, tunnel := plain4(), gtpu4()
	srv6 := plain4()
	srv6.Outer = Outer{Kind: SRv6, Source: addr("fc00::1"), Segments: addresses("fc00::2"), Reduced: true}
	tunnel.Size, tunnel.Outer.Container, tunnel.Outer.QFI = 0, NoContainer, 0
	for _, c := range []struct {
		t           Template
		short, long int
	}{{plain, 64, 1478}, {tunnel, 100, 1514}, {srv6, 104, 1518}} {
		for payload, want := range map[int]int{26: c.short, 1440: c.long} {
			c.t.Payload = payload
			if err := c.t.Check(); err != nil || c.t.sizes()[0] != want {
				t.Errorf("%s with %d octets: a frame of %v, %v: want %d", c.t.Outer.Kind, payload, c.t.sizes(), err, want)
			}
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for text, says := range map[string]string{
		"size: [1]":                  "line 1: size: must be a whole number",
		"sizes: 64":                  `did you mean "size"`,
		"{size: 64, imix: true}":     "size: there is more than one length (fix: keep one",
		"size: 63":                   "frames of 63 octets",
		"payload: 1600":              "payload: frames of 1618 octets",
		"ethernet: {source: 'x'}":    "ethernet.source:",
		"inner: {source: 192.0.2.1}": "inner: has one address",
		"inner: {source: 192.0.2.1, destination: '2001:db8::1'}": "inner.destination: 192.0.2.1 and 2001:db8::1 are of two families",
		"outer: {teid: 5}":    "outer.kind: is missing",
		"outer: {kind: gre}":  `outer.kind: "gre" is none (fix: gtpu, srv6`,
		"outer: {kind: gtpu}": "give outer.source and outer.destination",
		"outer: {kind: gtpu, source: 192.0.2.1, destination: 192.0.2.2, qfi: 9}":                     "outer.qfi: a QFI stands in a PDU Session Container",
		"outer: {kind: gtpu, source: 192.0.2.1, destination: 192.0.2.2, qfi: 64, container: uplink}": "outer.qfi: 64 has more than 6 bits",
		"outer: {kind: srv6, source: 192.0.2.1, segments: ['fc00::1']}":                              "outer.source: 192.0.2.1 is none (fix: an IPv6 address)",
		"outer: {kind: vxlan, source: 192.0.2.1, destination: 192.0.2.2, vni: 16777216}":             "outer.vni: 16777216 has more than 24 bits",
		"outer: {kind: vxlan, source: 192.0.2.1}":                                                    "outer: VXLAN goes between two addresses",
		"outer: {kind: vxlan, source: 192.0.2.1, destination: 192.0.2.2, teid: 1}":                   "VXLAN has none of them",
		"outer: {kind: srv6, source: 'fc00::1'}":                                                     "outer.segments: there are 0",
		"outer: {kind: srv6, source: 'fc00::1', segments: ['fc00::1'], segments_left: 1}":            "outer.segments_left: is 1 of 1",
		"outer: {kind: srv6, source: 'fc00::1', segments: ['fc00::1'], number_at: 13}":               "outer.number_at: 32 bits at octet 13",
		"teids: 5": "teids: there is nothing that counts (fix: give outer.kind gtpu",
		"inner: {source: 192.0.2.1, destination: 192.0.2.2}\nues: 5":                          "ues: there is nothing that counts (fix: give inner.ue",
		"inner: {source: 192.0.2.1, destination: 192.0.2.2, source_port: 65000}\nflows: 1000": "flows: 1000 from inner.source_port on are past 65535 (fix: at most 536)",
		"inner: {source: '2001:db8::1', destination: '2001:db8::2', no_checksum: true}":       "UDP over IPv6 wants a checksum",
		"order: sorted": `order: "sorted" is none`,
		"inner: {source: 192.0.2.1, destination: 192.0.2.2, ue: middle}": `inner.ue: "middle"`,
	} {
		_, err := ParseTemplate([]byte(text))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// Whatever a template says, it is refused or makes packets that hold together.
func FuzzTemplate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		template, err := ParseTemplate(text)
		if err != nil {
			return
		}
		j, err := template.job(nil, 1)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		s := &packetSender{job: j, clock: func() uint64 { return 0 }}
		for range 50 {
			b := make([]byte, trafficrun.MaxFrame)
			frame := b[:s.make(b)]
			if err := verify(frame); err != nil {
				t.Fatalf("%s: %v: %x", text, err, frame)
			}
		}
	})
}
