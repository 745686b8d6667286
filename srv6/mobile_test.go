package srv6

import (
	"net/netip"
	"strings"
	"testing"
)

func TestArgsMobSessionBytes(t *testing.T) {
	for _, tt := range []struct {
		args   ArgsMobSession
		offset int
		into   string
		want   string
	}{
		// QFI 5, R 0 is 0x14; QFI 9, R 1 is 0x26.
		{ArgsMobSession{QFI: 5, TEID: 0x123}, 64, "2001:db8:f::", "2001:db8:f:0:1400:1:2300:0"},
		{ArgsMobSession{QFI: 9, R: true, TEID: 0x123}, 64, "2001:db8:f::", "2001:db8:f:0:2600:1:2300:0"},
		{ArgsMobSession{QFI: 5, TEID: 0x123}, 88, "2001:db8:e::", "2001:db8:e::14:0:123"},
		{ArgsMobSession{QFI: 63, R: true, TEID: 0xffffffff}, 0, "::", "feff:ffff:ff00::"},
		// What was there is replaced, U included; what is around it stays.
		{ArgsMobSession{}, 64, "2001:db8:f:ffff:ffff:ffff:ffff:ffff", "2001:db8:f:ffff::ff:ffff"},
		// Four bits further than a byte.
		{ArgsMobSession{QFI: 5, TEID: 0x123}, 68, "2001:db8:f:0:a000::", "2001:db8:f:0:a140:0:1230:0"},
	} {
		got, err := tt.args.Put(netip.MustParseAddr(tt.into), tt.offset)
		if err != nil || got.String() != tt.want {
			t.Errorf("%+v at %d: %v (%v), want %s", tt.args, tt.offset, got, err, tt.want)
			continue
		}
		if back, ok := ArgsMobSessionAt(got, tt.offset); !ok || back != tt.args {
			t.Errorf("read back %+v (%v), want %+v", back, ok, tt.args)
		}
	}
}

func TestArgsMobSessionIgnoresU(t *testing.T) {
	got, ok := ArgsMobSessionAt(netip.MustParseAddr("2001:db8:f:0:1500:1:2300:0"), 64)
	if want := (ArgsMobSession{QFI: 5, TEID: 0x123}); !ok || got != want {
		t.Errorf("got %+v (%v), want %+v", got, ok, want)
	}
}

func TestArgsMobSessionThatDoNotFit(t *testing.T) {
	v6 := netip.MustParseAddr("2001:db8::")
	for _, tt := range []struct {
		args   ArgsMobSession
		addr   netip.Addr
		offset int
		want   string
	}{
		{ArgsMobSession{}, v6, 89, "at most 88"},
		{ArgsMobSession{}, v6, -1, "at most 88"},
		{ArgsMobSession{QFI: 64}, v6, 0, "QFI 64"},
		{ArgsMobSession{}, netip.MustParseAddr("192.0.2.1"), 0, "not an IPv6"},
		{ArgsMobSession{}, netip.Addr{}, 0, "not an IPv6"},
	} {
		if got, err := tt.args.Put(tt.addr, tt.offset); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v at %d of %v: %v, %v", tt.args, tt.offset, tt.addr, got, err)
		}
	}
	for _, offset := range []int{-1, 89, 128} {
		if got, ok := ArgsMobSessionAt(v6, offset); ok {
			t.Errorf("read %+v at %d", got, offset)
		}
	}
	if _, ok := ArgsMobSessionAt(netip.MustParseAddr("192.0.2.1"), 0); ok {
		t.Error("read an argument of an IPv4 address")
	}
}

func TestSequenceArgs(t *testing.T) {
	args := SequenceArgs(0xabcd)
	got, err := args.Put(netip.MustParseAddr("2001:db8::"), 64)
	if err != nil || got.String() != "2001:db8::ab:cd00:0:0" || args.Sequence() != 0xabcd {
		t.Errorf("sequence 0xabcd is %v (%v), read as %#x", got, err, args.Sequence())
	}
}

