package lab

import (
	"slices"
	"testing"

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
