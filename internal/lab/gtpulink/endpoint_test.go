package gtpulink

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func link1(t *testing.T, text string) *Link {
	t.Helper()
	l := new(Link)
	if err := json.Unmarshal([]byte(text), l); err != nil {
		t.Fatal(err)
	}
	return l
}

// inNewNamespace calls f on a thread that has a network namespace of its own,
// with loopback up; the namespace ends with the thread and its sockets.
func inNewNamespace(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// serve runs an endpoint with two ends of one tunnel, and returns its control
// socket.
func serve(t *testing.T) string {
	t.Helper()
	links := []Link{
		{Device: "here", Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2"), TEID: 1, RemoteTEID: 2},
		{Device: "there", Local: netip.MustParseAddr("127.0.0.2"), Remote: netip.MustParseAddr("127.0.0.1"), TEID: 2, RemoteTEID: 3},
	}
	path := filepath.Join(t.TempDir(), "control")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	inNewNamespace(t, func() error {
		e, err := Open(links)
		if err != nil {
			return err
		}
		go func() { ended <- e.serve(ctx, path) }()
		return nil
	})
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), "closed") {
			t.Error(err)
		}
	})
	for range 200 {
		if _, err := Ask(path, Request{Op: "Stats"}); err == nil {
			return path
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no control socket")
	return ""
}

func TestEndpoint(t *testing.T) {
	path := serve(t)
	r, err := Ask(path, Request{Op: "Echo", Device: "here", Count: 5, Wait: time.Second})
	if err != nil || r.Received != 5 {
		t.Errorf("echo: %d of 5, %v", r.Received, err)
	}
	if r, err = Ask(path, Request{Op: "Echo", Device: "here", To: netip.MustParseAddr("127.0.0.9"), Count: 2, Wait: 100 * time.Millisecond}); err != nil || r.Received != 0 {
		t.Errorf("echo to nobody: %d, %v", r.Received, err)
	}
	if _, err = Ask(path, Request{Op: "EndMarker", Device: "here", Count: 3}); err != nil {
		t.Error(err)
	}
	// TEID 3 is nobody's.
	if _, err = Ask(path, Request{Op: "EndMarker", Device: "there", Count: 2}); err != nil {
		t.Error(err)
	}
	var stats Stats
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if r, err = Ask(path, Request{Op: "Stats"}); err != nil {
			t.Fatal(err)
		}
		if stats = r.Stats; stats.UnknownTEID == 2 && stats.Links["there"].EndMarkers == 3 {
			break
		}
	}
	if stats.Links["there"].EndMarkers != 3 || stats.Links["here"].EndMarkers != 0 || stats.UnknownTEID != 2 || stats.EchoRequests != 5 {
		t.Errorf("%+v", stats)
	}
	here, nowhere := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	for _, bad := range []Request{
		{Op: "Tunnel", Device: "here", To: nowhere, TEID: 1}, {Op: "Tunnel", Device: "here"}, {Op: "Tunnel", Device: "nowhere", To: here}, {Op: "reset"}, {Op: "Echo", Device: "nowhere"}, {Op: "EndMarker", Device: "nowhere"},
	} {
		if _, err := Ask(path, bad); err == nil {
			t.Errorf("%+v was done", bad)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	one := Link{Device: "one", Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2"), TEID: 1}
	same, other, foreign := one, one, one
	same.Device = "two"
	other.TEID, other.Device = 2, "one"
	foreign.Local = netip.MustParseAddr("192.0.2.1")
	for want, links := range map[string][]Link{"teid": {one, same}, "device": {one, other}, "local": {foreign}} {
		inNewNamespace(t, func() error {
			if e, err := Open(links); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v: want %q", err, want)
				if e != nil {
					return e.Close()
				}
			}
			return nil
		})
	}
}

// TestTunnel moves a tunnel to another F-TEID, and wants what comes behind an
// End Marker to be told from what comes by a tunnel that was set up anew.
func TestTunnel(t *testing.T) {
	path := serve(t)
	ask := func(r Request) Stats {
		t.Helper()
		response, err := Ask(path, r)
		if err != nil {
			t.Fatal(err)
		}
		return response.Stats
	}
	// The two devices are one tunnel's ends; TEID 3 that "there" sends to is
	// nobody's, until it gets that of "here".
	ask(Request{Op: "EndMarker", Device: "there", Count: 1})
	ask(Request{Op: "Tunnel", Device: "there", To: netip.MustParseAddr("127.0.0.1"), TEID: 1})
	ask(Request{Op: "EndMarker", Device: "there", Count: 1})
	var stats Stats
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if stats = ask(Request{Op: "Stats"}); stats.Links["here"].EndMarkers == 1 {
			break
		}
	}
	if stats.Links["here"].EndMarkers != 1 || stats.UnknownTEID != 1 {
		t.Errorf("%+v", stats)
	}
}

func TestLate(t *testing.T) {
	s := &socket{}
	l := &link{Link: Link{TEID: 1, Local: netip.MustParseAddr("127.0.0.1")}, socket: s}
	e := &Endpoint{links: []*link{l}}
	receive := func(kind byte, late uint64) {
		t.Helper()
		if e.deliver(s, netip.AddrPort{}, message{kind: kind, teid: 1, payload: []byte{0x45}}); l.stats.Late != late {
			t.Errorf("%d late, want %d", l.stats.Late, late)
		}
	}
	receive(gPDU, 0)
	receive(endMarker, 0)
	receive(gPDU, 1)
	l.Device = "x"
	if err := e.Tunnel(Request{Device: "x", To: netip.MustParseAddr("127.0.0.2"), TEID: 2}, nil); err != nil {
		t.Fatal(err)
	}
	receive(gPDU, 1)
}

// TestOctets: what is sent and what is handed to the device counts, and nothing else.
func TestOctets(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := &link{device: w}
	l.write(make([]byte, 40))
	l.write(make([]byte, 7))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l.write(make([]byte, 5))
	if got, want := l.stats, (LinkStats{Received: 2, ReceivedOctets: 47}); got != want || l.undelivered != 1 {
		t.Errorf("%+v, %d undelivered: want %+v", got, l.undelivered, want)
	}
	inNewNamespace(t, func() error {
		here, nowhere := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")
		e, err := Open([]Link{{Device: "here", Local: here, Remote: here, TEID: 1, RemoteTEID: 1}})
		if err != nil {
			return err
		}
		l := e.links[0]
		l.send(make([]byte, 40))
		l.send(make([]byte, 7))
		l.connect(nowhere, 1)
		l.send(make([]byte, 5))
		if got, want := l.stats, (LinkStats{Sent: 2, SentOctets: 47}); got != want {
			t.Errorf("%+v: want %+v", got, want)
		}
		return e.Close()
	})
}

// A G-PDU for a TEID that nobody has is answered by an Error Indication where that is
// asked for. Its sender counts it at the link that it is about. An End Marker is not
// answered.
func TestRefuse(t *testing.T) {
	links := []Link{
		{Device: "here", Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2"), TEID: 1, RemoteTEID: 9},
		{Device: "there", Local: netip.MustParseAddr("127.0.0.2"), Remote: netip.MustParseAddr("127.0.0.1"), TEID: 2, RemoteTEID: 1},
	}
	for refuse, want := range map[bool]uint64{false: 0, true: 1} {
		inNewNamespace(t, func() error {
			e, err := Open(links)
			if err != nil {
				return err
			}
			e.Refuse = refuse
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			l, to := e.links[0], e.links[0].remote.Load()
			for _, kind := range []uint8{gPDU, endMarker} {
				m := message{kind: kind, teid: to.teid, payload: []byte{0x45}}
				if err := l.socket.send(m.appendTo(nil), to.addr); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			var r Response
			if err := e.Stats(Request{}, &r); err != nil {
				t.Error(err)
			}
			if s := r.Stats; s.UnknownTEID != 2 || s.ErrorIndications != want || s.Links["here"].Refused != want || s.Links["there"].Refused != 0 {
				t.Errorf("refuse %v: %+v", refuse, s)
			}
			cancel()
			if err := <-ended; err != nil && !strings.Contains(err.Error(), "closed") {
				return err
			}
			return nil
		})
	}
}
