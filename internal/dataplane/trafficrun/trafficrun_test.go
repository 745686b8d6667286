package trafficrun

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// Buckets follow each other without a gap up to 2^32, and none is wider than
// 1/64 of its values.
func TestBuckets(t *testing.T) {
	next := uint64(0)
	for i := range buckets {
		lower, upper := bounds(i)
		if lower != next || upper <= lower || upper-lower > max(1, lower/64) {
			t.Fatalf("bucket %d is from %d to %d, the one before ended at %d", i, lower, upper, next)
		}
		next = upper
	}
	if next != 1<<32 {
		t.Errorf("the last bucket ends at %d", next)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: programs are loaded")
	}
}

// A job that does not fit is refused, and nothing is half set.
func TestBadJobs(t *testing.T) {
	needRoot(t)
	e, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	good := func() Job {
		return Job{Frames: [][]byte{make([]byte, 60)}, Slots: []uint8{0}, Duration: time.Second, Expect: Expect{Every: 1}}
	}
	if err := e.Prepare(good()); err != nil {
		t.Fatal(err)
	}
	for says, spoil := range map[string]func(*Job){
		"0 sizes of frames":         func(j *Job) { j.Frames = nil },
		"a frame of 59 octets":      func(j *Job) { j.Frames[0] = j.Frames[0][:59] },
		"a frame of 2049 octets":    func(j *Job) { j.Frames[0] = make([]byte, 2049) },
		"64 streams: too many":      func(j *Job) { j.StreamBits = 6 },
		"9 places":                  func(j *Job) { j.Places = make([]Place, 9) },
		"328 octets of headers":     func(j *Job) { j.Expect.Want, j.Expect.Mask = make([]byte, 328), make([]byte, 328) },
		"one frame in 3 is shown":   func(j *Job) { j.Expect.Every = 3 },
		"8 octets of headers, 0 of": func(j *Job) { j.Expect.Want = make([]byte, 8) },
	} {
		j := good()
		spoil(&j)
		if err := e.Prepare(j); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// Programs stay far below what the verifier takes, so that older kernels take
// them too.
func TestVerifierCeiling(t *testing.T) {
	needRoot(t)
	e, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for name, p := range map[string]*ebpf.Program{
		"traffic_send": e.objects.TrafficSend, "traffic_receive": e.objects.TrafficReceive,
		"traffic_watch": e.objects.TrafficWatch, "traffic_refused": e.objects.TrafficRefused,
	} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		t.Logf("%s: %d instructions verified", name, n)
		if !ok || n > 20000 {
			t.Errorf("%s: %d instructions verified (known: %v)", name, n, ok)
		}
	}
}
