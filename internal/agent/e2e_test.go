package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/testutil/bpffs"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// The daemon of these tests is the test binary itself, started again in a
// network namespace of its own.
const (
	daemonEnv = "CULVERT_TEST_DAEMON" // the directory with its files
	pinEnv    = "CULVERT_TEST_PINS"
	podsEnv   = "CULVERT_TEST_PODS"   // to add, as JSON; SIGHUP reloads the file
	cyclesEnv = "CULVERT_TEST_CYCLES" // how often to apply and revert, then end
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(daemonEnv); dir != "" {
		if err := daemonMain(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// daemonMain says "ready" and the data path's build when it is, and ends with
// SIGTERM.
func daemonMain(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var a *Agent
	a, err := New(Options{
		ConfigPath: filepath.Join(dir, "culvert.yaml"), StatePath: filepath.Join(dir, "state.db"), PinPath: os.Getenv(pinEnv),
		Version: "test", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnReady: func() { fmt.Println("ready", a.core.dp.Build()) },
	})
	if err != nil {
		return err
	}
	if n := os.Getenv(cyclesEnv); n != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			defer cancel()
			<-a.Ready()
			if err := cycles(ctx, a, n); err != nil {
				fmt.Println("failed", err)
			}
		}()
	}
	if pods := os.Getenv(podsEnv); pods != "" {
		go func() {
			<-a.Ready()
			if err := addPods(a, pods); err != nil {
				fmt.Println("failed", err)
			}
			reloads(ctx, a)
		}()
	}
	return a.Run(ctx)
}

// site is a node between two hosts: what is for its SID, or for one of its
// TEIDs, is decapsulated and forwarded from the left one to the right one.
type site struct {
	left, node, right *netns.NS
	in, out           net.Interface // the hosts' ends
	nodeIn            net.Interface
	dir, pins         string
	wrap              []string // what daemons are started by, setpriv for example
}

const siteConfig = `
interfaces: [{name: d0, roles: [n3, n6, sr], peers: any, host: any}, {name: d1, roles: [n3, n6, sr], peers: any, host: any}]
domain: ['fc00::/16']
encapsulation: {source: 'fc00:1::1'}
locators: [{name: main, prefix: 'fc00:1::/48'}]
sids: [{sid: 'fc00:1:0:1::/64', behavior: End.DT6, table: 254}]
gtpu: {addresses: [192.0.2.1]}
tunnels:
  - {name: low, local_teid: 5, decapsulate: true}
  - {name: high, local_teid: 1000000, decapsulate: true}
`

func newSite(tb testing.TB) *site {
	tb.Helper()
	s := &site{left: netns.New(tb), node: netns.New(tb), right: netns.New(tb), dir: tb.TempDir()}
	s.in, s.nodeIn = netns.Veth(tb, s.left, "l0", s.node, "d0")
	s.out, _ = netns.Veth(tb, s.right, "r0", s.node, "d1")
	s.node.Sysctl(tb, "net.ipv6.conf.all.forwarding", "1")
	s.left.Addr(tb, "l0", "fc00:10::1/64")
	s.node.Addr(tb, "d0", "fc00:10::ff/64")
	s.node.Addr(tb, "d1", "fc00:20::ff/64")
	s.right.Addr(tb, "r0", "fc00:20::1/64")
	s.right.IP(tb, "route add default via fc00:20::ff")
	// Frames that XDP redirects into a veth arrive only if its peer has NAPI.
	s.left.Run(tb, "ethtool", "-K", "l0", "gro", "on")
	s.right.Run(tb, "ethtool", "-K", "r0", "gro", "on")
	s.configure(tb, siteConfig)
	s.pins = bpffs.Dir(tb, dataplane.Remove)
	return s
}

// configure writes the configuration of the next daemon.
func (s *site) configure(tb testing.TB, text string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "culvert.yaml"), []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// daemonProcess is a running daemon.
type daemonProcess struct {
	cmd   *exec.Cmd
	build string
	log   *tail
	lines chan string // what it says after "ready"
	done  chan error
}

// tail keeps the last of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - 20_000; n > 0 {
		t.text = t.text[n:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// daemon starts one and waits until it is ready.
func (s *site) daemon(tb testing.TB, binary string, env ...string) *daemonProcess {
	tb.Helper()
	words := append(append([]string{}, s.wrap...), binary)
	p := &daemonProcess{cmd: s.node.Command(words[0], words[1:]...), log: &tail{}, lines: make(chan string, 10), done: make(chan error, 1)}
	p.cmd.Env = append(append(os.Environ(), daemonEnv+"="+s.dir, pinEnv+"="+s.pins), env...)
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	ready := make(chan string, 1)
	go func() {
		for lines.Scan() {
			if build, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				ready <- build
			} else {
				p.lines <- lines.Text()
			}
		}
		close(p.lines)
		p.done <- p.cmd.Wait()
	}()
	tb.Cleanup(func() { p.end(tb, syscall.SIGKILL) })
	select {
	case p.build = <-ready:
	case err := <-p.done:
		p.done <- err
		tb.Fatalf("the daemon ended: %v\n%s", err, p.log)
	case <-time.After(2 * time.Minute):
		tb.Fatalf("the daemon is not ready\n%s", p.log)
	}
	return p
}

// end ends a daemon with a signal, and waits for it.
func (p *daemonProcess) end(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	_ = p.cmd.Process.Signal(sig) // it may have ended
	select {
	case err := <-p.done:
		p.done <- nil
		if err != nil && sig == syscall.SIGTERM {
			tb.Errorf("the daemon ended: %v\n%s", err, p.log)
		}
	case <-time.After(20 * time.Second):
		tb.Fatalf("the daemon does not end\n%s", p.log)
	}
}

// stream sends numbered packets from the left to the right host, through the
// node's SID.
type stream struct {
	site     *site
	send     int
	receive  *net.UDPConn
	stop     chan struct{}
	sent     uint64
	sender   sync.WaitGroup
	receiver sync.WaitGroup
	mu       sync.Mutex
	seen     map[uint64]int
	times    []time.Time // of sending
}

const streamPort = 9000

func (s *site) stream(tb testing.TB) *stream {
	tb.Helper()
	st := &stream{site: s, stop: make(chan struct{}), seen: map[uint64]int{}}
	s.left.Do(tb, func() {
		var err error
		if st.send, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			tb.Fatal(err)
		}
	})
	s.right.Do(tb, func() {
		var err error
		for range 200 {
			st.receive, err = net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP("fc00:20::1"), Port: streamPort})
			if !errors.Is(err, unix.EADDRINUSE) {
				break
			}
			// A process that another test starts has the last stream's socket until
			// it is exec'ed.
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			tb.Fatal(err)
		}
	})
	raw, err := st.receive.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}); err != nil {
		tb.Fatal(err)
	}
	st.receiver.Go(st.listen)
	st.sender.Go(func() { st.run(tb) })
	return st
}

