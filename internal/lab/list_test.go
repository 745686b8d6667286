package lab

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/lab/instance"
)

func TestInstancesOf(t *testing.T) {
	got := instancesOf([]instance.State{
		{Lab: "gateway", Instance: "gateway", Ready: true}, {Lab: "gateway", Instance: "mine", Ready: true}, {Lab: "gateway", Instance: "half"},
	})
	if want := []string{"yes", "mine", "half (not complete)"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What a flag cannot be is refused before the lab is built or taken down, as wrong usage.
func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"run core --checks nope":  `--checks: no check of lab core matches "nope": a name is such as "`,
		"run core --checks (":     "--checks: error parsing regexp",
		"run core --n9 foo":       "--n9: lab core has nothing of it to choose from",
		"run overlay --mode foo":  `--mode: "foo": use `,
		"run free5gc --core /no":  "--core: /no is no folder",
		"up core --smf foo":       `--smf: "foo" is not an address such as 203.0.113.7`,
		"list --core /no":         "--core: /no is no folder",
		"run core --culvert /no":  "--culvert: ",
		"run core --upgrade-to /": "--upgrade-to: ",
	} {
		line := strings.Fields(args)
		if line[0] != "list" {
			line = append(line, "--as", unique("flags"))
			if !strings.Contains(args, "--culvert") {
				line = append(line, "--culvert", os.Args[0])
			}
		}
		_, said, err := execute(t, line...)
		if cmdline.Code(err) != cmdline.ExitUsage || !strings.HasPrefix(err.Error(), want) || said != "" {
			t.Errorf("%s: code %d, %v, want %s; said %q", args, cmdline.Code(err), err, want, said)
		}
	}
}

// Who mistypes a lab is told how it is spelled, and where flags belong, with the exit code of wrong usage.
func TestUnknownLab(t *testing.T) {
	for args, want := range map[string]string{
		"run instal":       "there is no lab \"instal\": did you mean \"install\"?",
		"run nosuch":       "there is no lab \"nosuch\": see `culvert lab list`",
		"graph gatway":     "there is no lab \"gatway\": did you mean \"gateway\"?",
		"exec gatway a ls": "there is no lab \"gatway\": did you mean \"gateway\"?",

		"exec gateway --as mine a ls": "--as: give flags before the lab, as in culvert lab exec --as mine gateway NODE COMMAND",
	} {
		c := Command()
		c.SetArgs(strings.Fields(args))
		c.SilenceErrors = true
		if err := c.Execute(); cmdline.Code(err) != cmdline.ExitUsage || err.Error() != want {
			t.Errorf("%s: code %d, %v, want %s", args, cmdline.Code(err), err, want)
		}
	}
}
