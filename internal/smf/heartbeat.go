package smf

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// askAgain is how long an answer to a heartbeat is waited for by Await.
const askAgain = time.Millisecond

// heartbeatRequest is one of a node that started then.
func heartbeatRequest(started time.Time) ([]byte, error) {
	m := message.NewHeartbeatRequest(0, ie.NewRecoveryTimeStamp(started), nil)
	b := make([]byte, m.MarshalLen())
	return b, m.MarshalTo(b)
}

// Await asks a UPF for a heartbeat, as a node that is not associated with it,
// until it answers or ctx ends: every millisecond, so that it is known when it
// began to answer.
func Await(ctx context.Context, upf netip.AddrPort) error {
	request, err := heartbeatRequest(time.Now())
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", upf.String())
	if err != nil {
		return fmt.Errorf("ask %s for a heartbeat: %w", upf, err)
	}
	defer conn.Close()
	answer := make([]byte, 1500)
	var next time.Time
	for ; ctx.Err() == nil; time.Sleep(time.Until(next)) {
		next = time.Now().Add(askAgain)
		if _, err := conn.Write(request); err != nil {
			continue // nobody listens there yet
		}
		if err := conn.SetReadDeadline(next); err != nil {
			return fmt.Errorf("ask %s for a heartbeat: %w", upf, err)
		}
		if n, err := conn.Read(answer); err == nil && n > 1 && answer[1] == message.MsgTypeHeartbeatResponse {
			return nil
		}
	}
	return fmt.Errorf("%s answers no heartbeat: %w", upf, ctx.Err())
}
