package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/printer"
)

// report is one of a cluster in which IPv6 to node-2 fails.
func report() *connectivity.Report {
	row := func(from, to string, family connectivity.Family, received int, result connectivity.Result, detail string) connectivity.Row {
		return connectivity.Row{Check: "ping", From: from, To: to, Family: family, Sent: 20, Received: received, Lost: 20 - received, Result: result, Detail: detail}
	}
	return &connectivity.Report{
		Nodes: 2, Seconds: 41.4, Hints: []string{"all that failed is IPv6"},
		Checks: []connectivity.Row{
			row("node-1", "node-2", connectivity.IPv4, 20, connectivity.Pass, ""), row("node-2", "node-1", connectivity.IPv4, 20, connectivity.Pass, ""),
			row("node-1", "node-2", connectivity.IPv6, 3, connectivity.Fail, "17 of 20 lost"), row("node-2", "node-1", connectivity.IPv6, 20, connectivity.Pass, ""),
			{Check: "policy", Result: connectivity.LeftOut, Detail: "there is no second node"},
		},
	}
}

func TestConnectivityTable(t *testing.T) {
	for _, tt := range []struct {
		verbose bool
		want    string
	}{
		{false, `CHECK   FROM     TO       FAMILY  SENT  RECEIVED  LOST  RESULT    DETAIL
ping    2 nodes  2 nodes  IPv4    40    40        0     pass      -
ping    node-2   node-1   IPv6    20    20        0     pass      -
ping    node-1   node-2   IPv6    20    3         17    FAIL      17 of 20 lost
policy  -        -        -       0     0         0     left out  there is no second node

2 nodes, 5 checks in 41 s: 3 passed, 1 failed, 1 left out
all that failed is IPv6
`},
		{true, `CHECK   FROM    TO      FAMILY  SENT  RECEIVED  LOST  RESULT    DETAIL
ping    node-1  node-2  IPv4    20    20        0     pass      -
ping    node-2  node-1  IPv4    20    20        0     pass      -
ping    node-1  node-2  IPv6    20    3         17    FAIL      17 of 20 lost
ping    node-2  node-1  IPv6    20    20        0     pass      -
policy  -       -       -       0     0         0     left out  there is no second node

2 nodes, 5 checks in 41 s: 3 passed, 1 failed, 1 left out
all that failed is IPv6
`},
	} {
		var out bytes.Buffer
		c := &cobra.Command{}
		c.SetOut(&out)
		a := &app{format: printer.Table}
		if err := a.printConnectivity(c, report(), tt.verbose); err != nil || out.String() != tt.want {
			t.Errorf("verbose %v: %v\n%s", tt.verbose, err, out.String())
		}
	}
}

func TestConnectivityVerdict(t *testing.T) {
	err := verdictOf(report(), nil)
	if cmdline.Code(err) != cmdline.ExitCheckFailed || err.Error() != "1 of 5 checks failed" {
		t.Errorf("%v", err)
	}
	if err := verdictOf(&connectivity.Report{Pass: true}, nil); err != nil {
		t.Error(err)
	}
}

func TestConnectivityRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"connectivity test", cmdline.ExitError, "no kubeconfig is there: give --kubeconfig, or set KUBECONFIG"},
		{"connectivity clean --kubeconfig missing.conf", cmdline.ExitError, "missing.conf"},
		{"connectivity test --outside here", cmdline.ExitUsage, `"here" is not an IP address`},
		{"path a/b c/d --kube", cmdline.ExitError, "no kubeconfig is there"},
		{"connectivity probe", cmdline.ExitError, "what to send"},
	} {
		r := command(t.Context(), "", strings.Fields(tt.args)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: exit %d: %s", tt.args, r.code, r.stderr)
		}
	}
}

// TestConnectivityServes asks a pod's server as the kubelet does.
func TestConnectivityServes(t *testing.T) {
	if r := command(t.Context(), "", "connectivity", "listening", "--port", "1"); r.code != cmdline.ExitError {
		t.Errorf("nobody serves: exit %d: %s", r.code, r.stderr)
	}
	r := command(t.Context(), `[{"kind":"TCP","to":"127.0.0.1","port":1,"count":1,"bytes":1024}]`+"\n", "connectivity", "probe")
	if r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "connection refused") {
		t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
}
