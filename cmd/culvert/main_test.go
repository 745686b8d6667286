package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// asProgram in the environment makes the test binary be culvert.
const asProgram = "CULVERT_TEST_AS_PROGRAM"

// roles are what else the test binary can be, by the variable in the environment that says so.
var roles = map[string]func(value string) error{}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	for variable, be := range roles {
		if value := os.Getenv(variable); value != "" {
			if err := be(value); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// node is a namespace with culvert in it and a link; the test holds the link's
// other end.
type node struct {
	ns, peer                 *netns.NS
	dir, config, socket, pin string
	near, far                net.Interface
	packets                  int // a packet socket at the link's other end
}

func newNode(t *testing.T) *node {
	n := &node{ns: netns.New(t), peer: netns.New(t), dir: t.TempDir()}
	peer := n.peer
	n.near, n.far = netns.Veth(t, n.ns, "eth0", peer, "eth1")
	// What XDP sends to a veth arrives only if its peer polls.
	peer.Run(t, "ethtool", "-K", "eth1", "gro", "on")
	n.ns.Addr(t, "eth0", "2001:db8:9::1/64")
	n.ns.IP(t, "neigh add 2001:db8:9::9 lladdr "+n.far.HardwareAddr.String()+" dev eth0")
	bpffs := filepath.Join(n.dir, "bpf")
	if err := os.Mkdir(bpffs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, ""); err != nil {
		t.Fatalf("mount bpffs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(bpffs, 0); err != nil {
			t.Errorf("unmount bpffs: %v", err)
		}
	})
	n.config, n.socket, n.pin = filepath.Join(n.dir, "c.yaml"), filepath.Join(n.dir, "c.sock"), filepath.Join(bpffs, "culvert")
	n.write(t, "sids:\n  - {sid: '2001:db8:1:1::/64', behavior: End}\n")
	peer.Do(t, func() { n.openFar(t) })
	return n
}

func (n *node) write(t *testing.T, rest string) {
	t.Helper()
	text := "api: {socket: " + n.socket + "}\nmetrics: {listen: 'off'}\ninterfaces: [{name: eth0, roles: [sr], host: any}]\ndomain: ['2001:db8::/32']\nencapsulation: {source: '2001:db8::1'}\n" + rest
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// openFar opens a packet socket, which stays in the namespace it was made in.
func (n *node) openFar(t *testing.T) {
	ipv6 := uint16(unix.ETH_P_IPV6>>8 | unix.ETH_P_IPV6&0xff<<8) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(ipv6))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	n.packets = fd
}

func (n *node) send(t *testing.T, frame []byte) {
	t.Helper()
	copy(frame, n.near.HardwareAddr) // frames for another are not the node's
	if err := unix.Sendto(n.packets, frame, 0, &unix.SockaddrLinklayer{Ifindex: n.far.Index}); err != nil {
		t.Fatal(err)
	}
}

// program is culvert in the namespace, with the capabilities that the systemd
// unit gives and no others.
func (n *node) program(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	const caps = "-all,+bpf,+net_admin,+perfmon"
	cmd := n.ns.Command("setpriv", append([]string{
		"--bounding-set=" + caps, "--inh-caps=" + caps, "--ambient-caps=" + caps, "--no-new-privs", self,
	}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// run is a command line that has to succeed.
func (n *node) run(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := n.program(append([]string{"--socket", n.socket}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("culvert %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// buffer may be written while it is read.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// daemon is a running `culvert run`.
type daemon struct {
	cmd  *exec.Cmd
	log  *buffer
	done chan error
}

// start returns when systemd would know that the daemon is ready, and also that it makes
// progress, if the environment says so.
func (n *node) start(t *testing.T, env ...string) *daemon {
	t.Helper()
	path := filepath.Join(n.dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer l.Close()
	d := &daemon{cmd: n.program("run", "--config", n.config, "--pin-path", n.pin, "--state", filepath.Join(n.dir, "state.db")), log: &buffer{}, done: make(chan error, 1)}
	d.cmd.Env = append(append(d.cmd.Env, "NOTIFY_SOCKET="+path), env...)
	d.cmd.Stderr = d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	t.Cleanup(func() {
		if d.cmd.Process.Kill() == nil {
			<-d.done
		}
	})
	if err := l.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	want := []string{"READY=1"}
	if len(env) > 0 {
		want = append(want, "WATCHDOG=1")
	}
	for _, state := range want {
		message := make([]byte, 256)
		size, err := l.Read(message)
		if err != nil || !strings.HasPrefix(string(message[:size]), state) {
			t.Fatalf("%q, %v, want %s\n%s", message[:size], err, state, d.log)
		}
	}
	return d
}

// end sends a signal and waits for the process.
func (d *daemon) end(t *testing.T, s os.Signal) error {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-d.done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("the daemon does not end\n%s", d.log)
		return nil
	}
}

// says waits for words in the log.
func (d *daemon) says(t *testing.T, words string) {
	t.Helper()
	for range 200 {
		if strings.Contains(d.log.String(), words) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the log does not say %q:\n%s", words, d.log)
}

// udp is a frame to a SID of ours that carries what End does not take.
func udp(destination string) []byte {
	src, dst := netip.MustParseAddr("2001:db8:9::9").As16(), netip.MustParseAddr(destination).As16()
	frame := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 9}
	frame = append(append(frame, src[:]...), dst[:]...)
	return append(frame, 0, 1, 0, 2, 0, 8, 0, 0)
}

func (n *node) sids(t *testing.T) map[string]string {
	t.Helper()
	var list []struct{ SID, Origin string }
	if err := json.Unmarshal([]byte(n.run(t, "sid", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list {
		out[s.SID] = s.Origin
	}
	return out
}

func (n *node) dropped(t *testing.T) uint64 {
	t.Helper()
	var list []struct {
		Reason  string
		Packets uint64
	}
	if err := json.Unmarshal([]byte(n.run(t, "drops", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.Reason == "upper_layer" {
			return d.Packets
		}
	}
	return 0
}

func TestDaemon(t *testing.T) {
	n := newNode(t)
	d := n.start(t)
	n.run(t, "sid", "add", "2001:db8:1:2::/64", "--behavior", "End", "--flavors", "USD")
	if got := n.sids(t); len(got) != 2 || got["2001:db8:1:1::/64"] != "file" || got["2001:db8:1:2::/64"] != "api" {
		t.Fatalf("SIDs %v", got)
	}
	n.traced(t)
	n.answered(t)

	// A second daemon ends before it touches anything of the first.
	if out, err := n.program("run", "--config", n.config, "--pin-path", n.pin, "--state", filepath.Join(n.dir, "other.db")).CombinedOutput(); err == nil || !strings.Contains(string(out), "another daemon listens") {
		t.Errorf("second daemon: %v: %s", err, out)
	}

	// Killed and started again, it goes on where it was.
	before := n.dropped(t)
	if err := d.end(t, syscall.SIGKILL); err == nil {
		t.Error("killed, and no error")
	}
	n.send(t, udp("2001:db8:1:2::")) // the data path is there without it
	d = n.start(t, "WATCHDOG_USEC=2000000")
	if got := n.sids(t); len(got) != 2 || got["2001:db8:1:2::/64"] != "api" {
		t.Errorf("SIDs after kill: %v", got)
	}
	if got := n.dropped(t); got != before+1 {
		t.Errorf("%d drops after kill, want %d", got, before+1)
	}
	n.reloaded(t, d)

	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, d.log)
	}
	if _, err := os.Stat(n.pin); err != nil {
		t.Errorf("the pins are gone: %v", err)
	}
	n.run(t, "unpin", "--pin-path", n.pin)
	left, err := os.ReadDir(filepath.Dir(n.pin))
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool {
		return strings.HasSuffix(e.Name(), ".debug") // the kernel's own, in every bpffs
	})
	if err != nil || len(left) != 0 {
		t.Errorf("after unpin: %v, %v", left, err)
	}
	if _, err := os.Stat(n.socket); !os.IsNotExist(err) {
		t.Errorf("the socket: %v", err)
	}
}

// answered waits for the ICMPv6 Parameter Problem (code 4: RFC 8986 section
// 4.1.1) about a packet that a SID does not take. The daemon may not open raw
// sockets; the sender has to be told all the same.
func (n *node) answered(t *testing.T) {
	t.Helper()
	frame := make([]byte, 2048)
	for range 100 {
		n.send(t, udp("2001:db8:1:1::"))
		for {
			size, _, err := unix.Recvfrom(n.packets, frame, 0)
			if err != nil {
				break // nothing more within the socket's timeout
			}
			// Ethernet, IPv6, then ICMPv6 type and code.
			if size >= 14+40+8 && frame[20] == 58 && frame[54] == 4 && frame[55] == 4 {
				if src, _ := netip.AddrFromSlice(frame[22:38]); src != netip.MustParseAddr("2001:db8:9::1") {
					t.Errorf("the error comes from %s", src)
				}
				return
			}
		}
	}
	t.Error("no Parameter Problem arrived")
}

// traced sends a packet while a trace runs, which shows it.
func (n *node) traced(t *testing.T) {
	t.Helper()
	trace := n.program("--socket", n.socket, "trace", "--count", "1", "--time", "20s", "-o", "json", "sid 2001:db8:1::/48 and drops")
	var stdout bytes.Buffer
	stderr := &buffer{}
	trace.Stdout, trace.Stderr = &stdout, stderr
	if err := trace.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- trace.Wait() }()
	for {
		if strings.Contains(stderr.String(), "tracing") {
			n.send(t, udp("2001:db8:1:1::"))
		}
		select {
		case err := <-done:
			var event struct {
				Interface, SID, Reason, Verdict string
				Drop                            bool
				InText                          []string `json:"in_text"`
			}
			if err == nil {
				err = json.Unmarshal(stdout.Bytes(), &event)
			}
			if err != nil || event.Interface != "eth0" || event.SID != "2001:db8:1:1::/64" || event.Reason != "upper_layer" || !event.Drop || len(event.InText) != 3 {
				t.Fatalf("trace: %v: %s%s", err, &stdout, stderr)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// reloaded sends SIGHUP with a file that is refused, and with a good one.
func (n *node) reloaded(t *testing.T, d *daemon) {
	t.Helper()
	before := n.sids(t)
	n.write(t, "sids:\n  - {sid: '2001:db8:1:1::/64', behavior: End.T}\n")
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.says(t, "line=7 field=sids[0].table")
	if got := n.sids(t); len(got) != len(before) {
		t.Errorf("SIDs after a refused file: %v", got)
	}
	n.write(t, "sids:\n  - {sid: '2001:db8:1:3::/64', behavior: End}\n")
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.says(t, "the configuration file was applied")
	if got := n.sids(t); len(got) != 2 || got["2001:db8:1:3::/64"] != "file" || got["2001:db8:1:2::/64"] != "api" {
		t.Errorf("SIDs after SIGHUP: %v", got)
	}
}
