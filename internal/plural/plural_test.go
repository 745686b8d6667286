package plural

import "testing"

func TestOf(t *testing.T) {
	for n, want := range map[int]string{0: "0 sessions", 1: "1 session", 2: "2 sessions", 1_000_000: "1000000 sessions"} {
		if got := Of(n, "session"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
