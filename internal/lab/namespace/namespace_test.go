package namespace

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A namespace of ours can be removed after somebody's first `ip netns add`,
// which mounts the directory of all of them over itself. The test runs where
// nobody has done so yet: in a mount namespace with a new /run.
func TestNamespacesOfOthers(t *testing.T) {
	const inside = "CULVERT_LAB_NEW_RUN"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	n := Named{"ours"}
	if err := n.Create("mark"); err != nil {
		t.Fatal(err)
	}
	if _, err := Output(exec.Command("ip", "netns", "add", "theirs")); err != nil {
		t.Fatal(err)
	}
	if err := n.Delete("mark"); err != nil {
		t.Error(err)
	}
	if _, ok, err := n.Mark(); ok || err != nil {
		t.Errorf("it is still there (%v)", err)
	}
	if _, ok, err := (Named{"theirs"}).Mark(); !ok || err != nil {
		t.Errorf("the other one is gone (%v)", err)
	}
}
