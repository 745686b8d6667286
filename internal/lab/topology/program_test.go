package topology

import (
	"strings"
	"testing"
)

func TestParsePrograms(t *testing.T) {
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"no command", "commands: [[culvert-test-say, again]]", "commands: []", []string{"nodes[0]", "programs[1]", "commands", "second"}},
		{"path", "[[culvert-test-say, again]]", "[[bin/say, again]]", []string{"programs[1]", "name of a program"}},
		{"empty", "[[culvert-test-say, again]]", "[[]]", []string{"programs[1]", "name of a program"}},
		{"twice", "name: second, later", "name: first, later", []string{"programs[1]", "first", "twice"}},
		{"file", "files: {x.yaml", "files: {../x.yaml", []string{"files", "slash"}},
		{"key", "key: 8baf", "key: zbaf", []string{"subscribers", "key", "32"}},
		{"nowhere", "free5gc: 127.0.0.1:5000", "free5gc: ''", []string{"subscribers", "free5gc", "127.0.0.1:5000"}},
		{"PLMN", `plmn: "20893"`, `plmn: "00101"`, []string{"list[0]", "imsi", "00101"}},
		{"IMSI", `imsi: "208930000000001"`, `imsi: "1"`, []string{"imsi", "15 digits"}},
		{"SD", `sd: "010203"`, `sd: "1"`, []string{"sd", "6 hexadecimal"}},
		{"charging", "charging: Online", "charging: online", []string{"charging", "Offline or Online"}},
		{"no AMBR", "uplink: 20 Mbps, ", "", []string{"dnn, uplink"}},
		{"unknown program", "{do: end, program: second}]}\n  - {name: twice", "{do: end, program: third}]}\n  - {name: twice", []string{"checks[2]", "third"}},
		{"says nothing", "says: again, times: 2, for: 1ms", "for: 1ms", []string{"checks[1]", "says"}},
		{"no events", "[{do: program, program: first}]", "[]", []string{"checks[3]", "events"}},
		{"no filter", "filter: pfcp, ", "", []string{"checks[4]", "filter"}},
		{"count and nothing", "count: 1}", "count: 1, expect: {nothing: true}}", []string{"checks[4]", "count"}},
		{"tunnel of no UE", ", ue: 10.60.100.1}]", "}]", []string{"checks[5]", "tunnel", "ue"}},
		{"UE of no tunnel", "{do: program, program: first}]", "{do: program, program: first, ue: 10.0.0.1}]", []string{"checks[3]", "ue", "program"}},
		{"tunnel of no UPF", "upf: upf, ue", "upf: x, ue", []string{"checks[5]", "culvert"}},
	}
	l := parse(t, core)
	if p := ProgramOf(l, "second"); !OfOthers(l) || p == nil || p.Node.Name != "x" || ProgramOf(l, "third") != nil {
		t.Errorf("%+v", p)
	}
	if OfOthers(parse(t, small)) {
		t.Error("a lab without programs of others has some")
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(core, tt.old, tt.new, 1)
			if text == core {
				t.Fatalf("%q is not there", tt.old)
			}
			_, err := Parse([]byte(text))
			wantError(t, err, tt.want...)
		})
	}
}
