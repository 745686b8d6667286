package srv6

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestBehaviorNames(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Behavior
	}{
		{"End", End},
		{"End.M.GTP4.E", EndMGTP4E},
		{"end_m_gtp4_e", EndMGTP4E},
		{"END.M.GTP6.D.DI", EndMGTP6DDi},
		{"end_m_gtp6_d_di", EndMGTP6DDi},
		{" h.encaps.l2.red ", HEncapsL2Red},
		{"h_m_gtp4_d", HMGTP4D},
	} {
		got, err := ParseBehavior(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseBehavior(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
	for _, b := range Behaviors() {
		if got, err := ParseBehavior(b.String()); err != nil || got != b {
			t.Errorf("ParseBehavior(%q) = %v, %v", b.String(), got, err)
		}
	}
}

func TestUnknownNamesListTheValidOnes(t *testing.T) {
	var b Behavior
	var f Flavor
	var p PDUType
	var c ContainerType
	for _, tt := range []struct {
		text string
		into interface{ UnmarshalText([]byte) error }
		want []string
	}{
		{"T.M.GTP4.D", &b, []string{`"T.M.GTP4.D"`, "End.M.GTP4.E", "H.M.GTP4.D", "End.DT46"}},
		{"none", &b, []string{"End.MAP"}},
		{"PSPP", &f, []string{`"PSPP"`, "PSP, USP, USD, NEXT-C-SID"}},
		{"", &f, []string{"PSP"}},
		{"ip", &p, []string{"ipv4, ipv6, ipv4v6, ethernet, unstructured"}},
		{"up", &c, []string{"none, downlink, uplink"}},
	} {
		err := tt.into.UnmarshalText([]byte(tt.text))
		if err == nil {
			t.Errorf("%q was taken", tt.text)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error for %q is %q, without %q", tt.text, err, want)
			}
		}
	}
	if b != BehaviorNone || f != 0 || p != PDUTypeNone || c != ContainerNone {
		t.Error("an error changed the value")
	}
}

func TestFlavorSpellings(t *testing.T) {
	for _, text := range []string{"NEXT-C-SID", "NEXT-CSID", "next_csid", "next_c_sid"} {
		if got, err := ParseFlavor(text); err != nil || got != NextCSID {
			t.Errorf("ParseFlavor(%q) = %v, %v", text, got, err)
		}
	}
	if got, err := ParseFlavor("psp"); err != nil || got != PSP {
		t.Errorf("ParseFlavor(psp) = %v, %v", got, err)
	}
}

func TestUnknownNumbersDoNotMarshal(t *testing.T) {
	for _, v := range []any{Behavior(200), Flavor(64), Flavor(PSP | USP), PDUType(9), ContainerType(9)} {
		if text, err := json.Marshal(v); err == nil {
			t.Errorf("%T %v became %s", v, v, text)
		}
	}
	if got := Behavior(200).String(); got != "Behavior(200)" {
		t.Errorf("String is %q", got)
	}
}

func TestLocalSIDJSON(t *testing.T) {
	sid := LocalSID{
		SID:      netip.MustParsePrefix("2001:db8:1:6d::/64"),
		Behavior: EndMGTP6D, Flavors: []Flavor{PSP, NextCSID},
		Policy: "to-upf", Source: netip.MustParseAddr("2001:db8::1"),
		PDUType: PDUTypeIPv4v6, ArgsOffset: 64, PDUSessionContainer: ContainerUplink,
	}
	const want = `{"sid":"2001:db8:1:6d::/64","behavior":"End.M.GTP6.D","flavors":["PSP","NEXT-C-SID"],` +
		`"policy":"to-upf","source":"2001:db8::1","pdu_type":"ipv4v6","pdu_session_container":"uplink","args_offset":64}`
	got, err := json.Marshal(sid)
	if err != nil || string(got) != want {
		t.Fatalf("JSON is %s (%v), want %s", got, err, want)
	}
	var back LocalSID
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, sid) {
		t.Errorf("read back %+v (%v), want %+v", back, err, sid)
	}
	// What is not given is left out, and reads as not given.
	if got, err = json.Marshal(LocalSID{SID: sid.SID}); err != nil ||
		string(got) != `{"sid":"2001:db8:1:6d::/64","behavior":""}` {
		t.Errorf("JSON of an empty SID is %s (%v)", got, err)
	}
	if err := json.Unmarshal(got, &back); err != nil || back.Behavior != BehaviorNone {
		t.Errorf("read back behaviour %v (%v)", back.Behavior, err)
	}
}

func TestParseSID(t *testing.T) {
	for text, want := range map[string]string{
		"2001:db8:1::/48": "2001:db8:1::/48",
		"2001:db8:1::1":   "2001:db8:1::1/128",
	} {
		got, err := ParseSID(text)
		if err != nil || got.String() != want {
			t.Errorf("ParseSID(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2001:db8::/129", "fe80::1%eth0", "End", "2001:db8:::/48"} {
		if got, err := ParseSID(text); err == nil || got.IsValid() {
			t.Errorf("ParseSID(%q) = %v, %v", text, got, err)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "End.DT46", "next_csid", "ipv4v6", "uplink", "2001:db8::/48", "fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseBehavior(s); err == nil {
			if again, err := ParseBehavior(b.String()); err != nil || again != b {
				t.Errorf("%q is %v, which is %v", s, b, again)
			}
		}
		if v, err := ParseFlavor(s); err == nil {
			if again, err := ParseFlavor(v.String()); err != nil || again != v {
				t.Errorf("%q is %v, which is %v", s, v, again)
			}
		}
		if v, err := ParsePDUType(s); err == nil && v == PDUTypeNone {
			t.Errorf("%q is no PDU type, without an error", s)
		}
		if v, err := ParseContainerType(s); err == nil && v > ContainerUplink {
			t.Errorf("%q is %v", s, v)
		}
		if p, err := ParseSID(s); err == nil && !p.IsValid() {
			t.Errorf("ParseSID(%q) gave an invalid prefix", s)
		}
	})
}
