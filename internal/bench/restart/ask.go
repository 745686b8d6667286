package restart

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// How often the SMF asks. It repeats early what has no answer: T1 of an SMF, which is
// seconds, would hide when the UPF could have answered.
const (
	heartbeatEvery = 5 * time.Millisecond
	repeatAfter    = 100 * time.Millisecond
	laterEvery     = 100 * time.Millisecond
	atOnce         = 10 // sessions at random that are modified from the start on
)

// noticed is what the SMF notices of one kill. Times are since the start that follows.
type noticed struct {
	FirstHeartbeat time.Duration
	Gap            time.Duration // the longest between two answers to heartbeats
	Modified       time.Duration // the last of those that were asked from the start on
	Later          []time.Duration
	Restored       time.Duration // until all sessions are in the data path
}

// modification is a request that is under way.
type modification struct {
	message     []byte
	asked, sent time.Time
	first       bool // asked from the start on
}

// asker is an SMF's socket, and what waits for an answer.
type asker struct {
	conn     *net.UDPConn
	to       netip.AddrPort
	seids    []uint64
	stamp    uint32 // Recovery Time Stamp of the SMF
	random   *rand.Rand
	sequence uint32
	open     map[uint32]*modification
	buffer   []byte

	started, last, beat, added time.Time
	noticed
}

// newAsker opens a socket at an address of the SMF, whose port is not PFCP's. The calling
// thread is in the SMF's namespace.
func newAsker(smf, upf netip.AddrPort, seids []uint64, stamp uint32, seed uint64) (*asker, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(smf.Addr(), 0)))
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(seed, 0))
	return &asker{conn: conn, to: upf, seids: seids, stamp: stamp, random: r, sequence: r.Uint32N(1 << 23), buffer: make([]byte, 2048)}, nil
}

// run asks from a start on, until all sessions are restored.
func (a *asker) run(ctx context.Context, started time.Time, restored <-chan error) (n noticed, err error) {
	a.started, a.last, a.open, a.noticed = started, time.Time{}, map[uint32]*modification{}, noticed{}
	err = proc.Inside("", func() error {
		// What the asker itself waits for is no gap.
		if err := proc.GoRealtime(0, proc.Realtime); err != nil {
			return err
		}
		a.modify(true, 0, len(a.seids)/2, len(a.seids)-1)
		for range atOnce {
			a.modify(true, a.random.IntN(len(a.seids)))
		}
		return a.loop(ctx, restored)
	})
	return a.noticed, err
}

func (a *asker) loop(ctx context.Context, restored <-chan error) error {
	for a.Restored == 0 || len(a.open) > 0 {
		select {
		case err := <-restored:
			if err != nil {
				return err
			}
			a.Restored = time.Since(a.started)
		case <-ctx.Done():
			return fmt.Errorf("%d modifications are not answered: %w", len(a.open), ctx.Err())
		default:
		}
		if err := a.ask(); err != nil {
			return err
		}
		if err := a.receive(); err != nil {
			return err
		}
	}
	return nil
}

// modify asks for changes of sessions, by their indexes.
func (a *asker) modify(first bool, indexes ...int) {
	for _, i := range indexes {
		a.sequence++
		message := signalling.ToForward(nil, a.seids[i], a.sequence, a.random.Uint32(), catalog.FarGTPU)
		a.open[a.sequence] = &modification{message: message, asked: time.Now(), first: first}
	}
}

// ask sends what is due.
func (a *asker) ask() error {
	now := time.Now()
	if a.Restored == 0 && now.Sub(a.added) >= laterEvery {
		a.added = now
		a.modify(false, a.random.IntN(len(a.seids)))
	}
	if now.Sub(a.beat) >= heartbeatEvery {
		a.beat = now
		if err := a.send(heartbeat(a.sequence, a.stamp)); err != nil {
			return err
		}
	}
	for _, m := range a.open {
		if now.Sub(m.sent) < repeatAfter {
			continue
		}
		m.sent = now
		if err := a.send(m.message); err != nil {
			return err
		}
	}
	return nil
}

// heartbeat is a Heartbeat Request. Its sequence number may come again: nobody looks.
func heartbeat(sequence, stamp uint32) []byte {
	b := []byte{0x20, 1, 0, 12, 0, 0, 0, 0, 0, 96, 0, 4, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[4:], sequence<<8)
	binary.BigEndian.PutUint32(b[12:], stamp)
	return b
}

// send sends a message. While the daemon is away, the kernel says that nobody listens.
func (a *asker) send(b []byte) error {
	_, err := a.conn.WriteToUDPAddrPort(b, a.to)
	return err
}

// receive takes answers until the next heartbeat is due.
func (a *asker) receive() error {
	if err := a.conn.SetReadDeadline(a.beat.Add(heartbeatEvery)); err != nil {
		return err
	}
	for {
		n, err := a.conn.Read(a.buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.take(a.buffer[:n], time.Now()); err != nil {
			return err
		}
	}
}

const heartbeatResponse = 2

// take notes an answer.
func (a *asker) take(b []byte, now time.Time) error {
	if len(b) > 1 && b[1] == heartbeatResponse {
		if a.last.IsZero() {
			a.FirstHeartbeat = now.Sub(a.started)
		} else {
			a.Gap = max(a.Gap, now.Sub(a.last))
		}
		a.last = now
		return nil
	}
	answer, ok := signalling.ParseAnswer(b)
	m := a.open[answer.Sequence]
	switch {
	case !ok:
		return fmt.Errorf("the UPF sent %x: want an answer to a modification", b)
	case m == nil: // one more, to a repetition
		return nil
	case answer.Cause != signalling.RequestAccepted:
		return fmt.Errorf("the UPF refused %x: Cause %d", m.message, answer.Cause)
	case m.first:
		a.Modified = max(a.Modified, now.Sub(a.started))
	default:
		a.Later = append(a.Later, now.Sub(m.asked))
	}
	delete(a.open, answer.Sequence)
	return nil
}
