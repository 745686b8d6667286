package bgp

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

// reflectorVar has the test's program be a route reflector, in a process of its
// own: "first", or "again" after a restart.
const reflectorVar = "CULVERT_TEST_REFLECTOR"

func TestMain(m *testing.M) {
	if life := os.Getenv(reflectorVar); life != "" {
		if err := beReflector(life == "again"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The tests mostly wait for hold, restart and connect timers: more at once than there are CPUs.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const restart = 30 * time.Second

// beReflector is node 9, the route reflector of 1 and 2, until its input ends.
func beReflector(again bool) error {
	c := Config{
		ASN: 65001, RouterID: addr("10.0.0.9"), Listen: []netip.Addr{addr("127.94.11.9")}, Port: testPort, Restart: restart, Restarting: again,
		Peers:   []Peer{{Address: addr("127.94.11.1"), ASN: 65001, Passive: true, Client: true}, {Address: addr("127.94.11.2"), ASN: 65001, Passive: true, Client: true}},
		Cluster: &Cluster{Handler: newRoutes()},
	}
	if again {
		c.Cluster.Headends = []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2")}
	}
	s, err := Start(context.Background(), c, nil)
	if err != nil {
		return err
	}
	if err := s.SetNode(nodeOf("9")); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Leave()
	return err
}

// reflector starts that process; end ends it.
func reflector(t *testing.T, life string) (end func()) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), reflectorVar+"="+life)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the reflector: %v", err)
		}
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the reflector says %q: %v", line, err)
	}
	return end
}

// While a node or a route reflector restarts, the others keep what it advertised: of
// prefixes, and of the path there.
func TestGracefulRestartKeepsReach(t *testing.T) {
	t.Parallel()
	client := func(name string, again bool) *member {
		c := Config{Restart: restart, Restarting: again, Peers: []Peer{{Address: addr("127.94.11.9"), RouteReflector: true}}, Cluster: &Cluster{}}
		if again {
			c.Cluster.Headends = []netip.Addr{addr("10.0.0.1")}
		}
		return join(t, "11", name, c)
	}
	end, a, b := reflector(t, "first"), client("1", false), client("2", false)
	there := b.node
	known := func() bool { return a.routes.by("10.244.2.0/24", "2001:db8::2") && a.pathsTo(there) }
	eventually(t, "a knows b", known)

	for _, tt := range []struct {
		what   string
		do, up func()
	}{
		{"b restarts", func() { b.Stop() }, func() { b = client("2", true) }},
		{"the reflector restarts", end, func() { reflector(t, "again") }},
	} {
		lost := watch(t, known)
		tt.do()
		time.Sleep(time.Second)
		tt.up()
		established(t, a.Speaker)
		established(t, b.Speaker)
		time.Sleep(deferral + 2*time.Second)
		if n := lost(); n > 0 {
			t.Errorf("%s: a did not know b %d times; it received %q, and of the end of %v", tt.what, n, a.observed.events, a.routes.gone)
		}
	}
}
