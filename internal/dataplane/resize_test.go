package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// resizeLimits are where the tests of other limits begin.
var resizeLimits = func() Limits {
	l := sessionLimits
	l.SIDs, l.Tunnels = 512, 512
	return l
}()

// otherLimits are limits that hold what putAll puts: larger, and so small that entries, ranges
// and TEIDs move.
var otherLimits = []struct {
	name   string
	change func(*Limits)
}{
	{"more SIDs", func(l *Limits) { l.SIDs = 1024 }},
	{"fewer SIDs", func(l *Limits) { l.SIDs = 8 }},
	{"more tunnels", func(l *Limits) { l.Tunnels = 1024 }},
	{"fewer tunnels", func(l *Limits) { l.Tunnels = 8 }},
	{"more sessions", func(l *Limits) { l.Sessions = 256 }},
	{"fewer sessions", func(l *Limits) { l.Sessions = 16 }},
	{"more filters", func(l *Limits) { l.Filters = 1024 }},
	{"fewer filters", func(l *Limits) { l.Filters = 40 }},
	{"more of all", func(l *Limits) { l.SIDs, l.Tunnels, l.Sessions, l.Filters = 2048, 2048, 512, 4096 }},
	{"fewer of all", func(l *Limits) { l.SIDs, l.Tunnels, l.Sessions, l.Filters = 8, 8, 16, 40 }},
}

// The local TEIDs of sessions and tunnels: each has an entry of its own by index, except where
// limits are small.
const (
	plainTEID  = 0x05000064
	richTEID   = 0x06000065
	hashTEID   = 0x07ffff01
	coreTEID   = 0x04000067
	tunnelTEID = 300
	// countTEID is what an SMF has counted up to: its low bits are an index, and others with other limits.
	countTEID = 4242
)

// outside is a session whose UE is in no pool and whose TEID is no index.
func outside() Session {
	s := plain(9, hashTEID)
	ue := prefix("10.99.0.1/32")
	s.Rules[0].Sources, s.Rules[1].Destinations = []netip.Prefix{ue}, []netip.Prefix{ue}
	return s
}

// framed is a session with a network behind its UE.
func framed() Session {
	s := plain(8, 0x08000066)
	s.Rules[0].Sources = append(s.Rules[0].Sources, prefix("10.98.0.0/24"))
	s.Rules[1].Destinations = append(s.Rules[1].Destinations, prefix("10.98.0.0/24"))
	return s
}

