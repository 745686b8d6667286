package smf

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// Await outlives a UPF that is not there yet, and answers that are no heartbeat's.
func TestAwait(t *testing.T) {
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(closed.LocalAddr().String())
	closed.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := Await(ctx, at); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nobody is there: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- Await(t.Context(), at) }()
	upf, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer upf.Close()
	answer := func(m message.Message) {
		b := make([]byte, 100)
		n, from, err := upf.ReadFromUDPAddrPort(b)
		if err != nil {
			t.Error(err)
			return
		}
		request, err := message.ParseHeartbeatRequest(b[:n])
		if err != nil || request.RecoveryTimeStamp == nil {
			t.Errorf("asked by %x: %v", b[:n], err)
		}
		reply := make([]byte, m.MarshalLen())
		if err := m.MarshalTo(reply); err != nil {
			t.Error(err)
		}
		if _, err := upf.WriteToUDPAddrPort(reply, from); err != nil {
			t.Error(err)
		}
	}
	answer(message.NewVersionNotSupportedResponse(0))
	select {
	case err := <-done:
		t.Fatalf("taken for a heartbeat: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	answer(message.NewHeartbeatResponse(0, ie.NewRecoveryTimeStamp(time.Now())))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
