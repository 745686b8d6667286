//go:build soak

package agent

import (
	"flag"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var soakFor = flag.Duration("soak-for", 10*time.Minute, "how long lists are watched under load")

// Nothing is cut, both CPUs are full, and no list goes down: probes are late, and none is lost.
func TestNoFalseAlarm(t *testing.T) {
	d := newDiamond(t, diamondFile)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := d.daemon(t, binary)
	octets := d.load(t, 8, *soakFor)
	t.Logf("%d flows carried %.2f Gbit/s for %s", 8, 8*float64(octets)/soakFor.Seconds()/1e9, *soakFor)
	if n := strings.Count(p.log.String(), "segment list is down"); n > 0 || octets == 0 {
		t.Errorf("%d times a list went down:\n%s", n, p.log)
	}
}

// load has flows send from the customer to the end as fast as they can, and says how much
// arrived.
func (d *diamond) load(t *testing.T, flows int, duration time.Duration) (octets int64) {
	t.Helper()
	to := &net.UDPAddr{IP: net.ParseIP("fd0e::1"), Port: 9001}
	var in *net.UDPConn
	var err error
	d.end.Do(t, func() { in, err = net.ListenUDP("udp6", to) })
	if err != nil {
		t.Fatal(err)
	}
	var receiver, senders sync.WaitGroup
	receiver.Go(func() {
		b := make([]byte, 2048)
		for {
			n, err := in.Read(b)
			if err != nil {
				return
			}
			octets += int64(n)
		}
	})
	for range flows {
		var out *net.UDPConn
		d.customer.Do(t, func() { out, err = net.DialUDP("udp6", nil, to) })
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			defer out.Close()
			for end := time.Now().Add(duration); time.Now().Before(end); {
				_, _ = out.Write(make([]byte, 1300)) // full queues lose some
			}
		})
	}
	senders.Wait()
	in.Close()
	receiver.Wait()
	return octets
}
