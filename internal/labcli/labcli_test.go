package labcli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
)

var update = flag.Bool("update", false, "write the golden files from what is printed now")

// result is what a command line did.
type result struct {
	code           int
	stdout, stderr string
}

// command runs a command line as main does.
func command(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	root := New("v1.2.3")
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	code := cmdline.Execute(ctx, root, args, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// Help is what people read: it changes on purpose only.
func TestHelp(t *testing.T) {
	var all strings.Builder
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		r := command(t.Context(), "", args...)
		if r.code != cmdline.ExitOK {
			t.Errorf("%v: exit %d: %s", args, r.code, r.stderr)
		}
		all.WriteString("$ culvert " + strings.Join(args, " ") + "\n" + r.stdout + "\n")
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	for _, name := range []string{"smf", "gnb"} {
		c, _, err := New("v1.2.3").Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		walk(c)
	}
	const path = "testdata/help.golden"
	if *update {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := all.String(); got != string(want) {
		t.Errorf("%s (go test -update writes it)\ngot:\n%s", path, got)
	}
}
