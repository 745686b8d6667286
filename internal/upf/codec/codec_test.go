package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
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

// pack encodes a session.
func pack(s *session.Session) []byte {
	c := NewWriter()
	defer c.Release()
	c.Session(s)
	return slices.Clone(c.Bytes())
}

func TestCodecKeepsEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var s session.Session
		fill(r, reflect.ValueOf(&s).Elem(), 0)
		got, err := Unpack(pack(&s))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&s, got, sample.Same); d != "" {
			t.Fatalf("(-want +got)\n%s", d)
		}
		want := Head{s.SEID, s.CPSEID, s.CPAddr, s.Node, s.PDNType, s.NamesApplications(), s.TEIDs(), s.UEs()}
		err = ReadHead(pack(&s), func(h *Head) error {
			if d := cmp.Diff(&want, h, sample.Same); d != "" {
				t.Fatalf("head (-want +got)\n%s", d)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	empty := &session.Session{}
	if got, err := Unpack(pack(empty)); err != nil || !cmp.Equal(got, empty, sample.Same) {
		t.Errorf("empty session: %+v, %v", got, err)
	}
}

// Zeros in a row, and texts that were there before, are not written out.
func TestCodecLeavesOut(t *testing.T) {
	for _, zeros := range []int{0, 1, 3, 4, 254, 255, 256, 258, 259, 1000} {
		w := NewWriter()
		for range zeros {
			w.Number(0)
		}
		w.Number(128)
		b := slices.Clone(w.Bytes())
		w.Release()
		r := NewReader(b)
		for i := range zeros {
			if v := r.Number(1); v != 0 {
				t.Fatalf("number %d of %d zeros: %d", i, zeros, v)
			}
		}
		if v := r.Number(0); v != 128 || r.Err() != nil {
			t.Errorf("after %d zeros: %d, of %x", zeros, v, b)
		}
		if most := 2 + manyZeros + 3*(zeros/255); len(b) > most {
			t.Errorf("%d zeros are %d octets, want at most %d", zeros, len(b), most)
		}
	}
	texts := []string{"a", "", "internet", "b", "internet", "c", "d", "d", "e", "e", "a", ""}
	w := NewWriter()
	defer w.Release()
	for i := range texts {
		w.Text(&texts[i])
	}
	r := NewReader(slices.Clone(w.Bytes()))
	for i, want := range texts {
		var got string
		if r.Text(&got); got != want {
			t.Errorf("text %d is %q, want %q", i, got, want)
		}
	}
	if n := bytes.Count(w.b, []byte("internet")); n != 1 || r.Err() != nil {
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
		if err := ReadHead(b, func(*Head) error { return nil }); err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
		s, err := Unpack(b)
		if err != nil {
			return
		}
		again, err := Unpack(pack(s))
		if err != nil || !cmp.Equal(s, again, sample.Same) {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}

func BenchmarkPack(b *testing.B) {
	s := sample.Session(1)
	b.ReportMetric(float64(len(pack(s))), "octets")
	for b.Loop() {
		pack(s)
	}
}

func BenchmarkReadHead(b *testing.B) {
	packed := pack(sample.Session(1))
	b.ReportAllocs()
	for b.Loop() {
		if err := ReadHead(packed, func(*Head) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	packed := pack(sample.Session(1))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Unpack(packed); err != nil {
			b.Fatal(err)
		}
	}
}
