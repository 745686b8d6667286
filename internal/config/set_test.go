package config

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	c := &Config{}
	for _, f := range [][2]string{
		{"sids[0]", ""},
		{"sids[0].sid", "2001:db8:1::1"}, {"sids[0].behavior", "end_x"}, {"sids[0].flavors", "psp, USD"}, {"sids[0].next_hop", "fe80::1"},
		{"sids[0].interface", "7"}, {"sids[0].allow_upper_layer", "true"}, {"sids[0].table", "0x64"},
		{"policies[0].segment_lists[1].segments", "2001:db8::1,2001:db8::2"}, {"policies[0].segment_lists[1].weight", "3"},
		{"steering[0].h_m_gtp4_d.sid_prefix", "2001:db8::/48"}, {"steering[0].vlans", "5,6"},
	} {
		if err := Set(c, f[0], f[1]); err != nil {
			t.Errorf("%s: %v", f[0], err)
		}
	}
	want, err := Decode([]byte(`{sids: [{sid: '2001:db8:1::1', behavior: End.X, flavors: [PSP, USD], next_hop: 'fe80::1', interface: '7', allow_upper_layer: true, table: 100}],
policies: [{segment_lists: [{}, {segments: ['2001:db8::1', '2001:db8::2'], weight: 3}]}],
steering: [{h_m_gtp4_d: {sid_prefix: '2001:db8::/48'}, vlans: [5, 6]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(c)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func TestSetRefuses(t *testing.T) {
	for _, tt := range []struct{ path, text, want string }{
		{"sids[0].table", "main", `sids[0].table: must be a number, is the text "main"`},
		{"slices[0].rate_limit.uplink", "100M", "(fix: write 100000, in kbit/s)"},
		{"sids[0].table", "-1", "out of range"},
		{"sids[0].sid", "x", `sids[0].sid: "x" is not a prefix`},
		{"sids[0].tabel", "1", `did you mean "table"?`},
		{"sids[x].table", "1", "an index that is not a number"},
		{"steering[0].vlans", "5,a", `steering[0].vlans[1]: must be a number, is the text "a"`},
		{"sids[0].allow_upper_layer", "maybe", "must be true or false"},
	} {
		if err := Set(&Config{}, tt.path, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %q: %v, want %s", tt.path, tt.text, err, tt.want)
		}
	}
}
