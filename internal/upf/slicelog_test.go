package upf

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// snssaiIE is the type of the IE (TS 29.244 section 8.1.2).
const snssaiIE = 257

// captured is the S-NSSAI of each Session Establishment Request of a capture.
func captured(t *testing.T, dialect string) (list []session.SNSSAI) {
	t.Helper()
	for _, m := range requests(t, dialect) {
		h, body, _, err := wire.ReadHeader(m)
		if err != nil || h.Type != 50 {
			continue
		}
		d := &wire.Decoder{}
		for i := range d.Each(wire.IEs(body)) {
			if i.Type() == snssaiIE {
				list = append(list, i.SNSSAI())
			}
		}
		if d.Err != nil {
			t.Fatal(d.Err)
		}
	}
	return list
}

// An SMF of Open5GS whose slice has the SD 000001 sends 010000. Its sessions belong to
// the slice that the operator wrote, which the log says once; so are those told of that
// belong to none.
func TestSliceOfOpen5GS(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	config := Config{Slices: []slice.Slice{
		{Name: "a", SNSSAI: slice.SNSSAI{SST: 1, SD: "000001"}},
		{Name: "b", SNSSAI: slice.SNSSAI{SST: 1, SD: "000002"}, NetworkInstance: "factory"},
	}}
	if err := w.SetConfig(config); err != nil {
		t.Fatal(err)
	}
	seid := uint64(0)
	establish := func(has session.SNSSAI) View {
		t.Helper()
		seid++
		s := sample.Session(seid)
		s.SNSSAI = has
		w.establish(s)
		v, _, err := w.View(seid)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	received := captured(t, "open5gs-live")
	if len(received) < 2 {
		t.Fatalf("the capture has %d sessions", len(received))
	}
	for _, has := range received {
		v := establish(has)
		if want := "S-NSSAI 1-010000 was received: its SD matches with its octets reversed"; v.Slice != "a" || v.SliceNote != want {
			t.Errorf("%s: slice %q, note %q", has, v.Slice, v.SliceNote)
		}
	}
	for range 2 {
		v := establish(session.SNSSAI{SST: 1, SD: 3, HasSD: true})
		if want := "no slice takes S-NSSAI 1-000003 with network instance internet"; v.Slice != "" || v.SliceNote != want {
			t.Errorf("slice %q, note %q", v.Slice, v.SliceNote)
		}
	}
	if v := establish(session.SNSSAI{SST: 1, SD: 1, HasSD: true}); v.Slice != "a" || v.SliceNote != "" {
		t.Errorf("the exact SD: slice %q, note %q", v.Slice, v.SliceNote)
	}
	count := func(what string, want int) {
		t.Helper()
		if got := strings.Count(log.String(), what); got != want {
			t.Errorf("%q is %d times in the log, want %d:\n%s", what, got, want, log.String())
		}
	}
	const reverse = `event=slice.reversed_sd association=192.0.2.1 received=1-010000 slice=a snssai=1-000001`
	const none = `event=slice.none association=192.0.2.1 received=1-000003 network_instances=internet slices="a: snssai 1-000001; b: snssai 1-000002, network_instance factory"`
	count(reverse, 1)
	count(none, 1)
	count("level=", 2)
	// What another configuration makes of them is logged anew.
	config.Slices = config.Slices[:1]
	if err := w.SetConfig(config); err != nil {
		t.Fatal(err)
	}
	count(reverse, 2)
	count(`slices="a: snssai 1-000001"`, 1)
	// With a slice that has the SD as Open5GS sends it, nobody but the operator knows.
	config.Slices = append(config.Slices, slice.Slice{Name: "c", SNSSAI: slice.SNSSAI{SST: 1, SD: "010000"}})
	if err := w.SetConfig(config); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v := establish(received[0])
		if want := "S-NSSAI 1-010000 was received: slice a has it with the octets of its SD reversed"; v.Slice != "c" || v.SliceNote != want {
			t.Errorf("slice %q, note %q", v.Slice, v.SliceNote)
		}
	}
	count(`event=slice.ambiguous_sd association=192.0.2.1 received=1-010000 slice=c other=a`, 1)
	// An SMF that makes up S-NSSAIs fills no memory and no disk.
	for sd := range uint32(2 * maxMatchesLogged) {
		establish(session.SNSSAI{SST: 7, SD: sd, HasSD: true})
	}
	if n := len(w.install.config.Load().matches.seen); n != maxMatchesLogged {
		t.Errorf("%d cases are remembered", n)
	}
}
