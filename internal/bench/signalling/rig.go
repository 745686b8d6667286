package signalling

import (
	"context"
	"fmt"
	"math/bits"
	"net/netip"
	"os/exec"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/smf"
)

// N4 of a node that is measured: an interface of its own, behind which the SMFs are.
const (
	PortN4 = "n4"
	around = "smf" // its other end, in the namespace around the node
)

// upf is the node's address at N4; the SMFs have the following ones.
var upf = catalog.Addr("192.168.4.1")

// n4 is the prefix of all of them.
var n4 = netip.PrefixFrom(upf, 24).Masked()

// AddPort gives a node its interface for N4. Its other end checks and makes checksums as
// another machine does, and takes what XDP sends. A veth's queue holds 256 packets: more
// under way at once can be lost in it.
func AddPort(n *node.Network, smfs int) error {
	if err := n.Node.Script(fmt.Sprintf("link add %s type veth peer name %s netns %s", PortN4, around, n.Around.Name),
		fmt.Sprintf("addr add %s/%d dev %s", upf, n4.Bits(), PortN4), "link set "+PortN4+" up"); err != nil {
		return err
	}
	lines := []string{"link set " + around + " up"}
	for i := range uint32(smfs) {
		lines = append(lines, fmt.Sprintf("addr add %s/%d dev %s", later(upf, 1+i), n4.Bits(), around))
	}
	if err := n.Around.Script(lines...); err != nil {
		return err
	}
	return n.Around.Do(func() error {
		if out, err := exec.Command("ethtool", "-K", around, "gro", "on", "tx", "off").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool -K %s gro on tx off: %w: %s", around, err, out)
		}
		return nil
	})
}

// QueueFull counts the requests and answers that N4's interface had no room for: whoever receives
// did not get the CPU.
func QueueFull(n *node.Network) (int, error) {
	line, err := proc.NetDev(n.Around.Path(), around)
	return int(line.TxDropped + line.RxDropped), err
}

// Addresses are those of the UPF and of so many SMFs.
func Addresses(smfs int) (of netip.AddrPort, list []netip.AddrPort) {
	for i := range uint32(smfs) {
		list = append(list, netip.AddrPortFrom(later(upf, 1+i), smf.Port))
	}
	return netip.AddrPortFrom(upf, smf.Port), list
}

// Configure makes the node a UPF for so many sessions of Spec, whose N4 is that interface.
func Configure(c *config.Config, sessions int, fast bool) {
	first := catalog.UENumber(catalog.FirstUE) - catalog.UENumber(catalog.UENet)
	cost.MakeUPF(c, netip.PrefixFrom(catalog.UENet, 32-max(8, bits.Len32(first+uint32(sessions)))))
	c.Interfaces = append(c.Interfaces, config.Interface{Name: PortN4, Mode: "native", Roles: []config.Role{config.RoleN4}})
	c.UPF.N4, c.UPF.SMFs, c.UPF.N4Fast = []netip.Addr{upf}, config.Senders{n4}, config.Off
	if fast {
		c.UPF.N4Fast = config.On
	}
	c.Limits.Sessions = uint32(max(256, 4*sessions))
	c.Limits.Filters = uint32(1<<16 + 4*sessions)
}

// Spec is of sessions as Open5GS makes them: the UPF chooses the TEIDs.
func Spec(sessions int) smf.Spec {
	const enough, farAway = 100_000_000, uint64(1) << 37 // kbit/s, octets: nothing is refused or reported
	total := farAway
	return smf.Spec{
		Name: "ue", Count: sessions, QFI: 9, UE4: netip.PrefixFrom(catalog.FirstUE, 8), CPFunction: catalog.FarGTPU,
		MBR: &session.BitRate{Uplink: enough, Downlink: enough}, URR: &smf.URR{VolumeThreshold: &session.Volume{Total: &total}},
		Access: &smf.Tunnel{Address: catalog.FarGTPU, TEID: catalog.FirstAccessTEID},
	}
}

// CountedSpec is of the same sessions with TEIDs that the SMF counts up, for a generator of their packets
// (Uplink).
func CountedSpec(sessions int) smf.Spec {
	s := Spec(sessions)
	s.Local = &smf.Local{Address: catalog.UPF, AccessTEID: catalog.FirstTEID}
	return s
}

// DialNode makes SMFs with sessions in a node that runs with that configuration. N4 is
// received on one CPU, as a card's queue is, and answers on the generator's: otherwise the UPF's CPU
// would receive them, when it has time. Close gives that back.
func DialNode(ctx context.Context, n *node.Network, cpus proc.Pair, smfs int, spec smf.Spec) (_ *Load, err error) {
	var threads node.Undo
	defer threads.OnError(&err)
	for _, end := range []struct {
		of   node.Namespace
		port string
		cpu  int
	}{{n.Node, PortN4, cpus.Device}, {n.Around, around, cpus.Generator}} {
		t, err := napi.Start(end.of.Path(), end.port, end.cpu)
		if err != nil {
			return nil, err
		}
		threads.Later(t.Stop)
	}
	o := Options{Namespace: n.Around.Path(), Spec: spec}
	o.UPF, o.SMFs = Addresses(smfs)
	l, err := Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	l.Later(threads.Close)
	return l, nil
}
