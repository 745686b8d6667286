package upf

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	dpsettings "github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/bpffs"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

// daemonEnv has a daemonConfig: the test's binary is a UPF of its own, which can be killed.
const daemonEnv = "CULVERT_TEST_UPF"

type daemonConfig struct {
	Pins, Journal string
	Places        uint32 // of N4; 0: upf.n4_fast is off
}

func TestMain(m *testing.M) {
	if text := os.Getenv(daemonEnv); text != "" {
		var c daemonConfig
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		if err := c.run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	daemonN4 = "10.4.0.1"
	smfN4    = "10.4.0.2"
)

var gtpuN3 = addr("10.200.0.8")

// run serves until the standard input ends. Each line there asks for all sessions.
func (c daemonConfig) run() error {
	limits := dpsettings.Limits{SIDs: 64, Policies: 16, SegmentLists: 16, Tunnels: 64, Routes: 64, Adjacencies: 256, Sessions: 2048}
	path, err := dataplane.Open(dataplane.Options{PinPath: c.Pins, Limits: limits, N4Places: c.Places})
	if err != nil {
		return err
	}
	link, err := net.InterfaceByName("n4")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := pfcp.Open(pfcp.Config{Addresses: []netip.Addr{addr(daemonN4)}, Allow: []netip.Prefix{netip.MustParsePrefix(smfN4 + "/32")},
		Log: log, Heartbeat: time.Hour, StampFile: c.Journal + ".recovery"})
	if err != nil {
		return err
	}
	server.SetPorts([]int{link.Index})
	server.Listen()
	own, ues := []netip.Addr{gtpuN3}, []netip.Prefix{netip.MustParsePrefix("10.60.0.0/22")}
	u, err := New(Options{DataPath: joined{path}, Journal: c.Journal, Logger: log, Sessions: int(limits.Sessions)})
	if err != nil {
		return err
	}
	signalling := Share(u, path.N4, c.Places != 0)
	for _, do := range []func() error{
		func() error { return path.SetSettings(dpsettings.Settings{GTPUAddresses: own, UEPools: ues}) },
		func() error { return path.Ports.PutDevice(link.Index) },
		func() error {
			return path.Ports.Set(link.Index, port.Port{PartialChecksum: true, Roles: port.Roles(abi.PortFlagsPORT_N4)})
		},
		func() error { return path.Steering.PutLocal(netip.PrefixFrom(addr(daemonN4), 32)) },
		func() error { return u.SetConfig(Config{Addresses: own, Pools: []pool.Pool{{Prefixes: ues}}}) },
		func() error { u.Restore(); return path.Sweep() },
		func() error { _, err := path.XDP.Attach(link.Index, attach.ModeNative); return err },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	if signalling != nil {
		server.Share(signalling)
	}
	if err := server.Restore(u); err != nil {
		return err
	}
	u.Start(server)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group errgroup.Group
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return u.Run(ctx) })
	fmt.Println(`"ready"`)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		waitLearned(u)
		b, err := json.Marshal(describe(u, path, c.Pins))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
	}
	cancel()
	return group.Wait()
}

// waitLearned waits until the daemon has learned, by itself, what the data path did. On a busy
// machine that takes longer than its intervals.
func waitLearned(u *UPF) {
	time.Sleep(2 * idleInterval)
	if s := u.install.share; s != nil && s.on {
		for begun := time.Now(); s.behind() && time.Since(begun) < stormPatience; {
			time.Sleep(learnInterval)
		}
	}
	for _, e := range u.store.All() { // one may still be learned from
		if e.Lock() {
			e.Unlock()
		}
	}
}

// behind says whether the data path changed a session that was not learned from since.
func (s *sharer) behind() bool {
	for range s.table.Dirty() {
		return true
	}
	return false
}

// shown is a session as the daemon and the data path have it.
type shown struct {
	SEID uint64
	PDRs []session.PDR
	FARs []session.FAR
	QERs []session.QER
	// Rules are, by PDR, what becomes of its packets in the table pdr, and where they go.
	Rules map[uint16]shownRule
	Open  bool // the data path may change it
}

