package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newPort is a node whose peer has an address.
func newPort(t *testing.T) *node {
	n := newNode(t)
	n.peer.Addr(t, "eth1", "2001:db8:9::9/64")
	return n
}

// kernelAnswers says whether the node's kernel gets a SYN for a port, where nobody listens, within
// a time.
func (n *node) kernelAnswers(t *testing.T, port string, within time.Duration) (gets bool) {
	t.Helper()
	n.peer.Do(t, func() {
		c, err := net.DialTimeout("tcp", net.JoinHostPort("2001:db8:9::1", port), within)
		switch {
		case err == nil:
			c.Close()
			t.Errorf("somebody listens on port %s", port)
		case errors.Is(err, syscall.ECONNREFUSED):
			gets = true
		default:
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("port %s: %v", port, err)
			}
		}
	})
	return gets
}

// isClosed fails unless the kernel gets SSH, which host lists, and gets HTTP if the node is open.
func (n *node) isClosed(t *testing.T, when string, want bool) {
	t.Helper()
	const patient, brief = 20 * time.Second, 300 * time.Millisecond
	if !n.kernelAnswers(t, "22", patient) {
		t.Errorf("%s: no SSH", when)
	}
	within := patient
	if want {
		within = brief
	}
	if got := !n.kernelAnswers(t, "80", within); got != want {
		t.Errorf("%s: closed: %v, want %v", when, got, want)
	}
}

func (n *node) writePort(t *testing.T, more string) {
	t.Helper()
	text := "api: {socket: " + n.socket + "}\nmetrics: {listen: 'off'}\ninterfaces: [{name: eth0, roles: [n6], host: [ssh]" + more + "}]\n"
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// closedLinks are the links of closed interfaces.
func (n *node) closedLinks() (names []string) {
	entries, _ := os.ReadDir(filepath.Join(n.pin+"_closed", "links")) // none: it is not there yet
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// killedWhileLoading is a daemon that is killed after it closed the interface, and before the
// data path is there.
func (n *node) killedWhileLoading(t *testing.T) {
	t.Helper()
	cmd := n.program("run", "--config", n.config, "--pin-path", n.pin, "--state", filepath.Join(n.dir, "state.db"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); len(n.closedLinks()) == 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if _, err := os.Stat(n.pin); !os.IsNotExist(err) {
		t.Fatalf("the data path was there before the daemon was killed: %v", err)
	}
}

// TestClosedUntilDataPath: from when a daemon starts the kernel gets what host lists and no
// more, whether the daemon is killed before the data path is there or after that, until unpin.
func TestClosedUntilDataPath(t *testing.T) {
	n := newPort(t)
	n.writePort(t, "")
	n.isClosed(t, "before the first start", false)
	n.killedWhileLoading(t)
	n.isClosed(t, "killed while loading", true)

	d := n.start(t)
	n.isClosed(t, "ready", true)
	if got := n.closedLinks(); len(got) != 0 {
		t.Errorf("the data path has not taken over %v", got)
	}
	if out := n.run(t, "interface", "-o", "json"); !strings.Contains(out, `"attached": "native"`) || strings.Contains(out, `"closed"`) {
		t.Errorf("interface: %s", out)
	}
	if err := d.end(t, syscall.SIGKILL); err == nil {
		t.Error("killed, and no error")
	}
	n.isClosed(t, "killed when ready", true)
	d = n.start(t)
	if got := n.closedLinks(); len(got) != 0 {
		t.Errorf("closed under the data path: %v", got)
	}
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	n.run(t, "unpin", "--pin-path", n.pin)
	n.isClosed(t, "after unpin", false)
}

// TestFailClosed has a data path that cannot be loaded: somebody else's directory is at its
// pin path.
func TestFailClosed(t *testing.T) {
	n := newPort(t)
	if err := os.MkdirAll(filepath.Join(n.pin, "foreign"), 0o700); err != nil {
		t.Fatal(err)
	}
	fails := func(when string) {
		t.Helper()
		out, err := n.program("run", "--config", n.config, "--pin-path", n.pin, "--state", filepath.Join(n.dir, "state.db")).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "not culvert's pins") {
			t.Errorf("%s: %v: %s", when, err, out)
		}
	}
	n.writePort(t, "")
	fails("closed")
	n.isClosed(t, "the data path cannot be loaded", true)
	n.writePort(t, ", fail_open: true")
	fails("fail_open")
	n.isClosed(t, "fail_open", false)
}
