package restart

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

func TestValidate(t *testing.T) {
	if err := Kind.New().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Experiment){
		"with.sessions: there is none":     func(e *Experiment) { e.Sessions = nil },
		"with.sessions[1]: 3000000 is out": func(e *Experiment) { e.Sessions = []uint{10, 3_000_000} },
		"with.kills: 0 is out of range":    func(e *Experiment) { e.Kills = 0 },
	} {
		e := Kind.New().(*Experiment)
		change(e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// response is the answer to a request.
func response(request []byte, cause byte) []byte {
	if request[1] == 1 {
		b := bytes.Clone(request)
		b[1] = heartbeatResponse
		return b
	}
	b := append(bytes.Clone(request[:16]), 0, 19, 0, 1, cause)
	b[1] = request[1] + 1
	binary.BigEndian.PutUint16(b[2:], 17)
	return b
}

// answers are when a fakeUPF answered, since it began.
type answers struct {
	mu         sync.Mutex
	first, gap time.Duration // heartbeats: the first, and the longest time between two
	modified   time.Duration // the first answer to a modification
}

// fakeUPF is silent for a while, and again in the middle.
func fakeUPF(t *testing.T, cause byte) (netip.AddrPort, *answers) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	begun, seen := time.Now(), &answers{}
	go func() {
		var last time.Duration
		b := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			at := time.Since(begun)
			if at < 150*time.Millisecond || b[1] == 1 && at > 300*time.Millisecond && at < 450*time.Millisecond || b[1] != 1 && at < 500*time.Millisecond {
				continue
			}
			_, _ = conn.WriteToUDPAddrPort(response(b[:n], cause), from)
			at = time.Since(begun)
			seen.mu.Lock()
			switch {
			case b[1] != 1:
				seen.modified = cmp.Or(seen.modified, at)
			case last == 0:
				seen.first, last = at, at
			default:
				seen.gap, last = max(seen.gap, at-last), at
			}
			seen.mu.Unlock()
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort(), seen
}

func ask(t *testing.T, cause byte) (noticed, *answers, error) {
	t.Helper()
	seids := make([]uint64, 1000)
	for i := range seids {
		seids[i] = uint64(i + 1)
	}
	upf, seen := fakeUPF(t, cause)
	a, err := newAsker(netip.MustParseAddrPort("127.0.0.1:0"), upf, seids, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer a.conn.Close()
	restored := make(chan error, 1)
	time.AfterFunc(700*time.Millisecond, func() { restored <- nil })
	n, err := a.run(t.Context(), time.Now(), restored)
	return n, seen, err
}

// What the UPF does not answer is noticed: from when on, and in between.
func TestAsk(t *testing.T) {
	n, seen, err := ask(t, signalling.RequestAccepted)
	if err != nil {
		t.Fatal(err)
	}
	// Others who use the machine delay the UPF, which says by how much: what is noticed is near that.
	seen.mu.Lock()
	defer seen.mu.Unlock()
	const slack = 150 * time.Millisecond // a request is repeated so late
	for what, d := range map[string]struct{ got, least, answered time.Duration }{
		"first heartbeat": {n.FirstHeartbeat, 150 * time.Millisecond, seen.first},
		"gap":             {n.Gap, 150 * time.Millisecond, seen.gap},
		"modified":        {n.Modified, 500 * time.Millisecond, seen.modified},
		"restored":        {n.Restored, 700 * time.Millisecond, 700 * time.Millisecond},
	} {
		if d.got < d.least-20*time.Millisecond || d.got > d.answered+slack {
			t.Errorf("%s: %s, want %s at least; answered after %s", what, d.got, d.least, d.answered)
		}
	}
	if len(n.Later) < 3 {
		t.Errorf("%d later modifications", len(n.Later))
	}
	if _, _, err := ask(t, 72); err == nil || !strings.Contains(err.Error(), "Cause 72") {
		t.Errorf("a UPF that refuses: %v", err)
	}
}

// The table has the medians and the most of all kills.
func TestRows(t *testing.T) {
	run := &result.Run{}
	add := func(n noticed) {
		for i, s := range n.samples(1000) {
			if len(run.Measurements) <= i {
				run.Measurements = append(run.Measurements, result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit})
			}
			run.Measurements[i].Samples = append(run.Measurements[i].Samples, s.Value)
		}
	}
	for range 3 {
		add(noticed{FirstHeartbeat: 30 * time.Millisecond, Gap: 20 * time.Millisecond, Modified: time.Second, Later: []time.Duration{time.Millisecond}, Restored: 2 * time.Second})
	}
	add(noticed{FirstHeartbeat: 90 * time.Millisecond, Gap: 20 * time.Millisecond, Modified: 4 * time.Second, Restored: 2 * time.Second, Later: []time.Duration{time.Millisecond}})
	var out bytes.Buffer
	f := &experiment.File{With: &Experiment{Sessions: []uint{1000, 2000}}}
	if err := PrintTable(&out, f, run); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000      4    0.030 (0.090)  0.020 (0.020)  1.000 (4.000)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "2000") {
		t.Errorf("a number that was not measured:\n%s", out.String())
	}
}