// putAll puts sessions, SIDs, tunnels and steering of all kinds; packets leave by an interface.
func putAll(t *testing.T, d *DataPlane, ifindex int, name string) {
	t.Helper()
	must(t, d.SetSettings(Settings{
		Source: addr("fc00:a::1"), ErrorsPerSecond: 100, GTPUAddresses: addrs("10.0.0.1"),
		UEPools: []netip.Prefix{prefix("10.45.0.0/28"), prefix("2001:db8:45::/60")}, Pools: []netip.Prefix{prefix("10.46.0.0/29")},
		Locators: []Locator{{Prefix: prefix("fc00:a::/32"), FunctionBits: 8}, {Prefix: prefix("fc00:9::/32"), FunctionBits: 7}},
	}))
	must(t, d.Ports.PutDevice(ifindex))
	must(t, d.Ports.Set(ifindex, port.Port{}))
	for _, p := range []string{"0.0.0.0/0", "::/0"} {
		must(t, d.Routes.Put(0, prefix(p), []AdjacencyKey{{Interface: name}}))
	}
	must(t, d.Policies.Put(policyTo("one", "fc00:b::1", "fc00:c::1")))
	for _, v := range []gtpu.Tunnel{
		{Name: "in", LocalTEID: tunnelTEID, Decapsulate: true},
		{Name: "high", LocalTEID: 0x12345678, Decapsulate: true},
		{Name: "out", Remote: addr("10.0.0.3"), RemoteTEID: 8},
	} {
		must(t, d.Tunnels.Put(v))
	}
	for _, s := range []srv6.LocalSID{
		{SID: prefix("fc00:a:1000::/40"), Behavior: srv6.End},
		{SID: prefix("fc00:9:2000::/39"), Behavior: srv6.EndMGTP4E, SourcePrefixLength: 64},
		{SID: prefix("fc00:f::1/128"), Behavior: srv6.End},
		{SID: prefix("fc00:f::2/128"), Behavior: srv6.EndMAP, Map: addr("fc00:b::9")},
	} {
		must(t, d.SIDs.Put(s))
	}
	for _, s := range []srpolicy.Steering{
		{Prefix: prefix("10.46.0.3/32"), Tunnel: "out"},
		{Prefix: prefix("10.47.0.0/16"), Tunnel: "out"},
		{Prefix: prefix("192.0.3.0/24"), GTP4D: &srpolicy.GTP4D{SIDPrefix: prefix("fc00:e::/48"), SourcePrefix: prefix("fc00:a:ffff::/64"), PDUType: srv6.PDUTypeIPv4}},
	} {
		must(t, d.Steering.Put(s))
	}
	for _, s := range []Session{plain(5, plainTEID), rich(6, richTEID), open5gs(7, coreTEID, 1), outside(), framed(), plain(10, countTEID)} {
		must(t, d.Sessions.Put(s))
	}
	for _, k := range d.Adjacencies.Keys() {
		must(t, d.Adjacencies.SetNextHop(k, ready(ifindex)))
	}
}

// traffic are packets of each kind, and what counts them.
var traffic = []struct {
	what  string
	frame []byte
	// counted is what has counted the packets.
	counted func(t *testing.T, d *DataPlane) uint64
}{
	{"uplink", uplinkFrame(plainTEID, "10.45.0.5", "192.0.2.1", 80), ofRule(5, 1)},
	{"downlink", downlinkFrame("192.0.2.1", "10.45.0.5", 80), ofRule(5, 2)},
	{"uplink with filters", uplinkFrame(richTEID, "10.45.0.6", "192.0.2.1", 53), ofRule(6, 3)},
	{"downlink with filters", downlinkFrame("192.0.2.1", "10.45.0.6", 53), ofRule(6, 4)},
	{"downlink behind filters", downlinkFrame("192.0.2.1", "10.45.0.6", 80), ofRule(6, 2)},
	{"uplink behind filters", qfiFrame(coreTEID, 1, "10.45.0.7", "192.0.2.1", 80), ofRule(7, 1)},
	{"uplink by a hash", uplinkFrame(hashTEID, "10.99.0.1", "192.0.2.1", 80), ofRule(9, 1)},
	{"uplink of an SMF that counts", uplinkFrame(countTEID, "10.45.0.10", "192.0.2.1", 80), ofRule(10, 1)},
	{"downlink to a UE outside", downlinkFrame("192.0.2.1", "10.99.0.1", 80), ofRule(9, 2)},
	{"downlink to a framed route", downlinkFrame("192.0.2.1", "10.98.0.7", 80), ofRule(8, 2)},
	{"a SID of a locator", endFrame("fc00:a:1000::", "fc00:b::1"), ofSID("fc00:a:1000::/40")},
	{"a SID by prefix", endFrame("fc00:f::1", "fc00:b::1"), ofSID("fc00:f::1/128")},
	{"a SID with parameters", endFrame("fc00:f::2", "fc00:b::1"), ofSID("fc00:f::2/128")},
	{"a tunnel by index", uplinkFrame(tunnelTEID, "198.51.100.1", "192.0.2.1", 80), ofTunnel("in", true)},
	{"a tunnel by a hash", uplinkFrame(0x12345678, "198.51.100.1", "192.0.2.1", 80), ofTunnel("high", true)},
	{"steering of a pool", downlinkFrame("192.0.2.1", "10.46.0.3", 80), nil},
	{"steering of a prefix", downlinkFrame("192.0.2.1", "10.47.0.3", 80), nil},
}

