package overlay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/srv6"
)

// way is what a packet of a variant is like where it comes in at the second node.
type way struct {
	outer string // what is around it; empty: nothing
	hops  int    // by which the pod's own packet was routed up to there
}

// hopsOfPods is what packets of pods begin with.
const hopsOfPods = 64

var errFrame = errors.New("no frame that was sent for this")

// wayOf reads the way of a frame with a UDP datagram of a pod in it.
func wayOf(frame []byte) (way, error) {
	var names []string // of headers
	hops := uint8(0)
	for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layers() {
		switch l := l.(type) {
		case *layers.IPv4:
			names, hops = append(names, "IPv4"), l.TTL
		case *layers.IPv6:
			names, hops = append(names, "IPv6"), l.HopLimit
		case *layers.IPv6Routing:
			h, ok := srv6.ParseSRH(l.Contents)
			if !ok {
				return way{}, errFrame
			}
			names = append(names, fmt.Sprintf("SRH of %d", h.LastEntry()+1))
		case *layers.UDP:
			names = append(names, "UDP")
		case *layers.VXLAN:
			names = append(names, "VXLAN", "Ethernet")
		}
	}
	// The last two are the pod's own: IP and UDP.
	if len(names) < 2 || names[len(names)-1] != "UDP" {
		return way{}, errFrame
	}
	return way{strings.Join(names[:len(names)-2], ", "), hopsOfPods - int(hops)}, nil
}

// watch takes the frames that come in by an interface, of the thread's namespace.
func watch(name string) (fd int, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) // in network order
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return 0, err
	}
	patience := unix.Timeval{Usec: 100_000}
	err = errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience))
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// wayTime is how long a datagram may take: the nodes may have to find each other.
const wayTime = 20 * time.Second

// seen sends datagrams until one comes in at the watched interface, and says its way.
func seen(ctx context.Context, p pods, fd int, mark []byte) (w way, err error) {
	receive, to, err := p.bound(unix.SOCK_DGRAM)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, unix.Close(receive)) }()
	send, err := p.connected(unix.SOCK_DGRAM, to, func(int) error { return nil })
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, unix.Close(send)) }()
	frame := make([]byte, 2048)
	for end := time.Now().Add(wayTime); time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := unix.Write(send, mark); err != nil && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) {
			return w, fmt.Errorf("send: %w", err)
		}
		for {
			n, err := unix.Read(fd, frame)
			if err != nil {
				break // nothing came for a while
			}
			if bytes.HasSuffix(frame[:n], mark) {
				return wayOf(frame[:n])
			}
		}
	}
	return w, errors.Join(errors.New("nothing comes in at the other node"), ctx.Err())
}

func (w way) String() string {
	outer := w.outer
	if outer == "" {
		outer = "nothing"
	}
	return fmt.Sprintf("%s around the pod's packet, which was routed by %d", outer, w.hops)
}
