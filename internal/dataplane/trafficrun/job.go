package trafficrun

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// What a job may have.
const (
	MaxFrame    = 2048 // octets without FCS
	MaxHeaders  = 320  // octets that are compared
	MaxSizes    = 4
	MaxSlots    = 48
	MaxPlaces   = 8
	Keys        = 3
	Streams     = 32 // a power of two
	Window      = 65536
	windowLine  = 16
	TagSum      = 0xc7c7 // the Internet checksum's sum over a tag
	fixedPoint  = 16     // bits of a ns that the pace is kept in
	shownLength = MaxFrame + 24
)

// Key is a number that packets differ by.
type Key struct {
	Count  uint32
	Random bool
	Lead   bool // its number names the stream
	Salt   uint32
}

// Place is where a number stands: the 32 bits at Offset are Base + (number <<
// Shift). The checksums that follow are named by their offsets; 0: none.
type Place struct {
	Offset, Base, Key, Shift uint32
	IPChecksum, UDPChecksum  uint32
	// OuterChecksum is that of a UDP header around. What the change does to it
	// beside the checksums inside is added, or with OuterAdds the opposite.
	OuterChecksum uint32
	OuterAdds     bool
}

// Expect is what must come out.
type Expect struct {
	Want, Mask []byte // of the frame's start; equally long
	Places     []Place
	Lengths    []int // of the frames made of Job.Frames[i]
	Every      int   // frames to one that is shown: a power of two
}

// Job is a trial.
type Job struct {
	Frames     [][]byte // with a tag of the right sum at their ends
	Slots      []uint8  // indices into Frames, in the order of packets
	Keys       [Keys]Key
	Places     []Place
	StreamBits int
	Trial      uint8
	Duration   time.Duration
	Rate       float64 // packets/s; 0: as fast as possible
	Later      float64 // the rate from the middle of Duration on; 0: Rate
	CatchUp    time.Duration
	Timed      bool
	Turns      int // the engine of TakeTurns makes each Turns-th packet; 0: none
	Expect     Expect
}

// Prepare sets everything to the beginning of a trial.
func (e *Engine) Prepare(j Job) error {
	entry, err := j.entry()
	if err != nil {
		return err
	}
	expect, err := j.Expect.entry()
	if err != nil {
		return err
	}
	for i, data := range j.Frames {
		f := trafficTrafficFrame{Length: uint32(len(data))}
		copy(f.Data[:], data)
		if err := put(fmt.Sprintf("set frame %d", i), e.objects.TrafficFrame, uint32(i), &f); err != nil {
			return err
		}
	}
	e.frame = slices.MaxFunc(j.Frames, func(a, b []byte) int { return len(a) - len(b) })
	e.duration = j.Duration
	// How many frames are made before they are sent, and how many pages of sent frames the
	// kernel keeps for new ones. With fewer pages than are on their way, who receives must
	// free each: that halves the rate of a device on the same CPU. A timed frame waits for
	// the others, some us for 64.
	switch {
	case !j.Timed:
		e.batch = 256
	case j.Rate == 0 || max(j.Rate, j.Later) > 1e5:
		e.batch = 64
	default:
		e.batch = 8
	}
	if err := e.reset(1 << j.StreamBits); err != nil {
		return err
	}
	if err := put("set what is expected", e.objects.TrafficExpect, 0, &expect); err != nil {
		return err
	}
	entry.Device, entry.Netns = e.device, e.netns
	return put("set the job", e.objects.TrafficJob, 0, &entry)
}

