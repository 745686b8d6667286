package smf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
	"golang.org/x/net/ipv4"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Responder is the other end without a UPF: it accepts whatever it is asked
// for, chooses F-TEIDs and UE addresses where it shall, and does nothing with
// it. What a Client reaches against it is the Client's own limit.
type Responder struct {
	conn    *net.UDPConn
	socket  Socket
	local   netip.Addr
	started time.Time
	node    []byte // Node ID
	last    uint64 // SEID, and TEID, that was handed out
	pending []wire.CreatedPDR
}

// ListenResponder opens a responder's socket. Serve answers until ctx ends.
func ListenResponder(local netip.AddrPort) (*Responder, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, fmt.Errorf("smf responder: %w", err)
	}
	node, err := ie.NewNodeIDHeuristic(local.Addr().String()).Marshal()
	if err != nil {
		return nil, err
	}
	enlarge(conn)
	return &Responder{conn: conn, socket: newSocket(conn, local.Addr()), local: local.Addr(), started: time.Now(), node: node}, nil
}

// Addr is where it listens.
func (r *Responder) Addr() netip.AddrPort {
	return netip.AddrPortFrom(r.local, r.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
}

// Serve answers requests, and closes the socket at its end.
func (r *Responder) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { r.conn.Close() })
	defer stop()
	in, out := make([]ipv4.Message, BatchSize), make([]ipv4.Message, BatchSize)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, 1<<16)}
		out[i].Buffers = [][]byte{make([]byte, 0, 2048)}
	}
	for {
		n, err := r.socket.ReadBatch(in, 0)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("smf responder: %w", err)
		}
		answers := 0
		for _, m := range in[:n] {
			h, ok := wire.ParseHeader(m.Buffers[0][:m.N])
			if !ok {
				continue
			}
			b, err := r.answer(out[answers].Buffers[0][:0], &h)
			if err != nil || len(b) == 0 {
				continue
			}
			out[answers].Buffers[0], out[answers].Addr = b, m.Addr
			answers++
		}
		for rest := out[:answers]; len(rest) > 0; {
			sent, err := r.socket.WriteBatch(rest, 0)
			if err != nil {
				break // the client asks again
			}
			rest = rest[sent:]
		}
	}
}

// answer writes the answer to a request behind b; nothing: none.
func (r *Responder) answer(b []byte, h *wire.Header) ([]byte, error) {
	switch h.Kind {
	case message.MsgTypeSessionEstablishmentRequest:
		return r.established(b, h), nil
	case message.MsgTypeSessionModificationRequest, message.MsgTypeSessionDeletionRequest:
		return finish(wire.AppendIE(appendHeader(b, h.Kind+1, h.SEID, h.Sequence), ie.Cause, ie.CauseRequestAccepted)), nil
	case message.MsgTypeHeartbeatRequest:
		return message.NewHeartbeatResponse(h.Sequence, ie.NewRecoveryTimeStamp(r.started)).Marshal()
	case message.MsgTypeAssociationSetupRequest:
		return message.NewAssociationSetupResponse(h.Sequence, ie.NewNodeIDHeuristic(r.local.String()), ie.NewCause(ie.CauseRequestAccepted),
			ie.NewRecoveryTimeStamp(r.started), ie.NewUPFunctionFeatures(1<<4, 0, 1<<2)).Marshal() // FTUP, UEIP
	case message.MsgTypeAssociationReleaseRequest:
		return message.NewAssociationReleaseResponse(h.Sequence, ie.NewNodeIDHeuristic(r.local.String()), ie.NewCause(ie.CauseRequestAccepted)).Marshal()
	}
	return nil, nil
}

// established answers with a SEID that is the SMF's own, so that later answers
// need no table: the SMF's SEID is what they are asked for by.
func (r *Responder) established(b []byte, h *wire.Header) []byte {
	var seid uint64
	r.pending = r.pending[:0]
	wire.Each(h.Payload, func(kind uint16, value []byte) {
		switch {
		case kind == ie.FSEID && len(value) >= 9:
			seid = binary.BigEndian.Uint64(value[1:])
		case kind == ie.CreatePDR:
			if c, chosen := r.choose(value); chosen {
				r.pending = append(r.pending, c)
			}
		}
	})
	b = wire.AppendIE(append(appendHeader(b, h.Kind+1, seid, h.Sequence), r.node...), ie.Cause, ie.CauseRequestAccepted)
	fseidFlags, fteidFlags := byte(2), byte(wire.FTEIDV4) // V4
	if !r.local.Is4() {
		fseidFlags, fteidFlags = 1, wire.FTEIDV6
	}
	var fseid, fteid [32]byte
	b = wire.AppendIE(b, ie.FSEID, appendAddr(binary.BigEndian.AppendUint64(append(fseid[:0], fseidFlags), seid), r.local)...)
	for _, c := range r.pending {
		at := len(b)
		b = wire.AppendIE(wire.AppendIE(b, ie.CreatedPDR), ie.PDRID, byte(c.ID>>8), byte(c.ID))
		if c.TEID != 0 {
			b = wire.AppendIE(b, ie.FTEID, appendAddr(binary.BigEndian.AppendUint32(append(fteid[:0], fteidFlags), c.TEID), r.local)...)
		}
		if c.UE4.IsValid() {
			b = wire.AppendIE(b, ie.UEIPAddress, appendAddr([]byte{wire.UEV4}, c.UE4)...)
		}
		binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at-4))
	}
	return finish(b)
}

// choose reads a Create PDR, and says what has to be chosen for it.
func (r *Responder) choose(createPDR []byte) (c wire.CreatedPDR, chosen bool) {
	wire.Each(createPDR, func(kind uint16, value []byte) {
		switch {
		case kind == ie.PDRID && len(value) == 2:
			c.ID = binary.BigEndian.Uint16(value)
		case kind == ie.PDI:
			wire.Each(value, func(kind uint16, value []byte) {
				switch {
				case kind == ie.FTEID && len(value) > 0 && value[0]&wire.FTEIDCH != 0:
					if value[0]&wire.FTEIDCHID == 0 || len(r.pending) == 0 || r.pending[0].TEID == 0 {
						r.last++
					}
					c.TEID, chosen = uint32(r.last), true
				case kind == ie.UEIPAddress && len(value) > 0 && value[0]&(wire.UECHV4|wire.UECHV6) != 0:
					c.UE4, chosen = netip.AddrFrom4([4]byte{10, byte(r.last >> 16), byte(r.last >> 8), byte(r.last)}), true
				}
			})
		}
	})
	return c, chosen
}

// appendHeader begins a message about a session; finish ends it.
func appendHeader(b []byte, kind uint8, seid uint64, sequence uint32) []byte {
	b = append(b, 1<<5|1, kind, 0, 0)
	b = binary.BigEndian.AppendUint64(b, seid)
	return append(b, byte(sequence>>16), byte(sequence>>8), byte(sequence), 0)
}

func finish(b []byte) []byte {
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return b
}