func ofRule(session uint64, rule uint16) func(*testing.T, *DataPlane) uint64 {
	return func(t *testing.T, d *DataPlane) uint64 {
		usage, err := d.Sessions.Usage(session)
		must(t, err)
		for _, u := range usage {
			if u.Rule == rule {
				return u.Volume.Packets
			}
		}
		t.Errorf("session %d has no rule %d", session, rule)
		return 0
	}
}

func ofSID(p string) func(*testing.T, *DataPlane) uint64 {
	return func(t *testing.T, d *DataPlane) uint64 {
		c, err := d.SIDs.Counter(prefix(p))
		must(t, err)
		return c.Packets
	}
}

func ofTunnel(name string, receives bool) func(*testing.T, *DataPlane) uint64 {
	return func(t *testing.T, d *DataPlane) uint64 {
		received, sent, err := d.Tunnels.Counters(name)
		must(t, err)
		if receives {
			return received.Packets
		}
		return sent.Packets
	}
}

// sendAll sends all of traffic in turn, until it is told to stop, and returns how many of each.
func sendAll(tx, ifindex int, stop <-chan struct{}) <-chan []int {
	out := make(chan []int, 1)
	go func() {
		sent := make([]int, len(traffic))
		for {
			for i := range traffic {
				if unix.Sendto(tx, traffic[i].frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex}) == nil {
					sent[i]++
				}
			}
			select {
			case <-stop:
				out <- sent
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return out
}

// forwarded counts arrivals of what a data path forwards, until nothing has come for some
// seconds.
func forwarded(fd int) <-chan int {
	out := make(chan int, 1)
	go func() {
		buf, got := make([]byte, 2048), 0
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				out <- got
				return
			}
			link, _ := from.(*unix.SockaddrLinklayer)
			if n > 12 && link.Pkttype != unix.PACKET_OUTGOING && bytes.Equal(buf[6:12], hostA) {
				got++
			}
		}
	}()
	return out
}

// TestOtherLimits sends packets of all kinds while one limit after another changes: every packet
// is forwarded, and counted once. The daemon has the rights of its unit.
func TestOtherLimits(t *testing.T) {
	w, path := newWire(t), pinPath(t)
	w.ns.Run(t, "ethtool", "-K", "far", "gro", "on") // veth takes frames of XDP only then
	start := func(what string, limits Limits) *DataPlane {
		var d *DataPlane
		withoutSysAdmin(t, func() { d = openWith(t, Options{PinPath: path, Limits: limits}) })
		if renewed := d.renewal != nil; renewed != (what != "") {
			t.Errorf("%s: tables are copied: %t", what, renewed)
		}
		w.do(t, func() {
			putAll(t, d, w.near.Index, "near")
			_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
			must(t, err)
		})
		withoutSysAdmin(t, func() { must(t, d.Sweep()) })
		return d
	}
	must(t, start("", resizeLimits).Close())
	var tx, rx int
	w.do(t, func() { tx, rx = packetSocket(t, w.far.Index), packetSocket(t, w.far.Index) })
	stop := make(chan struct{})
	arrived, sent := forwarded(rx), sendAll(tx, w.far.Index, stop)
	for _, c := range otherLimits {
		limits := resizeLimits
		c.change(&limits)
		d := start(c.name, limits)
		id := pinnedID(t, path, abi.ProgCulvertXdp)
		if got := linkOf(t, w); got != id {
			t.Errorf("%s: the interface runs program %d, want %d", c.name, got, id)
		}
		must(t, d.Close())
	}
	close(stop)
	n, all := <-sent, 0
	for _, of := range n {
		all += of
	}
	if got := <-arrived; got != all || n[0] < 100 {
		t.Errorf("%d packets sent, %d of each kind, and %d forwarded", all, n[0], got)
	}
	d := start("the former limits", resizeLimits)
	for i, c := range traffic {
		if c.counted == nil {
			continue
		}
		if got := c.counted(t, d); got != uint64(n[i]) {
			t.Errorf("%s: %d packets sent, and %d counted", c.what, n[i], got)
		}
	}
	reasons, err := d.Outcomes()
	must(t, err)
	total := uint64(0)
	for _, c := range reasons {
		total += c.Packets
	}
	if total < uint64(all) {
		t.Errorf("%d packets sent, and %d have an outcome", all, total)
	}
}

