package agent

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/dataplane"
)

// heartbeat returns whether the daemon answers a Heartbeat Request.
func heartbeat(t *testing.T) bool {
	t.Helper()
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.92.0.10:8805")),
		net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.92.0.1:8805")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{0x20, 1, 0, 12, 0, 0, 1, 0, 0, 96, 0, 4, 0xe0, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	answer := make([]byte, 100)
	n, err := c.Read(answer)
	return err == nil && n == 16 && answer[1] == 2
}

// A daemon that starts again answers heartbeats before it has its sessions and the
// data path.
func TestHeartbeatWhileStarting(t *testing.T) {
	dp, dir := newFake(), t.TempDir()
	d := prepareUserPlane(t, dir, byGTPU, dp).start(t, links("eth0", "eth1"))
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if heartbeat(t) {
		t.Fatal("answered without a daemon")
	}
	d = prepareUserPlane(t, dir, byGTPU, dp)
	answered := false
	d.open.dataPath = func(dataplane.Options, *bbolt.DB) (*dataPath, error) {
		for end := time.Now().Add(10 * time.Second); !answered && time.Now().Before(end); {
			answered = heartbeat(t)
		}
		return dp.joined(), nil
	}
	d.start(t, links("eth0", "eth1"))
	if !answered {
		t.Error("no heartbeat was answered while the data path was opened")
	}
	if !heartbeat(t) {
		t.Error("no heartbeat was answered afterwards")
	}
}
