package upf

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

// asker is an SMF that waits for each answer.
type asker struct {
	net.Conn
	t *testing.T
}

func (a asker) ask(request []byte) []byte {
	a.t.Helper()
	b := make([]byte, 2048)
	_ = a.SetDeadline(time.Now().Add(n4Patience))
	if _, err := a.Write(request); err != nil {
		a.t.Fatal(err)
	}
	n, err := a.Read(b)
	if err != nil {
		a.t.Fatal(err)
	}
	return b[:n]
}

// first returns the first request of a type, from an address.
func first(t *testing.T, list [][]byte, kind byte, from netip.Addr) []byte {
	t.Helper()
	i := slices.IndexFunc(list, func(m []byte) bool { return m[1] == kind })
	if i < 0 {
		t.Fatalf("no request of type %d", kind)
	}
	return bytes.ReplaceAll(list[i], blank, from.AsSlice())
}

// serve runs an N4 server of the world's UPF.
func (w *world) serve(at netip.Addr) (stop func()) {
	w.t.Helper()
	err := w.SetConfig(Config{
		Addresses: []netip.Addr{addr("10.200.0.8")},
		Pools:     []pool.Pool{{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := pfcp.New(pfcp.Config{
		Addresses: []netip.Addr{at}, Allow: []netip.Prefix{netip.PrefixFrom(at, 24)},
		Log: slog.New(slog.DiscardHandler), Heartbeat: time.Hour,
	}, w.UPF)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() { cancel(); <-done }
}

// A session that was in the journal when the daemon was killed, but whose SMF got no
// answer, is the one that the SMF gets when it repeats its request.
func TestKilledBeforeTheAnswer(t *testing.T) {
	for _, dialect := range []string{"open5gs", "free5gc"} {
		t.Run(dialect, func(t *testing.T) {
			w := newWorld(t)
			server, client := addr("127.94.0.8"), addr("127.94.0.1")
			stop := w.serve(server)
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(client, pfcp.Port)),
				net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, pfcp.Port)))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			smf := asker{c, t}
			list := requests(t, dialect)
			smf.ask(first(t, list, 5, client))
			establishment := first(t, list, 50, client)
			answer := smf.ask(establishment)
			stop()
			w.restart()
			defer w.serve(server)()
			if again := smf.ask(establishment); !bytes.Equal(answer, again) {
				t.Fatalf("answered %x, then %x", answer, again)
			}
			if n := w.Len(); n != 1 {
				t.Fatalf("%d sessions", n)
			}
			deletion := []byte{0x21, 54, 0, 12, 15: 0}
			for s := range w.Sessions() {
				binary.BigEndian.PutUint64(deletion[4:], s.SEID)
			}
			smf.ask(deletion)
			if ues := w.Pools(); w.Len() != 0 || len(w.path.teids) != 0 || ues[0].Used != 0 {
				t.Errorf("left behind: %d sessions, TEIDs %v, UE addresses %+v", w.Len(), w.path.teids, ues)
			}
		})
	}
}