func linkOf(t *testing.T, w *wire) (id ebpf.ProgramID) {
	t.Helper()
	w.do(t, func() { id = linkProgram(t, w.near.Index) })
	return id
}

// Larger tables, and then the former ones again: all of it is where it was, except a TEID that a hash finds since.
func TestLargerLimitsAndBack(t *testing.T) {
	path := pinPath(t)
	d := openWith(t, Options{PinPath: path, Limits: resizeLimits})
	putAll(t, d, 1, "lo")
	must(t, d.Sessions.Drop(10))
	before := dump(t, d)
	must(t, d.Close())
	for _, c := range otherLimits {
		limits := resizeLimits
		c.change(&limits)
		if limits.SIDs < resizeLimits.SIDs || limits.Tunnels < resizeLimits.Tunnels || limits.Sessions < resizeLimits.Sessions || limits.Filters < resizeLimits.Filters {
			continue
		}
		for _, l := range []Limits{limits, resizeLimits} {
			d = openWith(t, Options{PinPath: path, Limits: l})
			putAll(t, d, 1, "lo")
			must(t, d.Sweep())
			must(t, d.Sessions.Drop(10))
			if after := dump(t, d); l == resizeLimits && after != before {
				t.Errorf("%s: the tables changed:\n%s", c.name, difference(before, after))
			}
			must(t, d.Close())
		}
	}
}

// A limit that is too small for what is there is refused by name, with what is in use and what
// would do; nothing has changed then, and with what it names it goes on.
func TestLimitsThatAreTooSmall(t *testing.T) {
	parent := pinParent(t)
	path := filepath.Join(parent, "culvert")
	t.Cleanup(func() { must(t, Remove(path)) })
	d := openWith(t, Options{PinPath: path, Limits: resizeLimits})
	putAll(t, d, 1, "lo")
	before, id := dump(t, d), pinnedID(t, path, abi.ProgCulvertXdp)
	must(t, d.Close())
	for what, c := range map[string]struct {
		limit func(*Limits) *uint32
		small uint32
		want  []string
	}{
		"SIDs":     {func(l *Limits) *uint32 { return &l.SIDs }, 2, []string{"limits.sids is 2", "room for 2", "4 are in use", "at least 4"}},
		"tunnels":  {func(l *Limits) *uint32 { return &l.Tunnels }, 4, []string{"limits.tunnels is 4", "gtpu.pools", "8 are in use", "at least 8"}},
		"sessions": {func(l *Limits) *uint32 { return &l.Sessions }, 8, []string{"limits.sessions is 8", "addresses in UE pools", "32 are in use", "at least 16"}},
		"filters":  {func(l *Limits) *uint32 { return &l.Filters }, 4, []string{"limits.filters is 4", "room for 4", "set it to at least"}},
	} {
		limits := resizeLimits
		*c.limit(&limits) = c.small
		_, err := Open(Options{PinPath: path, Limits: limits})
		if !errors.Is(err, pin.ErrIncompatible) {
			t.Errorf("%s: %v, want ErrIncompatible", what, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", what, err, w)
			}
		}
		d = openWith(t, Options{PinPath: path, Limits: resizeLimits})
		if after := dump(t, d); after != before || pinnedID(t, path, abi.ProgCulvertXdp) != id {
			t.Errorf("%s: a refused Open changed the tables:\n%s", what, difference(before, after))
		}
		must(t, d.Close())
		if got := list(t, parent); len(got) != 1 {
			t.Errorf("%s: there is %v, want the pins alone", what, got)
		}
		_, advice, _ := strings.Cut(err.Error(), "at least ")
		if _, err := fmt.Sscan(strings.TrimRight(strings.Fields(advice)[0], ","), c.limit(&limits)); err != nil {
			t.Errorf("%s: %q: %v", what, advice, err)
		}
		d = openWith(t, Options{PinPath: path, Limits: limits})
		must(t, d.Close()) // which has changed nothing
	}
}

