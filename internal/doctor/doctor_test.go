package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/feature"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// find returns a check by its name, or the one that several interfaces have in common.
func find(t *testing.T, checks []Check, name string) Check {
	t.Helper()
	of, what, _ := strings.Cut(name, ": ")
	for _, c := range checks {
		names, about, _ := strings.Cut(c.Name, ": ")
		if c.Name == name || about == what && slices.Contains(strings.Split(names, ", "), of) {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", name, checks)
	return Check{}
}

// worst is the worst level among checks, or OK.
func worst(checks []Check) Level {
	levels := []Level{OK, Warn, Fail}
	rank := 0
	for _, c := range checks {
		rank = max(rank, slices.Index(levels, c.Level))
	}
	return levels[rank]
}

func inside(t *testing.T, ns *netns.NS, o Options) (checks []Check) {
	t.Helper()
	ns.Do(t, func() { checks = Run(o) })
	return checks
}

// Each command that a check suggests fixes its problem on a real kernel.
func TestFixesMend(t *testing.T) {
	ns := netns.New(t)
	netns.Veth(t, ns, "v0", ns, "v1")
	ns.Run(t, "ethtool", "-K", "v1", "gro", "off", "tx", "on", "txvlan", "on")
	ns.Sysctl(t, "net.ipv4.conf.v0.rp_filter", "1")
	ns.Sysctl(t, "net.ipv4.conf.all.accept_local", "0")
	ns.Sysctl(t, "net.ipv4.conf.v0.accept_local", "0")
	ns.Sysctl(t, "net.ipv4.ip_forward", "0")
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "0")
	o := Options{Interfaces: []string{"v0"}, GTPUOverIPv4: true}
	broken := []string{
		"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "v0: redirect target", "v0: VLAN tags",
		"v0: checksums", "v0: reverse path filter", "v0: own source addresses", "v0: MTU headroom",
	}
	before := inside(t, ns, o)
	for _, name := range broken {
		c := find(t, before, name)
		if c.Level == OK || len(c.Command) == 0 || c.Fix == "" {
			t.Errorf("%s: %+v; want something to mend, and a command", name, c)
			continue
		}
		ns.Run(t, c.Command[0], c.Command[1:]...)
		ns.Run(t, c.Command[0], c.Command[1:]...) // as a user may who has done it already
		after := find(t, inside(t, ns, o), name)
		if after.Level != OK || after.Fix != "" || after.Command != nil {
			t.Errorf("%s: after %q: %+v", name, c.Fix, after)
		}
	}
	for _, name := range []string{"v0: up", "v0: native XDP", "v0: large receive offload", "v0: segmentation offload", "v0: MTU limit"} {
		if c := find(t, before, name); c.Level != OK {
			t.Errorf("%s: %+v", name, c)
		}
	}

	ns.IP(t, "link set v0 mtu 9000")
	if c := find(t, inside(t, ns, o), "v0: MTU limit"); c.Level != OK {
		t.Errorf("MTU 9000: %+v", c)
	}
	few := device{Link: netdev.Link{Name: "eth0", Kind: "device", Driver: "igb", MTU: 9000}}
	lower := strings.Fields("ip link set dev eth0 mtu 3498")
	few.XDP = netdev.XDPBasic
	if c := few.nativeMTU(); c.Level != Warn || !slices.Equal(c.Command, lower) {
		t.Errorf("no pieces: %+v", c)
	}
	few.XDP = netdev.XDPBasic | netdev.XDPTransmit | netdev.XDPReceivePieces
	if c := few.nativeMTU(); c.Level != Fail || !slices.Equal(c.Command, lower) {
		t.Errorf("sends no pieces: %+v", c)
	}
	ns.IP(t, "link set v0 down")
	c := find(t, inside(t, ns, o), "v0: up")
	if c.Level != Fail {
		t.Errorf("down: %+v", c)
	}
	ns.Run(t, c.Command[0], c.Command[1:]...)
	if c := find(t, inside(t, ns, o), "v0: up"); c.Level != OK {
		t.Errorf("up again: %+v", c)
	}
}

// Somebody else's program on an interface of ours is named, and the command of the fix detaches it.
func TestForeignProgram(t *testing.T) {
	ns := netns.New(t)
	netns.Veth(t, ns, "v0", ns, "v1")
	o := Options{Whose: attach.Whose, Config: &config.Config{Interfaces: []config.Interface{{Name: "v0", Roles: []config.Role{config.RoleEdge}}}}, Interfaces: []string{"v0", "v1"}}
	if c := find(t, inside(t, ns, o), "v0: XDP program"); c.Level != OK {
		t.Errorf("none is attached: %+v", c)
	}
	put := func(name, dev string, flags int) {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
		if err != nil {
			t.Fatal(err)
		}
		defer prog.Close()
		ns.Do(t, func() {
			l, err := netlink.LinkByName(dev)
			if err == nil {
				err = netlink.LinkSetXdpFdWithFlags(l, prog.FD(), flags)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	for flags, how := range map[int]string{nl.XDP_FLAGS_SKB_MODE: "xdpgeneric", nl.XDP_FLAGS_DRV_MODE: "xdpdrv"} {
		put("xdp_dispatcher", "v0", flags)
		put("xdp_dispatcher", "v1", flags)
		checks := inside(t, ns, o)
		c, detach := find(t, checks, "v0: XDP program"), "ip link set dev v0 "+how+" off"
		if c.Level != Fail || !strings.Contains(c.Detail, "xdp_dispatcher (id ") || !strings.Contains(c.Fix, detach) || c.Command != nil {
			t.Errorf("%s: %+v", how, c)
		}
		if c := find(t, checks, "v1: XDP program"); c.Level != Warn {
			t.Errorf("on an interface that is not configured: %+v", c)
		}
		ns.Run(t, "ip", strings.Fields(detach)[1:]...)
		ns.Run(t, "ip", strings.Fields(strings.Replace(detach, "v0", "v1", 1))[1:]...)
		if c := find(t, inside(t, ns, o), "v0: XDP program"); c.Level != OK {
			t.Errorf("%s: detached: %+v", how, c)
		}
	}
	put("culvert_closed", "v0", nl.XDP_FLAGS_SKB_MODE)
	if c := find(t, inside(t, ns, o), "v0: XDP program"); c.Level != OK || !strings.Contains(c.Detail, "culvert_closed") {
		t.Errorf("ours: %+v", c)
	}
	o.Whose = func(uint32) (string, bool, error) { return "", false, errors.New("not permitted") }
	if c := find(t, inside(t, ns, o), "v0: XDP program"); c.Level != OK || !strings.Contains(c.Detail, "as root on the machine") {
		t.Errorf("who may not ask: %+v", c)
	}
}

func TestPeerInAnotherNamespace(t *testing.T) {
	a, b := netns.New(t), netns.New(t)
	netns.Veth(t, a, "a0", b, "b0")
	b.Run(t, "ethtool", "-K", "b0", "gro", "off")
	checks := inside(t, a, Options{})
	c := find(t, checks, "a0: redirect target")
	if c.Level != Fail || !strings.Contains(c.Fix, "peer's network namespace") || c.Command != nil {
		t.Errorf("%+v", c)
	}
	if worst(checks) != Fail {
		t.Errorf("worst of the checks is %s", worst(checks))
	}
	edge := &config.Config{Interfaces: []config.Interface{{Name: "a0", Roles: []config.Role{config.RoleEdge}}}}
	for table, want := range map[uint32]Level{0: Warn, 254: Warn, 10: Fail} {
		edge.SIDs = []srv6.LocalSID{{SID: netip.MustParsePrefix("2001:db8:a:d10::/64"), Behavior: srv6.EndDT46, Table: table}}
		c := find(t, inside(t, a, Options{Config: edge}), "a0: redirect target")
		if c.Level != want || strings.Contains(c.Detail, "packets of SIDs with a table of their own are lost") != (want == Fail) {
			t.Errorf("SIDs of table %d: %+v", table, c)
		}
	}
	b.Run(t, "ethtool", "-K", "b0", "gro", "on")
	if c := find(t, inside(t, a, Options{}), "a0: redirect target"); c.Level != OK {
		t.Errorf("with GRO: %+v", c)
	}
}

func TestInterfaceThatIsNotThere(t *testing.T) {
	checks := inside(t, netns.New(t), Options{Interfaces: []string{"none"}})
	if c := find(t, checks, "none: present"); c.Level != Fail || c.Fix == "" {
		t.Errorf("%+v", c)
	}
}

// This kernel has all that the data path needs: the tests beside load it.
func TestKernelFeatures(t *testing.T) {
	checks := Run(Options{Features: feature.XDP, PodFeatures: feature.Pods, Interfaces: []string{"lo"}, Overlay: &Overlay{}})
	seen := 0
	for _, c := range checks {
		if strings.HasPrefix(c.Name, "kernel: ") || strings.HasPrefix(c.Name, "capability ") || c.Name == "kernel version" {
			seen++
			if c.Level != OK {
				t.Errorf("%+v", c)
			}
		}
	}
	if want := len(feature.XDP()) + len(feature.Pods()) + 5 + 1; seen != want {
		t.Errorf("%d checks of the kernel and capabilities, want %d", seen, want)
	}
}

func TestMissingFeature(t *testing.T) {
	checks := features(map[string]error{"ring buffers": errors.New("not supported"), "maps": nil})
	if len(checks) != 2 || checks[0].Name != "kernel: maps" || checks[0].Level != OK || checks[1].Level != Fail {
		t.Errorf("%+v", checks)
	}
	if !strings.Contains(checks[1].Detail, "not supported") || checks[1].Fix == "" {
		t.Errorf("%+v", checks[1])
	}
}

func TestKernelRelease(t *testing.T) {
	for release, want := range map[string]Level{
		"6.6.0": OK, "6.18.44-x": OK, "7.0": OK, "6.5.9": Fail, "5.15.0-91-generic": Fail, "weird": Warn,
	} {
		if c := kernelRelease(release); c.Level != want || want != OK && release != "weird" && c.Fix == "" {
			t.Errorf("%s: %+v, want %s", release, c, want)
		}
	}
}

// proc makes a procfs of the given files.
func proc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCapabilities(t *testing.T) {
	status := func(mask uint64) string {
		return proc(t, map[string]string{"self/status": fmt.Sprintf("Name:\tx\nCapEff:\t%016x\nCapBnd:\t0\n", mask)})
	}
	all := uint64(1<<39 | 1<<12 | 1<<38 | 1<<13)
	if got := worst(capabilities(status(all))); got != OK {
		t.Errorf("with all: %s", got)
	}
	if c := find(t, capabilities(status(all&^(1<<13))), "capability CAP_NET_RAW"); c.Level != OK || !strings.Contains(c.Detail, "missing") {
		t.Errorf("without CAP_NET_RAW: %+v", c)
	}
	for bit, name := range map[int]string{39: "CAP_BPF", 12: "CAP_NET_ADMIN", 38: "CAP_PERFMON"} {
		c := find(t, capabilities(status(all&^(1<<bit))), "privileges")
		if c.Level != Fail || !strings.Contains(c.Fix, name) {
			t.Errorf("without %s: %+v", name, c)
		}
	}
	failed := slices.DeleteFunc(capabilities(status(0)), func(c Check) bool { return c.Level != Fail })
	if len(failed) != 1 || !strings.Contains(failed[0].Fix, "CAP_BPF CAP_NET_ADMIN CAP_PERFMON") {
		t.Errorf("as nobody: %+v, want one failure for the one cause", failed)
	}
	if c := find(t, capabilities(status(all), neededByMember), "capability CAP_SYS_ADMIN"); c.Level != Warn || !strings.Contains(c.Fix, "CAP_SYS_ADMIN") {
		t.Errorf("of a member: %+v", c)
	}
	if c := find(t, capabilities(status(all), neededToSpread), "capability CAP_SYS_NICE"); c.Level != Warn || !strings.Contains(c.Fix, "CAP_SYS_NICE") {
		t.Errorf("with spread: %+v", c)
	}
	if got := worst(capabilities(t.TempDir())); got != Warn {
		t.Errorf("without procfs: %s", got)
	}
}

func TestJITAndBPFFS(t *testing.T) {
	for value, want := range map[string]Level{"1\n": OK, "0\n": Warn, "2\n": Warn} {
		c := jit(proc(t, map[string]string{"sys/net/core/bpf_jit_enable": value}))
		if c.Level != want || (want != OK) != (len(c.Command) > 0) {
			t.Errorf("JIT %q: %+v", value, c)
		}
	}
	dir := t.TempDir()
	if c := bpffs(dir); c.Level != Fail || c.Fix != "mount -t bpf bpf "+dir {
		t.Errorf("a plain directory: %+v", c)
	}
}

func TestOwnSourceAddresses(t *testing.T) {
	for _, c := range []struct {
		all, own string
		want     Level
	}{{"0\n", "0\n", Warn}, {"1\n", "0\n", OK}, {"0\n", "1\n", OK}} {
		dir := proc(t, map[string]string{
			"sys/net/ipv4/conf/all/accept_local":      c.all,
			"sys/net/ipv4/conf/eth0.100/accept_local": c.own,
		})
		got := acceptLocal(dir, "eth0.100")
		if got.Level != c.want || (got.Fix == "sysctl -w net.ipv4.conf.eth0/100.accept_local=1") != (c.want == Warn) {
			t.Errorf("all %q, own %q: %+v", c.all, c.own, got)
		}
	}
	// Nobody asks for it where nothing sends GTP-U over IPv4.
	for _, c := range Run(Options{Interfaces: []string{"lo"}}) {
		if c.Name == "lo: own source addresses" {
			t.Errorf("%+v", c)
		}
	}
}

// A dot in an interface's name is not one of sysctl's.
func TestReversePathOfTaggedInterface(t *testing.T) {
	dir := proc(t, map[string]string{
		"sys/net/ipv4/conf/all/rp_filter":      "0\n",
		"sys/net/ipv4/conf/eth0.100/rp_filter": "1\n",
	})
	if c := rpFilter(dir, "eth0.100"); c.Level != Warn || c.Fix != "sysctl -w net.ipv4.conf.eth0/100.rp_filter=2" {
		t.Errorf("%+v", c)
	}
}

// What no device here can show.
func TestDevices(t *testing.T) {
	physical := device{
		Link: netdev.Link{Name: "eth0", Kind: "device", Driver: "ixgbe", MTU: 1740, Up: true, Carrier: true, Ethernet: true, XDP: 7},
	}
	for _, c := range []Check{physical.nativeXDP(), physical.redirectTarget([]string{"answers"}), physical.lro(), physical.vlanTags(),
		physical.partialChecksums(), physical.segmentation(), physical.headroom(mostSegments), physical.nativeMTU()} {
		if c.Level != OK || c.Fix != "" {
			t.Errorf("a good device: %+v", c)
		}
	}
	bad := physical
	bad.XDP, bad.LRO, bad.RxVLAN = 0, true, true
	for _, c := range []struct {
		check Check
		want  Level
		fix   string
	}{
		{bad.nativeXDP(), Warn, "use an interface whose driver has native XDP, or mode generic"},
		{bad.redirectTarget([]string{"answers"}), Warn, "use an interface whose driver has ndo_xdp_xmit"},
		{bad.lro(), Fail, "ethtool -K eth0 lro off"},
		{bad.vlanTags(), Warn, "ethtool -K eth0 rxvlan off"},
	} {
		if c.check.Level != c.want || c.check.Fix != c.fix {
			t.Errorf("%+v, want %s and %q", c.check, c.want, c.fix)
		}
	}
	early := physical
	early.XDP &^= netdev.XDPTransmit
	if c := early.redirectTarget([]string{"answers"}); c.Level != OK || !strings.Contains(c.Detail, "look again") {
		t.Errorf("before a program is attached: %+v", c)
	}
	early.Program = 7
	if c := early.redirectTarget([]string{"answers"}); c.Level != Warn {
		t.Errorf("with a program: %+v", c)
	}
	virtio := physical
	virtio.Link.Driver, virtio.XDP, virtio.GRO = "virtio_net", 0, true
	if c := virtio.partialChecksums(); c.Level != OK || !strings.Contains(c.Detail, "partial") {
		t.Errorf("virtio: %+v", c)
	}
	if c := virtio.segmentation(); c.Level != Warn || c.Fix != "ethtool -K eth0 gro off" {
		t.Errorf("virtio in generic mode: %+v", c)
	}
	veth := device{Link: netdev.Link{Name: "v0", Kind: "veth", Driver: "veth", MTU: 9000, XDP: netdev.XDPBasic}, peer: "v1", peerFacts: netdev.Facts{TSO: true}}
	for name, row := range map[string]struct {
		change func(*device)
		want   Level
	}{
		"native":                     {func(*device) {}, OK},
		"attached in generic mode":   {func(d *device) { d.Generic = true }, Fail},
		"to be in generic mode":      {func(d *device) { d.mode = "generic" }, Fail},
		"no native XDP":              {func(d *device) { d.XDP = 0 }, Fail},
		"without offload":            {func(d *device) { d.Generic, d.peerFacts.TSO = true, false }, OK},
		"generic, a peer elsewhere":  {func(d *device) { d.Generic, d.peer, d.peerFacts = true, "", netdev.Facts{} }, Warn},
		"a peer elsewhere":           {func(d *device) { d.peer = "" }, OK},
		"to be native or in generic": {func(d *device) { d.mode = "auto" }, OK},
	} {
		d := veth
		row.change(&d)
		if c := d.segmentation(); c.Level != row.want {
			t.Errorf("veth, %s: %+v", name, c)
		}
	}
	for mtu, want := range map[int]Level{1500: Warn, 1519: Warn, 1520: OK, 1740: OK} {
		d := physical
		d.Link.MTU = mtu
		if c := d.headroom(mostSegments); c.Level != want {
			t.Errorf("MTU %d: %+v", mtu, c)
		}
	}
	for mtu, want := range map[int]Level{1343: Warn, 1344: OK, 1500: OK, 1564: OK} {
		d := physical
		d.Link.MTU = mtu
		if c := d.headroom(0); c.Level != want || strings.Contains(c.Detail, "segment") {
			t.Errorf("without SRv6, MTU %d: %+v", mtu, c)
		}
	}
}

// A UPF whose slices use GTP-U alone speaks no SRv6; who has a policy, or no configuration
// that is known, does.
func TestSpeaksSRv6(t *testing.T) {
	for name, tt := range map[string]struct {
		config *config.Config
		want   bool
	}{
		"no configuration": {nil, true},
		"UPF":              {&config.Config{UPF: config.UPF{N4: []netip.Addr{netip.MustParseAddr("10.4.0.1")}}}, false},
		"source":           {&config.Config{Encapsulation: config.Encapsulation{Source: netip.MustParseAddr("fc00::1")}}, true},
		"locator":          {&config.Config{Locators: make([]config.Locator, 1)}, true},
	} {
		if speaksSRv6(&Options{Config: tt.config}) != tt.want {
			t.Errorf("%s: %v", name, !tt.want)
		}
	}
}
