package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
)

// problems are the conditions that do not hold.
func problems(a *Agent) map[string]string {
	out := map[string]string{}
	for _, c := range Conditions(a) {
		if c.Problem != "" {
			out[c.Name] = c.Problem
		}
	}
	return out
}

func TestConditions(t *testing.T) {
	if got := problems(PrepareTest(t)); len(got) != 1 || !strings.Contains(got["started"], "starting") {
		t.Errorf("before the start: %v", got)
	}
	d := start(t)
	if got := problems(d.Agent); len(got) != 0 {
		t.Errorf("after the start: %v", got)
	}
	d.core.writer.Failures[desired.Ref{Kind: desired.KindInterface, Key: "eth0"}] = errors.New("the driver refuses")
	for _, sid := range []string{"fc00:4::/64", "fc00:3::/64", "fc00:2::/64", "fc00:1::/64"} {
		d.core.writer.Failures[desired.Ref{Kind: desired.KindSID, Key: sid}] = errors.New("the table is full")
	}
	got := problems(d.Agent)
	if len(got) != 2 || got["interfaces"] != "eth0: the driver refuses" {
		t.Errorf("with failures: %v", got)
	}
	if want := "sid fc00:1::/64: the table is full; sid fc00:2::/64: the table is full; sid fc00:3::/64: the table is full; 1 more"; got["resources"] != want {
		t.Errorf("resources: %q, want %q", got["resources"], want)
	}
}

func TestConditionOfMissingInterface(t *testing.T) {
	d := prepare(t, t.TempDir(), gateway, newFake()).start(t, links("eth0"))
	if got := problems(d.Agent); len(got) != 1 || got["interfaces"] != "eth1: there is no such interface" {
		t.Errorf("without eth1: %v", got)
	}
}

// A change that does not end is noticed.
func TestAlive(t *testing.T) {
	d := start(t)
	if err := Alive(t.Context(), d.Agent); err != nil {
		t.Error(err)
	}
	d.core.mu.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Alive(ctx, d.Agent); err == nil {
		t.Error("a change holds everything up, and the daemon is alive")
	}
	d.core.mu.Unlock()
	if err := Alive(t.Context(), d.Agent); err != nil {
		t.Error(err)
	}
}