// killed is the environment of a process that is killed while it copies tables.
const killed = "CULVERT_TEST_KILLED"

// A daemon with other limits is killed while its tables are filled: packets meet the former ones
// all the time, and the next daemon does it again.
func TestKilledWhileTablesAreCopied(t *testing.T) {
	limits := resizeLimits
	limits.Sessions, limits.SIDs = 256, 1024
	if path := os.Getenv(killed); path != "" {
		d, err := Open(Options{PinPath: path, Limits: limits})
		must(t, err)
		putAll(t, d, 1, "lo")
		fmt.Println("filled")
		time.Sleep(time.Minute)
		return
	}
	w, path := newWire(t), pinPath(t)
	w.ns.Run(t, "ethtool", "-K", "far", "gro", "on")
	start := func(l Limits) *DataPlane {
		d := openWith(t, Options{PinPath: path, Limits: l})
		w.do(t, func() {
			putAll(t, d, w.near.Index, "near")
			_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
			must(t, err)
		})
		must(t, d.Sweep())
		return d
	}
	must(t, start(resizeLimits).Close())
	id := linkOf(t, w)
	var tx, rx int
	w.do(t, func() { tx, rx = packetSocket(t, w.far.Index), packetSocket(t, w.far.Index) })
	stop := make(chan struct{})
	arrived, sent := forwarded(rx), sendAll(tx, w.far.Index, stop)
	child := w.ns.Command(os.Args[0], "-test.run=^TestKilledWhileTablesAreCopied$")
	child.Env = append(os.Environ(), killed+"="+path)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	said := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "filled"); {
		n, err := out.Read(said)
		if err != nil {
			t.Fatalf("the process ended: %v: %s", err, text)
		}
		text += string(said[:n])
	}
	must(t, child.Process.Kill())
	child.Wait()
	if got := linkOf(t, w); got != id {
		t.Errorf("the interface runs program %d after the kill, want %d", got, id)
	}
	d := start(limits)
	if got := linkOf(t, w); got == id {
		t.Error("the interface still runs the former program")
	}
	close(stop)
	n, all := <-sent, 0
	for _, of := range n {
		all += of
	}
	if got := <-arrived; got != all || n[0] < 100 {
		t.Errorf("%d packets sent, and %d forwarded", all, got)
	}
	time.Sleep(10 * time.Millisecond) // until the last packet is counted
	for i, c := range traffic {
		if c.counted == nil {
			continue
		}
		if got := c.counted(t, d); got != uint64(n[i]) {
			t.Errorf("%s: %d packets sent, and %d counted", c.what, n[i], got)
		}
	}
}

