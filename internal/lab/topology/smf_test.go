package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	lookup := func(text string, ipv6 bool) (netip.Addr, uint32, error) {
		if text == "none" {
			return netip.Addr{}, 0, errors.New("there is none")
		}
		if ipv6 {
			return netip.MustParseAddr("2001:db8::1"), 7, nil
		}
		return netip.MustParseAddr("192.0.2.1"), 7, nil
	}
	step := map[string]any{"do": "modify", "change": map[string]any{
		"core": map[string]any{"fteid": "x/y/core", "interface": "n9"}, "other": map[string]any{"fteid": "x/y/core", "ipv6": true}}}
	before := fmt.Sprint(step)
	got, err := Resolve(step, lookup)
	want := map[string]any{"do": "modify", "change": map[string]any{
		"core": map[string]any{"address": "192.0.2.1", "teid": uint32(7), "interface": "n9"}, "other": map[string]any{"address": "2001:db8::1", "teid": uint32(7)}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if after := fmt.Sprint(step); after != before {
		t.Errorf("the step itself became %s", after)
	}
	_, err = Resolve(map[string]any{"access": map[string]any{"fteid": "none"}}, lookup)
	wantError(t, err, "there is none")
}

func TestParseSMF(t *testing.T) {
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"no SMFs", "kind: smf", "kind: host", []string{"nodes[2]", "smfs"}},
		{"scenario", "role: intermediate", "role: middle", []string{"nodes[2]", "smfs[0]", "role", "middle"}},
		{"unknown field", "urr: {volume_threshold", "urr: {volume_treshold", []string{"smfs[0]", "volume_treshold"}},
		{"no UPF", "upf: 10.4.0.1", "timeout: 1s", []string{"smfs[0]", "UPF"}},
		{"SMF twice", "name: two", "name: one", []string{"smfs[1]", "twice"}},
		{"unknown SMF", "smf: one, step: {do: associate}", "smf: three, step: {do: associate}", []string{"checks[0]", "event", "three"}},
		{"unknown step", "{do: associate}", "{do: asociate}", []string{"checks[0]", "asociate", "associate"}},
		{"unknown field of a step", "now: true", "nov: true", []string{"checks[0]", "nov"}},
		{"unknown sessions", "core: {fteid: two/ue/access}", "core: {fteid: two/eu/access}", []string{"checks[0]", "two", "eu"}},
		{"no side", "fteid: one/ue/access", "fteid: one/ue/left", []string{"checks[0]", "fteid", "one/ue/left", "access"}},
		{"tunnel of nobody", "device: g, fteid", "device: h, fteid", []string{"checks[0]", "gnb", "h"}},
		{"wait", "for: 1ms", "for: 0s", []string{"checks[1]", "wait", "for"}},
		{"report", "kind: restarted", "kind: restated", []string{"checks[1]", "reports", "restated", "restarted"}},
		{"report of nobody", "reports: [{smf: one, kind: restarted", "reports: [{smf: six, kind: restarted", []string{"checks[1]", "six"}},
		{"usage of nobody", "usage: {smf: one, sessions: ue}", "usage: {smf: one, sessions: eu}", []string{"checks[6]", "usage", "eu"}},
		{"usage of the other side", "kind: udp, from: gnb, at: upf, to: 10.0.0.2, expect: {usage", "kind: udp, from: upf, at: gnb, to: 10.0.0.1, expect: {usage", []string{"checks[6]", "usage", "GTP-U"}},
		{"handover", "from: g, to: g", "from: g, to: h", []string{"checks[7]", "handover", "h"}},
		{"rate", "kbit_s: 8000, tolerance: 10", "kbit_s: 8000", []string{"checks[8]", "rate", "tolerance"}},
		{"a CPU that is busy for long", "{do: wait, for: 1ms}", "{do: busy, for: 1h}", []string{"checks[1]", "busy", "for: 1h"}},
		{"overlay of no apply", "{do: wait, for: 1ms}", "{do: wait, for: 1ms, overlay: x}", []string{"checks[1]", "overlay", "wait"}},
		{"step of no SMF's", "{do: wait, for: 1ms}", "{do: wait, for: 1ms, smf: one}", []string{"checks[1]", "smf", "wait"}},
		{"apply at no daemon", "{do: wait, for: 1ms}", "{do: apply, node: upf}", []string{"checks[1]", "upf", "culvert"}},
		{"no transports", "{do: wait, for: 1ms}", "{do: n9}", []string{"checks[1]", "n9"}},
		{"setup", "checks:\n", "setup: [{do: tunnel, node: gnb}]\nchecks:\n", []string{"setup[0]", "fteid"}},
	}
	parse(t, withSMF)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(withSMF, tt.old, tt.new, 1)
			if text == withSMF {
				t.Fatalf("%q is not there", tt.old)
			}
			_, err := Parse([]byte(text))
			wantError(t, err, tt.want...)
		})
	}
}
