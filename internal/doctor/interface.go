package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/culvert-net/culvert/internal/netdev"
)

const (
	ipv6Header    = 40
	srhHeader     = 8
	segmentLength = 16
	mostSegments  = 12                  // of a list that MTUs must have room for
	gtpuOverIPv6  = ipv6Header + 8 + 16 // UDP; GTP-U with a PDU Session Container
	ipv6MinMTU    = 1280
	usualMTU      = 1500
	// maxPieceMTU is what a page holds besides headroom, Ethernet header with
	// a tag, and the kernel's bookkeeping: 4096 - 256 - 18 - 320, and 4 more
	// that some drivers take. Longer frames come in several pieces.
	maxPieceMTU = 3498
)

// device is an interface with its properties.
type device struct {
	netdev.Link
	netdev.Facts
	// mode is the configured one.
	mode string
	// peer is the other end of a veth, if it is in this network namespace.
	peer      string
	peerFacts netdev.Facts
	// interrupts are those of its receive queues, as far as they are known.
	interrupts map[int]netdev.Interrupt
}

func (d device) isVeth() bool { return d.Kind == "veth" }

func (d device) check(what, good string, problems ...problem) Check {
	return check(d.Link.Name+": "+what, good, problems...)
}

// onPeer is a command about the other end of a veth. It can be run here if that
// is here.
func (d device) onPeer(format string) remedy {
	if d.peer != "" {
		return command(format, d.peer)
	}
	return advice("in the peer's network namespace: "+format, "PEER")
}

func (d device) up() Check {
	return d.check("up", "up, with carrier",
		problem{!d.Up, Fail, "down", command("ip link set dev %s up", d.Link.Name)},
		problem{!d.Carrier, Warn, "no carrier", advice("plug the cable in, or set the other end up")})
}

func (d device) nativeXDP() Check {
	not, detail := d.XDP&netdev.XDPBasic == 0, "not possible (driver "+d.driver()+"): generic mode is several times slower"
	return d.check("native XDP", "possible (driver "+d.driver()+")",
		problem{not && d.isVeth(), Warn, detail,
			advice("the peer must not have more transmit queues than this end has receive queues: ethtool -L %s rx N", d.Link.Name)},
		problem{not, Warn, detail, advice("use an interface whose driver has native XDP, or mode generic")})
}

// foreign: an interface takes one XDP program, and who comes second does not get it.
func (d device) foreign(whose func(uint32) (string, bool, error), configured bool) Check {
	const what = "XDP program"
	if d.Program == 0 {
		return d.check(what, "of nobody else")
	}
	if whose == nil {
		return d.check(what, fmt.Sprintf("program %d", d.Program))
	}
	name, ours, err := whose(d.Program)
	if err != nil {
		return d.check(what, fmt.Sprintf("whose program %d is cannot be seen from here: run culvert doctor as root on the machine (%v)", d.Program, err))
	}
	level, detail := Warn, fmt.Sprintf("%s (id %d) of somebody else is attached", cmp.Or(name, "a program without a name"), d.Program)
	if configured {
		level, detail = Fail, detail+": culvert cannot attach, and no packet meets the data path here"
	}
	how := "xdpdrv"
	if d.Generic {
		how = "xdpgeneric"
	}
	return d.check(what, fmt.Sprintf("%s (id %d), of culvert", name, d.Program), problem{!ours, level, detail,
		advice("stop what attached it, or detach it: ip link set dev %[1]s %[2]s off (a link of bpf: bpftool link, bpftool link detach id N); or take %[1]s out of the configuration", d.Link.Name, how)})
}

func (d device) driver() string { return cmp.Or(d.Link.Driver, "unknown") }

// redirectTarget: frames that the data path sends out of an interface with
// native XDP need the driver's ndo_xdp_xmit. A veth has it while its peer
// receives with NAPI. needed are packets that are lost without it. virtio_net and some others get it ready with their first
// program.
func (d device) redirectTarget(needed []string) Check {
	not := d.XDP&netdev.XDPTransmit == 0
	return d.check("redirect target", "frames can be redirected to it",
		problem{not && d.isVeth() && len(needed) > 0, Fail, strings.Join(needed, " and ") + " are lost, and the kernel sends all else, which is slower: its peer has neither GRO nor an XDP program",
			d.onPeer("ethtool -K %s gro on")},
		problem{not && d.isVeth(), Warn, "frames cannot be redirected to it: the kernel sends them, which is slower: its peer has neither GRO nor an XDP program",
			d.onPeer("ethtool -K %s gro on")},
		problem{not && d.Program == 0 && d.XDP&netdev.XDPRedirect != 0, OK,
			"not known before a program is attached: look again while culvert runs", remedy{}},
		problem{not, Warn, "frames cannot be redirected to it: the kernel sends them, which is slower",
			advice("use an interface whose driver has ndo_xdp_xmit")})
}

// lro: merged segments are larger than any MTU and cannot be taken apart.
func (d device) lro() Check {
	return d.check("large receive offload", "off",
		problem{d.LRO, Fail, "on: received segments are merged, and cannot be forwarded as they came",
			command("ethtool -K %s lro off", d.Link.Name)})
}