// The packet of RFC 9433's H.M.GTP4.D: 10.0.0.2 to 10.99.0.2, TEID 0x123,
// QFI 5, locator 2001:db8::/32, source prefix 2001:db8:2::/64.
func TestGTP4Addresses(t *testing.T) {
	args := ArgsMobSession{QFI: 5, TEID: 0x123}
	sid, err := GTP4SID(netip.MustParsePrefix("2001:db8::/32"), netip.MustParseAddr("10.99.0.2"), args)
	if err != nil || sid.String() != "2001:db8:a63:2:1400:1:2300:0" {
		t.Fatalf("SID is %v (%v)", sid, err)
	}
	dst, back, ok := ParseGTP4SID(sid, 32)
	if !ok || dst.String() != "10.99.0.2" || back != args {
		t.Errorf("read back %v %+v (%v)", dst, back, ok)
	}
	// The bits behind the IPv4 source are the prefix's own.
	for prefix, want := range map[string]string{
		"2001:db8:2::1/64":      "2001:db8:2:0:a00:2:0:1",
		"2001:db8:1::/64":       "2001:db8:1:0:a00:2::",
		"2001:db8:1::/96":       "2001:db8:1::a00:2",
		"2001:db8:8000::/36":    "2001:db8:80a0:0:2000::",
		"::/0":                  "a00:2::",
		"2001:db8:1:ffff::f/64": "2001:db8:1:ffff:a00:2:0:f",
	} {
		p := netip.MustParsePrefix(prefix)
		src, err := GTP4Source(p, netip.MustParseAddr("10.0.0.2"))
		if err != nil || src.String() != want {
			t.Errorf("source behind %s is %v (%v), want %s", prefix, src, err, want)
			continue
		}
		if got, ok := GTP4SourceAt(src, p.Bits()); !ok || got.String() != "10.0.0.2" {
			t.Errorf("read back %v (%v) behind %s", got, ok, prefix)
		}
	}
}

func TestGTP6SID(t *testing.T) {
	args := ArgsMobSession{QFI: 5, TEID: 0x123}
	for prefix, want := range map[string]string{
		"2001:db8:f::/64":  "2001:db8:f:0:1400:1:2300:0",
		"2001:db8:e::/88":  "2001:db8:e::14:0:123",
		"2001:db8:e::1/88": "2001:db8:e::14:0:123",
	} {
		got, err := GTP6SID(netip.MustParsePrefix(prefix), args)
		if err != nil || got.String() != want {
			t.Errorf("SID of %s is %v (%v), want %s", prefix, got, err, want)
		}
	}
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("2001:db8::/89"), netip.MustParsePrefix("10.0.0.0/8")} {
		if got, err := GTP6SID(p, args); err == nil {
			t.Errorf("SID of %v is %v", p, got)
		}
	}
}

func TestGTP4AddressesThatDoNotFit(t *testing.T) {
	v4 := netip.MustParseAddr("192.0.2.1")
	for _, tt := range []struct {
		prefix string
		addr   netip.Addr
		sid    bool
	}{
		{"2001:db8::/57", v4, true},
		{"2001:db8::/97", v4, false},
		{"10.0.0.0/8", v4, false},
		{"10.0.0.0/8", v4, true},
		{"2001:db8::/32", netip.MustParseAddr("2001:db8::1"), true},
		{"2001:db8::/32", netip.MustParseAddr("2001:db8::1"), false},
		{"2001:db8::/32", netip.Addr{}, false},
	} {
		got, err := GTP4Source(netip.MustParsePrefix(tt.prefix), tt.addr)
		if tt.sid {
			got, err = GTP4SID(netip.MustParsePrefix(tt.prefix), tt.addr, ArgsMobSession{})
		}
		if err == nil {
			t.Errorf("%s with %v is %v", tt.prefix, tt.addr, got)
		}
	}
	if _, err := GTP4Source(netip.Prefix{}, v4); err == nil {
		t.Error("no prefix was taken")
	}
	for _, length := range []int{-1, 57, 97, 128} {
		if dst, args, ok := ParseGTP4SID(netip.MustParseAddr("2001:db8::"), length); ok {
			t.Errorf("read %v %+v behind %d bits", dst, args, length)
		}
	}
}

func FuzzArgsMobSession(f *testing.F) {
	f.Add([]byte("2001:db8:f:0:140"), 64, uint8(5), true, uint32(0x123))
	f.Add(make([]byte, 16), 88, uint8(63), false, uint32(0xffffffff))
	f.Add(make([]byte, 4), 0, uint8(0), false, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, offset int, qfi uint8, r bool, teid uint32) {
		a, _ := netip.AddrFromSlice(b)
		args := ArgsMobSession{QFI: qfi, R: r, TEID: teid}
		got, err := args.Put(a, offset)
		back, ok := ArgsMobSessionAt(got, offset)
		if (err == nil) != ok {
			t.Fatalf("put: %v, read: %v", err, ok)
		}
		if err != nil {
			return
		}
		if back != args {
			t.Fatalf("read back %+v, want %+v", back, args)
		}
		// Nothing but the 40 bits may differ.
		was, is := a.As16(), got.As16()
		for bit := range 128 {
			inside := bit >= offset && bit < offset+ArgsMobSessionBits
			if mask := byte(0x80) >> (bit % 8); !inside && (was[bit/8]^is[bit/8])&mask != 0 {
				t.Fatalf("bit %d changed", bit)
			}
		}
		ParseGTP4SID(got, offset)
	})
}
