package agent

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slowpath"
)

type sent struct {
	frame   []byte
	ifindex int
}

func (s *sent) Transmit(frame []byte, ifindex int) error {
	s.frame, s.ifindex = frame, ifindex
	return nil
}
func (s *sent) Close() error { return nil }

func TestAskedForIsKeptAlive(t *testing.T) {
	d := start(t)
	key := netdev.Key{NextHop: addr("192.0.2.77")}
	d.ask(key)
	d.ask(key)
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	n := 0
	for _, k := range d.watcher.kept {
		if k == key {
			n++
		}
	}
	if n != 1 || len(d.watcher.kept) < 2 {
		t.Errorf("kept alive: %v", d.watcher.kept)
	}
}

func TestSendWithoutARawSocket(t *testing.T) {
	s := withRoute(links("eth0", "eth1"))
	s.Links = append(s.Links, netdev.Link{
		Index: 3, Name: "vlan7", Kind: "vlan", MTU: 1400, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 3}, Up: true, Carrier: true,
		Ethernet: true, Parent: 2, VLAN: netdev.VLAN{TPID: 0x8100, ID: 7},
	})
	s.Neighbours = append(s.Neighbours, netdev.Neighbour{
		Ifindex: 3, Addr: addr("fe80::9"), MAC: net.HardwareAddr{2, 7, 7, 7, 7, 7}, State: netdev.NUDStale,
	})
	out := &sent{}
	var asked []netdev.Key
	sender := &sender{out: out, links: func() *netdev.Snapshot { return s }, ask: func(k netdev.Key) { asked = append(asked, k) }}

	four := make([]byte, 28)
	four[0] = 0x45
	copy(four[16:], []byte{203, 0, 113, 5})
	if err := sender.Send(four, slowpath.Way{Table: 254}); err != nil {
		t.Fatal(err)
	}
	if want := "020909090909" + "020000000001" + "0800" + hex.EncodeToString(four); hex.EncodeToString(out.frame) != want || out.ifindex != 1 {
		t.Errorf("sent by %d:\n%x, want\n%s", out.ifindex, out.frame, want)
	}

	six := make([]byte, 48)
	six[0] = 0x60
	copy(six[24:], addr("fe80::9").AsSlice())
	if err := sender.Send(six, slowpath.Way{Table: 254, Ifindex: 3}); err != nil {
		t.Fatal(err)
	}
	if want := "020707070707" + "020000000003" + "81000007" + "86dd"; !strings.HasPrefix(hex.EncodeToString(out.frame), want) || out.ifindex != 2 {
		t.Errorf("sent by %d:\n%x, want\n%s", out.ifindex, out.frame, want)
	}

	for name, c := range map[string]struct {
		packet  []byte
		ifindex int
		want    string
	}{
		"no IP packet":               {[]byte{0x45, 0}, 0, "neither"},
		"no route":                   {bytes.Replace(four, []byte{203, 0}, []byte{9, 9}, 1), 0, "no route"},
		"no such interface":          {six, 44, "no interface 44"},
		"more than the MTU":          {append(six, make([]byte, 1400)...), 3, "MTU is 1400"},
		"link-local on another link": {six, 1, "not resolved"},
	} {
		out.frame = nil
		if err := sender.Send(c.packet, slowpath.Way{Table: 254, Ifindex: c.ifindex}); err == nil || !strings.Contains(err.Error(), c.want) || out.frame != nil {
			t.Errorf("%s: %v, sent %x", name, err, out.frame)
		}
	}
	if want := (netdev.Key{NextHop: addr("fe80::9"), Interface: "eth0"}); len(asked) != 1 || asked[0] != want {
		t.Errorf("asked for %v, want %v", asked, want)
	}
	s.Links[0].XDP = 0
	if err := sender.Send(four, slowpath.Way{Table: 254}); err == nil || !strings.Contains(err.Error(), "CAP_NET_RAW") || errors.Is(err, netdev.ErrNoRoute) {
		t.Errorf("a device that cannot be redirected to: %v", err)
	}
}