// shownRule is an entry of the table pdr.
type shownRule struct {
	Action uint8 // enum pdr_action
	// Where a rule that forwards leads, if that is a gNB.
	GNB  netip.Addr
	TEID uint32
	// Words are what else is compared of the entry, and of where it leads.
	Words string
}

// wordsOf is what two UPFs have alike in an entry of pdr: not the volume, nor what the meter's
// bucket holds, which packets and time change; not numbers that each UPF chooses: the index of
// forwarding, whose entry is compared, the first meter's, and the high octet of the TEID; not
// where a rule led before it buffered, which it keeps only where the data path made it buffer.
func wordsOf(b []byte) string {
	do := binary.NativeEndian.Uint64(b[24:])
	return fmt.Sprintf("%#x, meters %t, limits and source %x", do>>32&0xffffff, uint32(do) != 0, b[40:])
}

func pinnedTable(pins, name string) *ebpf.Map {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pins, "maps", name), nil)
	if err != nil {
		panic(err)
	}
	return m
}

type everything struct {
	Sessions map[uint64]shown // by CP SEID
	Here     uint64           // modifications that the data path answered
	Repeated uint64           // that it answered again
}

func describe(u *UPF, path *dataplane.DataPlane, pins string) everything {
	m, ways := pinnedTable(pins, abi.MapPdr), pinnedTable(pins, abi.MapForwarding)
	defer m.Close()
	defer ways.Close()
	counts, err := path.Signalling()
	if err != nil {
		panic(err)
	}
	all := everything{Sessions: map[uint64]shown{}, Here: counts.Modifications, Repeated: counts.Repeated}
	for i := range u.Sessions() {
		s := u.Session(i.SEID)
		one := shown{SEID: s.SEID, PDRs: s.PDRs, FARs: s.FARs, QERs: s.QERs, Rules: map[uint16]shownRule{}, Open: path.N4.IsOpen(s.SEID)}
		for _, p := range s.PDRs {
			entry := path.Sessions.EntryAt(s.SEID, p.ID)
			words := make([]byte, m.ValueSize())
			if err := m.Lookup(entry, &words); err != nil {
				panic(err)
			}
			out, do := binary.NativeEndian.Uint64(words[16:]), binary.NativeEndian.Uint64(words[24:])
			rule := shownRule{Action: uint8(do >> 32), Words: wordsOf(words)}
			if rule.Action == uint8(abi.PdrActionPDR_FORWARD) { // only such a rule has one
				rule.GNB, rule.TEID, _ = path.Sessions.Turns.LeadsTo(out)
				way := make([]byte, ways.ValueSize())
				if err := ways.Lookup(uint32(out>>32), &way); err != nil {
					panic(err)
				}
				rule.Words += fmt.Sprintf(" to %x", way)
			}
			one.Rules[p.ID] = rule
		}
		all.Sessions[s.CPSEID] = one
	}
	return all
}

// testDaemon is a UPF in a process and a namespace of its own.
type testDaemon struct {
	t      *testing.T
	config daemonConfig
	ns     *netns.NS
	smf    *net.UDPConn
	gnbs   *gnbs
	cmd    *exec.Cmd
	in     *os.File
	out    *bufio.Scanner
}

// gnbs are all gNBs' addresses: what a UPF sends to them.
type gnbs struct {
	conn *ipv4.PacketConn
	mu   sync.Mutex
	ends map[session.PeerTEID]int // End Markers
}

// gnbPrefix has the gNBs that SMFs name.
const gnbPrefix = "10.200.1.0/24"

// newGNBs has the gNBs of a UPF in a namespace that has its smfN4.
func newGNBs(t *testing.T, upf, side *netns.NS) *gnbs {
	t.Helper()
	upf.Addr(t, "lo", gtpuN3.String()+"/32")
	upf.IP(t, "route add "+gnbPrefix+" via "+smfN4)
	side.IP(t, "route add local "+gnbPrefix+" dev lo")
	g := &gnbs{ends: map[session.PeerTEID]int{}}
	side.Do(t, func() {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: gtpu.Port})
		if err != nil {
			t.Fatal(err)
		}
		g.conn = ipv4.NewPacketConn(c)
		if err := g.conn.SetControlMessage(ipv4.FlagDst, true); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { g.conn.Close() })
	go g.receive()
	return g
}

