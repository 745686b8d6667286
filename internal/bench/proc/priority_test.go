package proc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestGoAhead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("going before others is root's")
	}
	child := func() string {
		t.Helper()
		out, err := exec.Command("nice").Output() // of the thread that starts it
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	usual := child()
	back, err := GoAhead()
	if err != nil {
		t.Fatal(err)
	}
	if got := child(); got != "-10" {
		t.Errorf("what is started goes at nice %s, want -10", got)
	}
	if err := back(); err != nil {
		t.Fatal(err)
	}
	if got := child(); got != usual {
		t.Errorf("afterwards at nice %s, want %s as before", got, usual)
	}
}
