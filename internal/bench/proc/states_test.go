package proc

import "testing"

// States only grow, and their shares add up.
func TestStates(t *testing.T) {
	cpus, err := Allowed()
	if err != nil {
		t.Fatal(err)
	}
	first, err := StatesOf(cpus[0])
	if err != nil || first.Idle+first.System+first.User <= 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := StatesOf(1 << 20); err == nil {
		t.Error("a CPU that is not there has states")
	}
	then := first
	then.User, then.System, then.Steal, then.Idle = first.User+1, first.System+2, first.Steal+1, first.Idle+4
	shares := then.Since(first).Shares()
	for state, want := range map[string]float64{"user": 12.5, "nice": 0, "system": 25, "iowait": 0, "steal": 12.5, "total": 50} {
		if got := shares[state]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s: %v %%, want %v", state, got, want)
		}
	}
}