// vlanTags: the data path sees tags only if they are in the frame.
func (d device) vlanTags() Check {
	return d.check("VLAN tags", "stay in the frame",
		problem{!d.isVeth() && d.RxVLAN, Warn, "are taken off before XDP sees the frame: tagged frames are taken for untagged ones",
			command("ethtool -K %s rxvlan off", d.Link.Name)},
		problem{d.isVeth() && d.peer == "", OK, "cannot be seen: the peer is in another network namespace. " +
			"If it sends tagged frames, its txvlan offload must be off there", remedy{}},
		problem{d.isVeth() && d.peerFacts.TxVLAN, Warn, "of the peer's tagged frames do not arrive in the frame",
			d.onPeer("ethtool -K %s txvlan off")})
}

// partialChecksums: local stacks leave TCP and UDP checksums to a device that
// never comes. The data path completes those of packets that it encapsulates;
// what an endpoint forwards inside of other headers, nobody completes.
func (d device) partialChecksums() Check {
	return d.check("checksums", "are complete when frames arrive",
		problem{d.isVeth() && d.peer == "", OK,
			"may be partial, and are completed at encapsulation; the peer is in another network namespace", remedy{}},
		problem{d.isVeth() && d.peerFacts.TxChecksum, Warn, "of what the peer sends are partial: " +
			"completed at encapsulation, but not inside of headers that are there already", d.onPeer("ethtool -K %s tx off")},
		problem{d.Virtual() && !d.isVeth(), OK,
			"may be partial (" + d.Kind + ", " + d.driver() + "): they are completed at encapsulation", remedy{}})
}

// segmentation: in generic mode a local stack's segments arrive before they are cut. The data
// path cannot cut them: a TCP sender hears that they are too big, and sends as large ones again.
// Native XDP on a veth makes the kernel turn that off at the peer, and generic mode turns off GRO.
func (d device) segmentation() Check {
	const still = "in generic mode its frames arrive before they are cut to the MTU, and are dropped as too_big: TCP stands still"
	return d.check("segmentation offload", "does not reach the data path",
		problem{d.isGeneric() && d.isVeth() && (d.peerFacts.TSO || d.peerFacts.GSO), Fail,
			"of the peer: " + still, d.onPeer("ethtool -K %s tso off gso off")},
		problem{d.isGeneric() && d.isVeth() && d.peer == "", Warn,
			"cannot be seen: the peer is in another network namespace. If it is on there: " + still, d.onPeer("ethtool -K %s tso off gso off")},
		problem{d.isGeneric() && d.Virtual() && !d.isVeth() && d.GRO, Warn, "in generic mode, received frames may be larger than the MTU",
			command("ethtool -K %s gro off", d.Link.Name)})
}

// isGeneric says whether the data path gets frames from the kernel, not from the driver: it does,
// it is to, or nothing else is possible.
func (d device) isGeneric() bool {
	return d.Generic || d.mode == "generic" || d.XDP&netdev.XDPBasic == 0
}

// headroom: what the largest inner packet is, behind as many segments as there may be, or in
// GTP-U. IPv6 needs 1280.
func (d device) headroom(segments int) Check {
	full := gtpuOverIPv6
	detail := fmt.Sprintf("MTU %d: inner packets of %d bytes fit with GTP-U over IPv6", d.Link.MTU, d.Link.MTU-full)
	if segments > 0 {
		detail += fmt.Sprintf(", %d with one segment", d.Link.MTU-ipv6Header)
	}
	if segments > 1 {
		full = max(full, ipv6Header+srhHeader+segments*segmentLength)
		detail += fmt.Sprintf(", %d with %d", d.Link.MTU-ipv6Header-srhHeader-segments*segmentLength, segments)
	}
	inner := d.Link.MTU - full
	return d.check("MTU headroom", detail,
		problem{inner < ipv6MinMTU, Warn, fmt.Sprintf("%s: less than IPv6 needs (%d), which leaves in fragments then, slowly", detail, ipv6MinMTU),
			command("ip link set dev %s mtu %d", d.Link.Name, usualMTU+full)},
		problem{inner < usualMTU, OK, fmt.Sprintf("%s; %d would leave room for %d", detail, usualMTU+full, usualMTU), remedy{}})
}

func (d device) nativeMTU() Check {
	long, fix := d.Link.MTU > maxPieceMTU, command("ip link set dev %s mtu %d", d.Link.Name, maxPieceMTU)
	return d.check("MTU limit", "native XDP takes it",
		problem{long && d.XDP&netdev.XDPReceivePieces == 0, Warn,
			fmt.Sprintf("MTU %d: the driver takes no frames in several pieces, and refuses native XDP beyond about %d", d.Link.MTU, maxPieceMTU), fix},
		problem{long && d.XDP&netdev.XDPTransmit != 0 && d.XDP&netdev.XDPTransmitPieces == 0, Fail,
			fmt.Sprintf("MTU %d: frames that arrive in several pieces and leave here are lost: the driver sends none", d.Link.MTU), fix})
}
