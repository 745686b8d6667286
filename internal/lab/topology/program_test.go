package topology

import (
	"strings"
	"testing"
)

// moved is the last check of core without its name.
const moved = "kind: procedure, events: [{do: tunnel, node: gnb, device: g, upf: upf, ue: 10.60.100.1}]"

// chargedOf is what a check of kind charged has to say.
const chargedOf = "{upf: upf, node: x, capture: x.pcap, end: [{do: end, program: first}]}"

// chargedBy is a check of kind charged without its name.
func chargedBy(fields, charged string) string {
	return "kind: charged, from: gnb, device: g, at: upf, " + fields + ", expect: {charged: " + charged + "}"
}

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
		{"two cores", "free5gc: 127.0.0.1:5000", "free5gc: 127.0.0.1:5000\n      open5gs: 127.0.0.1:27017", []string{"subscribers", "free5gc, open5gs"}},
		{"charged by Open5GS", "free5gc: 127.0.0.1:5000", "open5gs: 127.0.0.1:27017", []string{"charging", "Open5GS"}},
		{"IPv6 of free5GC", "ipv4: 10.60.100.1", "type: IPv4v6", []string{"type", "free5GC"}},
		{"type", "ipv4: 10.60.100.1", "type: ipv4", []string{"type", "IPv4v6"}},
		{"address of another family", "ipv4: 10.60.100.1", "ipv4: '::1'", []string{"ipv4", "::1"}},
		{"address of another type", "ipv4: 10.60.100.1", "ipv6: '::1'", []string{"ipv6", "::1"}},
		{"rate", "uplink: 8 Mbps", "uplink: 8 mbps", []string{"uplink", "8 mbps"}},
		{"once, and ready", "name: second, later: true,", "name: second, later: true, once: true,", []string{"programs[1]", "once", "second"}},
		{"PLMN", `plmn: "20893"`, `plmn: "00101"`, []string{"list[0]", "imsi", "00101"}},
		{"IMSI", `imsi: "208930000000001"`, `imsi: "1"`, []string{"imsi", "15 digits"}},
		{"SD", `sd: "010203"`, `sd: "1"`, []string{"sd", "6 hexadecimal"}},
		{"charging", "charging: Online", "charging: online", []string{"charging", "Offline or Online"}},
		{"no AMBR", "uplink: 20 Mbps, ", "", []string{"uplink, downlink"}},
		{"unknown program", "{do: end, program: second}]}\n  - {name: twice", "{do: end, program: third}]}\n  - {name: twice", []string{"checks[2]", "third"}},
		{"says nothing", "says: again, times: 2, for: 1ms", "for: 1ms", []string{"checks[1]", "says"}},
		{"tries", "name: second, later: true,", "name: second, later: true, tries: -1,", []string{"programs[1]", "tries", "second"}},
		{"times", "says: ready, times: 2", "times: 2", []string{"programs[0]", "times", "first"}},
		{"both say", "says, program: first", "says, node: upf, program: first", []string{"checks[1]", "program, node"}},
		{"killed by nobody", "{do: end, program: second}]}\n  - {name: twice", "{do: kill, program: third}]}\n  - {name: twice", []string{"checks[2]", "third"}},
		{"solicited for nothing", moved, "kind: advertised, from: gnb, device: g", []string{"checks[12]", "prefix"}},
		{"solicited by nothing", moved, "kind: advertised, from: gnb, device: x, prefix: '::/64'", []string{"checks[12]", "x"}},
		{"charged without a word", moved, chargedBy("both: true", ""), []string{"checks[12]", "charged", "both"}},
		{"charged otherwise", moved, strings.Replace(chargedBy("both: true", chargedOf), "kind: charged", "kind: udp", 1), []string{"checks[12]", "charged", "both"}},
		{"charged one way", moved, chargedBy("count: 1", chargedOf), []string{"checks[12]", "charged", "both"}},
		{"charged by no UPF", moved, chargedBy("both: true", strings.Replace(chargedOf, "upf: upf", "upf: x", 1)), []string{"checks[12]", "expect: charged", "culvert"}},
		{"charged by no capture", moved, chargedBy("both: true", strings.Replace(chargedOf, "x.pcap", "../x", 1)), []string{"checks[12]", "expect: charged", "capture"}},
		{"charged nobody", moved, chargedBy("both: true", strings.Replace(chargedOf, "{", "{cdr: imsi-1, ", 1)), []string{"checks[12]", "cdr", "imsi-1"}},
		{"charged for ever", moved, chargedBy("both: true", "{upf: upf, node: x, capture: x.pcap}"), []string{"checks[12]", "charged", "end: missing"}},
		{"charged and ended by nobody", moved, chargedBy("both: true", strings.Replace(chargedOf, "program: first", "program: nobody", 1)), []string{"checks[12]", "charged", "nobody"}},
		{"charged by no device", moved, strings.Replace(chargedBy("both: true", chargedOf), "device: g", "device: x", 1), []string{"checks[12]", "GTP-U link", "x"}},
		{"no events", "[{do: program, program: first}]", "[]", []string{"checks[3]", "events"}},
		{"no filter", "filter: pfcp, ", "", []string{"checks[8]", "filter"}},
		{"count and nothing", "count: 1}", "count: 1, expect: {nothing: true}}", []string{"checks[8]", "count"}},
		{"tunnel of no UE", ", ue: 10.60.100.1}]", "}]", []string{"checks[12]", "tunnel", "ue"}},
		{"UE of no tunnel", "{do: program, program: first}]", "{do: program, program: first, ue: 10.0.0.1}]", []string{"checks[3]", "ue", "program"}},
		{"SID of no tunnel", "{do: program, program: first}]", "{do: program, program: first, sid: '2001:db8::1'}]", []string{"checks[3]", "sid", "program"}},
		{"tunnel of no UPF", "upf: upf, ue", "upf: x, ue", []string{"checks[12]", "culvert"}},
		{"judge that says nothing", "says: [is fine]", "says: []", []string{"checks[9]", "says"}},
		{"judge by its path", "program: [sh, -c, \"echo oh", "program: [bin/sh, -c, \"echo oh", []string{"checks[11]", "name of a program"}},
	}
	parse(t, strings.Replace(core, moved, chargedBy("both: true", chargedOf), 1))
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
