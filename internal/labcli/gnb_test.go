package labcli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/gnb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// What makes no sense is said as wrong usage, with the flag, before anything is made.
func TestGNBMistakes(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.json")
	if err := os.WriteFile(empty, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"ping":                "takes one address to ping",
		"ping x":              `"x" is not an address`,
		"ping ::1 --pings 0":  "--pings: give 1 to 65536",
		"ping ::1 --wait -1s": "--wait: 0 or more",
		"iperf":               "takes the address of an iperf3 server",
		"iperf x":             `"x" is not an address`,
		"attach":              "whose session?",
		"attach here":         "takes no arguments",
		"attach --n3 x":       `--n3: "x" is not an address such as`,
		"attach --upf ::1 --n3 ::2 --ue 10.0.0.1 --qfi 77":        "--qfi: 77 is not a QFI (fix: 1 to 63)",
		"attach --upf ::1 --n3 ::2 --choose-ue any":               `--choose-ue: "any" is no type of addresses`,
		"attach --upf ::1 --n3 ::2 --ue 10.0.0.1 --sst 1 --sd 12": `--sd: "12" is no slice differentiator`,
		"attach --upf x":                                                "x",
		"attach --upf ::1":                                              "--ue is missing",
		"attach --dialect x":                                            "whose session?",
		"attach --teid 1":                                               `--n3-upf: ""`,
		"attach --ue 10.0.0.1":                                          "whose session?",
		"attach --teid 1 --count 2":                                     "--count: a session",
		"attach --upf ::1 --session-from x":                             "give one of them",
		"attach --session-from nowhere":                                 "--session-from: there is no file nowhere",
		"attach --session-from " + empty:                                "no established session",
		"attach --upf ::1 --ue 10.0.0.1":                                "--n3 is missing",
		"attach --upf ::1 --ue x":                                       `--ue: "x" is not an address`,
		"attach --upf ::1 --ue 10.0.0.1,10.0.0.2":                       "are of one family",
		"attach --upf ::1 --ue 10.0.0.1 --dialect x":                    `--dialect: "x"`,
		"attach --upf ::1 --ue 10.0.0.1 --dialect free5gc":              `--n3-upf: ""`,
		"attach --upf ::1 --ue 10.0.0.1 --dialect free5gc --n3-upf 1.2": `--n3-upf: "1.2"`,
		"attach --upf ::1 --ue 10.0.0.1 --dialect free5gc --count 0":    "--count: give 1 or more",
	} {
		r := command(t.Context(), "", append([]string{"gnb"}, strings.Fields(args)...)...)
		if r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %s", args, r, want)
		}
	}
}

// attach makes a session and a UE, says so, and removes both on an interrupt.
func TestGNBAttach(t *testing.T) {
	name := fmt.Sprintf("t%d-", os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r := command(ctx, "", "gnb", "attach", "--upf", nullUPF(t), "--local", "127.0.0.1:0", "--n3", "127.0.0.77", "--ue", "10.45.0.2,2001:db8:45::/56",
		"--count", "2", "--name", name, "--mbr-uplink", "1000", "--sst", "1", "--sd", "000001", "-o", "json")
	var v attached
	if err := json.Unmarshal([]byte(r.stdout), &v); r.code != cmdline.ExitOK || err != nil || len(v.Sessions) != 2 {
		t.Fatalf("%v: %+v", err, r)
	}
	s := v.Sessions[1]
	want := gnb.Session{
		UE4: netip.MustParseAddr("10.45.0.3"), UE6: netip.MustParseAddr("2001:db8:45:1::1"), QFI: 9, Namespace: name + "2", SEID: 2, UPSEID: 2,
		UPF: gnb.FTEID{Address: netip.MustParseAddr("127.0.0.5"), TEID: 2}, GNB: gnb.FTEID{Address: netip.MustParseAddr("127.0.0.77"), TEID: v.Sessions[0].GNB.TEID + 1},
	}
	if s != want || v.Event != "attached" || v.Association.NodeID != "127.0.0.5" {
		t.Errorf("%+v, want %+v", s, want)
	}
	for i := range 2 {
		if _, ok, err := (namespace.Named{Name: fmt.Sprint(name, i+1)}).Mark(); ok || err != nil {
			t.Errorf("UE %d is still there (%v)", i+1, err)
		}
	}
}

// Nobody answers a ping of this UPF, which only speaks N4: the exit code says so, and
// the output where the packets went.
func TestGNBPingNobody(t *testing.T) {
	args := []string{"gnb", "ping", "198.51.100.1", "--upf", nullUPF(t), "--local", "127.0.0.1:0", "--n3", "127.0.0.77", "--ue", "10.45.0.2",
		"--name", fmt.Sprintf("t%d-", os.Getpid()), "--pings", "2", "--interval", "10ms", "--wait", "100ms"}
	r := command(t.Context(), "", args...)
	if r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stdout, "2 sent, 0 received, 100 % lost\n- ") || !strings.Contains(r.stderr, "1 of 1 UEs got no answer from 198.51.100.1") {
		t.Errorf("%+v", r)
	}
	r = command(t.Context(), "", append(args, "-o", "json")...)
	var v gnb.PingResult
	if err := json.Unmarshal([]byte(r.stdout), &v); r.code != cmdline.ExitCheckFailed || err != nil || v.Sent != 2 || v.Received != 0 || len(v.Findings) == 0 {
		t.Errorf("%v: %+v", err, r)
	}
	args[2] = "2001:db8::1"
	if r = command(t.Context(), "", args...); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, "no address of the family of 2001:db8::1") {
		t.Errorf("%+v", r)
	}
}

func TestChanges(t *testing.T) {
	sessions := []gnb.Session{{Namespace: "ue1", UPF: gnb.FTEID{Address: netip.MustParseAddr("10.1.0.1"), TEID: 0x11}}, {Namespace: "ue2"}}
	before := &gtpulink.Stats{UnknownTEID: 1, Links: map[string]gtpulink.LinkStats{"ue1": {EndMarkers: 1}, "ue2": {}}}
	if list := changes(sessions, before, before); list != nil {
		t.Errorf("of nothing: %+v", list)
	}
	now := &gtpulink.Stats{UnknownTEID: 3, Links: map[string]gtpulink.LinkStats{"ue1": {EndMarkers: 2, Refused: 4}, "ue2": {EndMarkers: 1}}}
	var got []string
	for _, s := range changes(sessions, before, now) {
		got = append(got, fmt.Sprintf("%s %s: %s", s.Event, s.Namespace, s.text))
	}
	want := []string{
		"end_marker ue1: 1 End Markers for ue1",
		"error_indication ue1: 4 Error Indications: the UPF does not know 10.1.0.1 TEID 0x11 of ue1: its session is gone",
		"end_marker ue2: 1 End Markers for ue2",
		"unknown_teid : 2 messages for TEIDs of no UE here, refused by Error Indications",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", strings.Join(got, "\n"))
	}
}