func (st *stream) listen() {
	b := make([]byte, 64)
	for {
		n, err := st.receive.Read(b)
		if err != nil {
			return
		}
		if n == 8 {
			st.mu.Lock()
			st.seen[binary.BigEndian.Uint64(b)]++
			st.mu.Unlock()
		}
	}
}

// run sends two packets each millisecond.
func (st *stream) run(tb testing.TB) {
	to := &unix.SockaddrLinklayer{Ifindex: st.site.in.Index, Protocol: 0xdd86}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-st.stop:
			return
		case <-tick.C:
		}
		for range 2 {
			frame := st.site.frame(st.sent)
			if err := unix.Sendto(st.send, frame, 0, to); err != nil {
				if errors.Is(err, unix.ENOBUFS) {
					continue // not sent
				}
				tb.Errorf("send: %v", err)
				return
			}
			st.sent++
			st.times = append(st.times, time.Now())
		}
	}
}

// finish stops sending, waits for what is under way, and says what is missing.
func (st *stream) finish() (sent, lost, twice uint64, gaps string) {
	close(st.stop)
	st.sender.Wait()
	for range 200 {
		st.mu.Lock()
		n := uint64(len(st.seen))
		st.mu.Unlock()
		if n == st.sent {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	st.receive.Close()
	st.receiver.Wait()
	unix.Close(st.send)
	var b strings.Builder
	for i := range st.sent {
		switch n := st.seen[i]; {
		case n == 0:
			lost++
			if i == 0 || st.seen[i-1] > 0 {
				fmt.Fprintf(&b, "from %d (%s) ", i, st.times[i].UTC().Format("15:04:05.000"))
			}
			if i+1 == st.sent || st.seen[i+1] > 0 {
				fmt.Fprintf(&b, "to %d (%s); ", i, st.times[i].UTC().Format("15:04:05.000"))
			}
		case n > 1:
			twice++
		}
	}
	return st.sent, lost, twice, b.String()
}

// arrived waits until the stream is coming through.
func (st *stream) arrived(tb testing.TB, p *daemonProcess) {
	tb.Helper()
	for range 500 {
		st.mu.Lock()
		n := len(st.seen)
		st.mu.Unlock()
		if n > 100 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	tb.Fatalf("the stream does not arrive\n%s", p.log)
}

// frame is a numbered UDP datagram over IPv6: in turn in IPv6 to the node's
// SID, and in G-PDUs for a TEID that is found by index and one that is not.
func (s *site) frame(number uint64) []byte {
	src, dst := netip.MustParseAddr("fc00:10::1"), netip.MustParseAddr("fc00:20::1")
	udp := make([]byte, 16)
	binary.BigEndian.PutUint16(udp[0:], 40000)
	binary.BigEndian.PutUint16(udp[2:], streamPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint64(udp[8:], number)
	binary.BigEndian.PutUint16(udp[6:], udpChecksum(src, dst, udp))
	packet := append(ipv6(17, len(udp), src, dst), udp...)
	b := append([]byte{}, s.nodeIn.HardwareAddr...)
	b = append(b, s.in.HardwareAddr...)
	switch number % 3 {
	case 1:
		return append(b, gpdu(5, packet)...)
	case 2:
		return append(b, gpdu(1000000, packet)...)
	}
	b = append(b, 0x86, 0xdd)
	b = append(b, ipv6(41, len(packet), src, netip.MustParseAddr("fc00:1:0:1::"))...)
	return append(b, packet...)
}

// gpdu is a T-PDU over IPv4, from the EtherType on.
func gpdu(teid uint32, packet []byte) []byte {
	length := 20 + 8 + 8 + len(packet)
	b := []byte{
		8, 0, 0x45, 0, byte(length >> 8), byte(length), 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 192, 0, 2, 1,
		8, 104, 8, 104, byte((length - 20) >> 8), byte(length - 20), 0, 0,
		0x30, 255, byte(len(packet) >> 8), byte(len(packet)),
	}
	binary.BigEndian.PutUint16(b[12:], checksum.Of(b[2:22], 0))
	b = binary.BigEndian.AppendUint32(b, teid)
	return append(b, packet...)
}

func ipv6(next byte, length int, src, dst netip.Addr) []byte {
	b := []byte{0x60, 0, 0, 0, byte(length >> 8), byte(length), next, 64}
	b = append(b, src.AsSlice()...)
	return append(b, dst.AsSlice()...)
}

func udpChecksum(src, dst netip.Addr, udp []byte) uint16 {
	sum := uint32(len(udp)) + 17
	for _, part := range [][]byte{src.AsSlice(), dst.AsSlice(), udp} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// No packet is lost, none comes twice, whatever happens to the daemon.
func TestHitless(t *testing.T) {
	t.Parallel() // it mostly waits: for grace periods, for packets
	s := newSite(t)
	newer := newerBuild(t)
	same := os.Args[0]
	p := s.daemon(t, same)
	for _, c := range []struct {
		name   string
		sig    syscall.Signal
		binary string
		more   string // of the configuration
	}{
		{"restart", syscall.SIGTERM, same, ""},
		{"kill -9", syscall.SIGKILL, same, ""},
		{"upgrade", syscall.SIGTERM, newer, ""},
		{"kill -9 and go back", syscall.SIGKILL, same, ""},
		{"larger limits", syscall.SIGTERM, same, "limits: {sids: 131072, tunnels: 131072}\n"},
		{"smaller limits and upgrade", syscall.SIGKILL, newer, "limits: {sids: 16, tunnels: 16}\n"},
	} {
		before := p.build
		st := s.stream(t)
		st.arrived(t, p)
		signalled := time.Now()
		p.end(t, c.sig)
		time.Sleep(100 * time.Millisecond) // nobody runs
		s.configure(t, siteConfig+c.more)
		p = s.daemon(t, c.binary)
		ready := time.Now()
		time.Sleep(200 * time.Millisecond)
		sent, lost, twice, gaps := st.finish()
		t.Logf("%s: %d sent, %d lost, %d twice", c.name, sent, lost, twice)
		if sent < 500 || lost > 0 || twice > 0 {
			t.Errorf("%s: %d packets sent, %d lost (%s), %d came twice; the signal was sent at %s, the next daemon ready at %s\n%s",
				c.name, sent, lost, gaps, twice, signalled.UTC().Format("15:04:05.000"), ready.UTC().Format("15:04:05.000"), p.log)
		}
		if other := before != p.build; other != !slices.Contains([]string{"restart", "kill -9", "larger limits"}, c.name) {
			t.Errorf("%s: the data path's build was %s and is %s", c.name, before, p.build)
		}
	}
	p.end(t, syscall.SIGTERM)
}

// newerBuild is this test's binary with another build of the data path: the
// object has something appended that ELF readers do not look at.
func newerBuild(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	object, err := filepath.Abs("../dataplane/abi/datapath_bpfel.o")
	if err != nil {
		tb.Fatal(err)
	}
	data, err := os.ReadFile(object)
	if err != nil {
		tb.Fatal(err)
	}
	other := filepath.Join(dir, "datapath_bpfel.o")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {object: other}})
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(other, append(data, "another build"...), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		tb.Fatal(err)
	}
	binary := filepath.Join(dir, "agent.test")
	cmd := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build another daemon: %v\n%s", err, out)
	}
	return binary
}