// put writes an entry of a map. what names the step in errors.
func put(what string, m *ebpf.Map, index uint32, value any) error {
	if err := m.Put(index, value); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (j Job) entry() (trafficTrafficJob, error) {
	if n := len(j.Frames); n < 1 || n > MaxSizes {
		return trafficTrafficJob{}, fmt.Errorf("%d sizes of frames: want 1 to %d", n, MaxSizes)
	}
	for _, f := range j.Frames {
		if len(f) < 60 || len(f) > MaxFrame {
			return trafficTrafficJob{}, fmt.Errorf("a frame of %d octets: want 60 to %d", len(f), MaxFrame)
		}
	}
	if n := len(j.Slots); n < 1 || n > MaxSlots || len(j.Places) > MaxPlaces || 1<<j.StreamBits > Streams {
		return trafficTrafficJob{}, fmt.Errorf("%d slots, %d places, %d streams: too many", n, len(j.Places), 1<<j.StreamBits)
	}
	entry := trafficTrafficJob{
		Duration: uint64(j.Duration), Depth: uint64(j.CatchUp) << fixedPoint,
		Trial: uint32(j.Trial), StreamBits: uint32(j.StreamBits),
		Places: uint32(len(j.Places)), Slots: uint32(len(j.Slots)), Timed: flag(j.Timed), Turns: uint32(j.Turns),
	}
	if j.Rate > 0 {
		entry.Interval, entry.Later = interval(j.Rate), interval(cmp.Or(j.Later, j.Rate))
		entry.Half = uint64(j.Duration / 2)
	}
	for i, k := range j.Keys {
		to := &entry.Key[i]
		to.Count, to.Random, to.Lead, to.Salt = k.Count, flag(k.Random), flag(k.Lead), k.Salt
	}
	putPlaces(entry.Place[:], j.Places)
	copy(entry.Slot[:], j.Slots)
	return entry, nil
}

// interval is the time between two packets, in the fixed point of the generator's pace.
func interval(rate float64) uint64 { return uint64(1e9 / rate * (1 << fixedPoint)) }

func putPlaces(to []trafficTrafficPlace, places []Place) {
	for i, p := range places {
		to[i] = trafficTrafficPlace{
			Offset: p.Offset, Base: p.Base, Key: p.Key, Shift: p.Shift,
			IpChecksum: p.IPChecksum, UdpChecksum: p.UDPChecksum,
			OuterChecksum: p.OuterChecksum, OuterAdds: flag(p.OuterAdds),
		}
	}
}

func (x Expect) entry() (trafficTrafficExpect, error) {
	words := (len(x.Want) + 7) / 8
	if len(x.Want) != len(x.Mask) || len(x.Want) > MaxHeaders || len(x.Places) > MaxPlaces || len(x.Lengths) > MaxSizes {
		return trafficTrafficExpect{}, fmt.Errorf("%d octets of headers, %d of their mask: want at most %d", len(x.Want), len(x.Mask), MaxHeaders)
	}
	if x.Every < 1 || x.Every&(x.Every-1) != 0 {
		return trafficTrafficExpect{}, fmt.Errorf("one frame in %d is shown: want a power of two", x.Every)
	}
	entry := trafficTrafficExpect{Words: uint32(words), Places: uint32(len(x.Places)), Every: uint32(x.Every - 1)}
	for i := range x.Want {
		shift := 8 * (i % 8) // little endian, as the object is
		entry.Want[i/8] |= uint64(x.Want[i]&x.Mask[i]) << shift
		entry.Mask[i/8] |= uint64(x.Mask[i]) << shift
	}
	for i, n := range x.Lengths {
		entry.Length[i] = uint32(n)
	}
	putPlaces(entry.Place[:], x.Places)
	return entry, nil
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// reset forgets what the trial before left.
func (e *Engine) reset(streams int) error {
	cpus := ebpf.MustPossibleCPU()
	if err := errors.Join(put("reset the generator", e.objects.TrafficState, 0, &trafficTrafficState{}),
		put("reset the longest gap", e.objects.TrafficArrival, 0, &trafficTrafficArrival{}),
		put("reset the counters", e.objects.TrafficCounts, 0, make([]trafficTrafficCounts, cpus))); err != nil {
		return err
	}
	for i := range uint32(streams) {
		if err := put(fmt.Sprintf("reset stream %d", i), e.objects.TrafficStream, i, &trafficTrafficStream{}); err != nil {
			return err
		}
	}
	window, err := e.objects.TrafficWindow.Memory()
	if err != nil {
		return fmt.Errorf("map the window: %w", err)
	}
	if _, err := window.WriteAt(make([]byte, streams*Window*4), 0); err != nil {
		return fmt.Errorf("reset the window: %w", err)
	}
	keys := make([]uint32, buckets)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := e.objects.TrafficLatency.BatchUpdate(keys, make([]uint64, buckets*cpus), nil); err != nil {
		return fmt.Errorf("reset latencies: %w", err)
	}
	return nil
}
