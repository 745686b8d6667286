package lab

import (
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
