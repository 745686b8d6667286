package agent

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/logevent"
)

// asService starts a daemon with the rights of its systemd unit.
var asService = []string{"setpriv", "--bounding-set", "-all,+bpf,+net_admin,+perfmon", "--inh-caps", "-all"}

// The three capabilities of the systemd unit are enough: to load, pin and
// attach, to count what interfaces fail to send, to follow the network, and to send an
// ICMP error.
func TestRightsOfTheUnitAreEnough(t *testing.T) {
	t.Parallel() // it mostly waits: for grace periods, for packets
	s := newSite(t)
	s.wrap = asService
	p := s.daemon(t, os.Args[0])
	if strings.Contains(p.log.String(), logevent.DataPathLossUncounted.Name()) {
		t.Errorf("what interfaces fail to send is not counted\n%s", p.log)
	}
	var errors net.PacketConn
	s.left.Do(t, func() {
		var err error
		if errors, err = net.ListenPacket("ip6:ipv6-icmp", "fc00:10::1"); err != nil {
			t.Fatal(err)
		}
	})
	defer errors.Close()
	spent := s.frame(0)
	spent[14+40+7] = 1 // the inner hop limit
	s.sendUntil(t, spent, func() bool {
		b := make([]byte, 2048)
		for {
			if err := errors.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, from, err := errors.ReadFrom(b)
			if err != nil {
				return false
			}
			const timeExceeded = 3
			if b[0] == timeExceeded && n >= 8+40 && b[1] == 0 {
				if from.String() != "fc00:10::ff" {
					t.Errorf("the error comes from %s", from)
				}
				return true
			}
		}
	}, p)
	p.end(t, syscall.SIGTERM)
}

// sendUntil sends a frame from the left host until something holds.
func (s *site) sendUntil(t *testing.T, frame []byte, holds func() bool, p *daemonProcess) {
	t.Helper()
	var fd int
	s.left.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	})
	defer unix.Close(fd)
	for range 50 {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: s.in.Index, Protocol: 0xdd86}); err != nil {
			t.Fatal(err)
		}
		if holds() {
			return
		}
	}
	t.Fatalf("not within 50 frames\n%s", p.log)
}
