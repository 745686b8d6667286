package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

// The labs run this program as their GTP-U endpoint, and as their SMFs: here,
// that is the test.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "smf" {
		if err := runSMF(context.Background(), os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		cmd := Command()
		cmd.SetArgs(os.Args[2:])
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// unique is an instance name that no other test run has.
func unique(suffix string) string { return fmt.Sprintf("t%d-%s", os.Getpid(), suffix) }

// execute runs a lab command and returns what it printed.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// wantError fails unless err says all of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error: want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// fixture is a topology of testdata.
func fixture(name string) string {
	text, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	small   = fixture("small")
	withSMF = fixture("smf")
)

func parse(t *testing.T, text string) *topology.Topology {
	t.Helper()
	topology, err := topology.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return topology
}