// A node that is no user plane function any more goes on with what else it does.
func TestSessionsAreRemoved(t *testing.T) {
	path := pinPath(t)
	limits := resizeLimits
	limits.NATAddresses = 1
	d := openWith(t, Options{PinPath: path, Limits: limits, N4Places: 128})
	putAll(t, d, 1, "lo")
	for _, c := range traffic {
		if verdict, _, err := d.Frames.Test(c.frame, 1); err != nil || verdict != xdp.VerdictRedirect {
			t.Fatalf("%s: verdict %d, %v", c.what, verdict, err)
		}
	}
	must(t, d.Close())
	limits.Sessions, limits.Filters, limits.NATAddresses = 0, 0, 0
	d = openWith(t, Options{PinPath: path, Limits: limits})
	if d.renewal == nil {
		t.Fatal("the tables are not copied")
	}
	putContentWithoutSessions(t, d)
	must(t, d.Sweep())
	if got := d.maps[abi.MapPdr].MaxEntries(); got != 1 {
		t.Errorf("pdr has %d entries", got)
	}
	for k, to := range d.targets.All() {
		if to.Kind == uint32(abi.TargetKindTARGET_PDR) {
			t.Errorf("%v still leads to a rule", k)
		}
	}
	if e := d.settings.Get(); e.PdrSlots != 0 || e.Ues != 0 {
		t.Errorf("the settings still have %d TEIDs, and UEs: %d", e.PdrSlots, e.Ues)
	}
	for what, counted := range map[string]func(*testing.T, *DataPlane) uint64{"a SID": ofSID("fc00:f::1/128"), "a tunnel": ofTunnel("in", true)} {
		if got := counted(t, d); got != 1 {
			t.Errorf("%s has counted %d, want 1", what, got)
		}
	}
	if err := d.Sessions.Put(plain(5, 7)); err == nil {
		t.Error("there is room for a session")
	}
	must(t, d.Close())
	limits = resizeLimits // and one again
	d = openWith(t, Options{PinPath: path, Limits: limits})
	putAll(t, d, 1, "lo")
	must(t, d.Sweep())
	if got := ofRule(5, 1)(t, d); got != 0 {
		t.Errorf("a new session has counted %d packets", got)
	}
}

// putContentWithoutSessions puts what putAll does, less sessions and their pools.
func putContentWithoutSessions(t *testing.T, d *DataPlane) {
	t.Helper()
	must(t, d.SetSettings(Settings{
		Source: addr("fc00:a::1"), GTPUAddresses: addrs("10.0.0.1"),
		Locators: []Locator{{Prefix: prefix("fc00:a::/32"), FunctionBits: 8}},
	}))
	must(t, d.Tunnels.Put(gtpu.Tunnel{Name: "in", LocalTEID: tunnelTEID, Decapsulate: true}))
	must(t, d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:f::1/128"), Behavior: srv6.End}))
}

// The order of packets that were kept for an idle UE, and which rule they belong to, survive a
// change of limits: they are read from the former ring first.
func TestRingsAreReadOn(t *testing.T) {
	path := pinPath(t)
	d := openWith(t, Options{PinPath: path, Limits: resizeLimits})
	put := func(d *DataPlane) {
		putAll(t, d, 1, "lo")
		idle := outside()
		idle.Rules[1].Action, idle.Rules[1].Forward = ActionBuffer, Forwarding{}
		must(t, d.Sessions.Put(idle))
	}
	put(d)
	kept := func(d *DataPlane, text string) {
		frame := packet.Frame(packet.Ethernet{}, ipLayer("192.0.2.1", "10.99.0.1"), packet.UDP{Sport: 80, Dport: 5000}, packet.Payload{Count: len(text)})
		copy(frame[len(frame)-len(text):], text)
		_, _, err := d.Frames.Test(frame, 1)
		must(t, err)
	}
	kept(d, "first")
	must(t, d.Close())
	limits := resizeLimits
	limits.Sessions = 256
	next := openWith(t, Options{PinPath: path, Limits: limits})
	put(next)
	must(t, next.Sweep())
	kept(next, "second")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []string
	err := next.Punts.Read(ctx, func(p Punt) {
		if p.Session != 9 || p.Rule != 2 {
			t.Errorf("a packet of session %d, rule %d", p.Session, p.Rule)
		}
		next.Sessions.Turns.Taken(p.Entry)
		for _, text := range []string{"first", "second"} {
			if bytes.HasSuffix(p.Data, []byte(text)) {
				got = append(got, text)
			}
		}
		if len(got) == 2 {
			cancel()
		}
	})
	must(t, err)
	if fmt.Sprint(got) != "[first second]" {
		t.Errorf("the packets are %v", got)
	}
}