func (g *gnbs) receive() {
	b := make([]byte, 2048)
	for {
		n, to, _, err := g.conn.ReadFrom(b)
		if err != nil {
			return // closed
		}
		if h, ok := gtpu.ParseHeader(b[:n]); ok && h.Type() == gtpu.EndMarker {
			gnb, _ := netip.AddrFromSlice(to.Dst)
			g.mu.Lock()
			g.ends[session.PeerTEID{Addr: gnb.Unmap(), TEID: h.TEID()}]++
			g.mu.Unlock()
		}
	}
}

// endMarkers are those that have come, by tunnel.
func (g *gnbs) endMarkers() map[session.PeerTEID]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.ends)
}

func newTestDaemon(t *testing.T, places uint32) *testDaemon {
	t.Helper()
	return newTestDaemonIn(t, places, filepath.Join(t.TempDir(), "sessions"))
}

// newTestDaemonIn has its journal in a directory.
func newTestDaemonIn(t *testing.T, places uint32, journal string) *testDaemon {
	t.Helper()
	d := &testDaemon{t: t, ns: netns.New(t)}
	d.config = daemonConfig{Pins: bpffs.Dir(t, dataplane.Remove), Journal: journal, Places: places}
	side := netns.New(t)
	netns.Veth(t, d.ns, "n4", side, "smf")
	d.ns.Addr(t, "n4", daemonN4+"/24")
	side.Addr(t, "smf", smfN4+"/24")
	side.Run(t, "ethtool", "-K", "smf", "gro", "on")
	d.gnbs = newGNBs(t, d.ns, side)
	var err error
	side.Do(t, func() {
		d.smf, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(smfN4), Port: pfcp.Port}, &net.UDPAddr{IP: net.ParseIP(daemonN4), Port: pfcp.Port})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.smf.Close(); d.kill() })
	d.start()
	return d
}

// start returns when SMFs are answered.
func (d *testDaemon) start() {
	d.t.Helper()
	d.cmd = d.ns.Command(os.Args[0])
	text, err := json.Marshal(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	d.cmd.Env = append(os.Environ(), daemonEnv+"="+string(text))
	d.cmd.Stderr = os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.cmd.Stdin, d.in = read, write
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	read.Close()
	d.out = bufio.NewScanner(out)
	d.out.Buffer(nil, 16<<20)
	if !d.out.Scan() || d.out.Text() != `"ready"` {
		d.t.Fatalf("the UPF does not start: %s", d.out.Text())
	}
}

func (d *testDaemon) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.in.Close()
		d.cmd = nil
	}
}

// everything is what the UPF has.
func (d *testDaemon) everything() (all everything) {
	d.t.Helper()
	fmt.Fprintln(d.in)
	if !d.out.Scan() {
		d.t.Fatal("the UPF has ended")
	}
	if err := json.Unmarshal(d.out.Bytes(), &all); err != nil {
		d.t.Fatal(err)
	}
	return all
}

// ask sends a request until it is answered, and returns the answer; nil: nobody answers.
func (d *testDaemon) ask(request []byte, tries int) []byte {
	d.t.Helper()
	return d.askPatiently(request, tries, 50*time.Millisecond)
}

// askPatiently is ask with a pause between two tries.
func (d *testDaemon) askPatiently(request []byte, tries int, pause time.Duration) []byte {
	d.t.Helper()
	want := sequenceOf(request)
	b := make([]byte, 2048)
	for range tries {
		_, _ = d.smf.Write(request) // refused while nobody listens
		for {
			if err := d.smf.SetReadDeadline(time.Now().Add(pause)); err != nil {
				d.t.Fatal(err)
			}
			n, err := d.smf.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				time.Sleep(time.Millisecond)
				break
			}
			if n >= 8 && b[1] == request[1]+1 && sequenceOf(b[:n]) == want {
				return slices.Clone(b[:n])
			}
		}
	}
	return nil
}

func sequenceOf(m []byte) uint32 {
	if forSession(m) {
		return binary.BigEndian.Uint32(m[12:]) >> 8
	}
	return binary.BigEndian.Uint32(m[4:]) >> 8
}
