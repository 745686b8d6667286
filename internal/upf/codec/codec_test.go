package upf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/culvert-net/culvert/internal/session"
)

// fill sets every field that there is, so that one which the codec forgets is
// found missing.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, byte(r.Uint32()), byte(r.Uint32()), 1})))
		return
	case netip.Prefix:
		b := [16]byte{0x20, 1, byte(r.Uint32()), byte(r.Uint32())}
		v.Set(reflect.ValueOf(netip.PrefixFrom(netip.AddrFrom16(b), r.IntN(129))))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<32), r.Int64N(1e9))))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", r.Uint32()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64()>>(64-v.Type().Bits()) | 1)
	case reflect.Int64:
		v.SetInt(r.Int64() + 1)
	case reflect.Array, reflect.Slice:
		if v.Kind() == reflect.Slice {
			v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 4))
		}
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), depth+1)
		}
	default:
		panic("a field of a kind that the test does not know: " + v.Type().String())
	}
}

var sameSession = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
}

func TestCodecKeepsEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var s session.Session
		fill(r, reflect.ValueOf(&s).Elem(), 0)
		got, err := unpack(pack(&s))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&s, got, sameSession); d != "" {
			t.Fatalf("(-want +got)\n%s", d)
		}
	}
	empty := &session.Session{}
	if got, err := unpack(pack(empty)); err != nil || !cmp.Equal(got, empty, sameSession) {
		t.Errorf("empty session: %+v, %v", got, err)
	}
}

// Zeros in a row, and texts that were there before, are not written out.
func TestCodecLeavesOut(t *testing.T) {
	for _, zeros := range []int{0, 1, 3, 4, 254, 255, 256, 258, 259, 1000} {
		w := newWriter()
		for range zeros {
			w.number(0)
		}
		w.number(128)
		b := slices.Clone(w.written())
		w.release()
		r := codec{b: b, reading: true}
		for i := range zeros {
			if v := r.number(1); v != 0 {
				t.Fatalf("number %d of %d zeros: %d", i, zeros, v)
			}
		}
		if v := r.number(0); v != 128 || !r.ended() {
			t.Errorf("after %d zeros: %d, of %x", zeros, v, b)
		}
		if most := 2 + manyZeros + 3*(zeros/255); len(b) > most {
			t.Errorf("%d zeros are %d octets, want at most %d", zeros, len(b), most)
		}
	}
	texts := []string{"a", "", "internet", "b", "internet", "c", "d", "d", "e", "e", "a", ""}
	w := newWriter()
	defer w.release()
	for i := range texts {
		w.text(&texts[i])
	}
	r := codec{b: slices.Clone(w.written()), reading: true}
	for i, want := range texts {
		var got string
		if r.text(&got); got != want {
			t.Errorf("text %d is %q, want %q", i, got, want)
		}
	}
	if n := bytes.Count(w.b, []byte("internet")); n != 1 || !r.ended() {
		t.Errorf("a text is there %d times in %q", n, w.b)
	}
}

// Whatever is in a file, reading it ends with a session or an error.
func FuzzUnpack(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	var s session.Session
	fill(r, reflect.ValueOf(&s).Elem(), 0)
	f.Add(pack(&s))
	f.Add(pack(&session.Session{}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := unpack(b)
		if err != nil {
			return
		}
		again, err := unpack(pack(s))
		if err != nil || !cmp.Equal(s, again, sameSession) {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}

// ordinary is what an SMF asks for: two PDRs, a QER, a URR.
func ordinary(seid uint64) *session.Session {
	qfi, n3, n6 := uint8(9), session.TypeN3, session.TypeN6
	ue := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(seid >> 16), byte(seid >> 8), byte(seid)}), 32)}
	volume := uint64(500_000)
	return &session.Session{
		SEID: seid, CPSEID: seid + 7, CPAddr: netip.MustParseAddr("192.0.2.1"), Node: "192.0.2.1", PDNType: session.PDNIPv4,
		SNSSAI: session.SNSSAI{SST: 1, SD: 1, HasSD: true}, DNN: "internet",
		PDRs: []session.PDR{
			{ID: 1, Precedence: 255, FAR: 1, QERs: []uint32{1}, URRs: []uint32{1}, RemoveOuter: true, PDI: session.PDI{
				Source: session.Access, InterfaceType: &n3, NetworkInstance: "internet", TEID: uint32(seid) + 1<<24,
				TEID4: netip.MustParseAddr("192.0.2.2"), UE: ue, QFIs: []uint8{9}}},
			{ID: 2, Precedence: 255, FAR: 2, QERs: []uint32{1}, URRs: []uint32{1}, PDI: session.PDI{
				Source: session.Core, InterfaceType: &n6, NetworkInstance: "internet", UE: ue}},
		},
		FARs: []session.FAR{
			{ID: 1, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Core, NetworkInstance: "internet"}},
			{ID: 2, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Access, NetworkInstance: "internet",
				Outer: &session.OuterHeader{Addr: netip.MustParseAddr("192.0.2.3"), TEID: uint32(seid) + 1}}},
		},
		QERs: []session.QER{{ID: 1, MBR: &session.BitRate{Uplink: 1e6, Downlink: 1e6}, QFI: &qfi}},
		URRs: []session.URR{{ID: 1, Volume: true, Trigger: session.TriggerPeriodic | session.TriggerVolumeThreshold,
			Period: 30 * time.Second, VolumeThreshold: &session.Volume{Total: &volume}}},
	}
}

func BenchmarkPack(b *testing.B) {
	s := ordinary(1)
	b.ReportMetric(float64(len(pack(s))), "octets")
	for b.Loop() {
		pack(s)
	}
}

func BenchmarkUnpack(b *testing.B) {
	packed := pack(ordinary(1))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unpack(packed); err != nil {
			b.Fatal(err)
		}
	}
}
