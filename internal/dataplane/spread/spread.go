package spread

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// By is what is kept in order.
type By uint8

// What is kept in order.
const (
	Off  By = iota // packets stay where they were received
	UE             // the packets of a UE, in each direction
	Flow           // the packets of a flow inside the tunnel
)

// String is the configuration's word.
func (b By) String() string { return [...]string{"off", "ue", "flow"}[b] }

// Room is how many packets a CPU's queue holds. The kernel's own has slack beside: it
// clears the places of packets that were taken 16 at a time (ptr_ring), and drops what it
// finds no place for.
const (
	Room  = 2048
	slack = 64
)

// Config says which CPUs handle packets.
type Config struct {
	By   By
	CPUs []int
}

// Tables are the maps of this package.
type Tables struct {
	Settings *table.Array[abi.Spread]       `map:"spread_settings"`
	Buckets  *table.Array[abi.SpreadBucket] `map:"spread_bucket"`
	Queues   *table.Array[abi.SpreadQueue]  `map:"spread_queue"`
	CPU      *ebpf.Map                      `map:"spread_cpu"`
	CPU2     *ebpf.Map                      `map:"spread_cpu2"`
}

// Programs are what spreading needs beside the data path's own.
type Programs struct {
	Send    *ebpf.Program // on interfaces
	Receive *ebpf.Program // on the CPUs
}

// Spread sends packets to CPUs.
type Spread struct {
	mu       sync.Mutex
	t        Tables
	load     func() (Programs, error)
	attach   func(*ebpf.Program) error // to all interfaces; nil: the data path's own
	programs Programs                  // zero: not loaded
	cpus     []int                     // that are wanted
	second   bool                      // which of the maps has this build's program
	waits    map[uint32]*wait          // buckets that move
	lost     uint64
	weak     error // why threads have no real-time priority
}

// Open spreads as an earlier daemon did. It calls load once the programs are needed, and
// attach to have the interfaces run one.
func Open(t Tables, load func() (Programs, error), attach func(*ebpf.Program) error) (*Spread, error) {
	s := &Spread{t: t, load: load, attach: attach, waits: map[uint32]*wait{}}
	if t.Settings.Get(0).Room == 0 { // nobody has spread yet
		for i := range t.Buckets.Len {
			t.Buckets.Store(i, wordNext, uint64(here))
			t.Buckets.Store(i, wordPlace, here.word())
		}
		t.Settings.Put(0, &abi.Spread{By: uint32(Off), Room: Room})
	}
	if s.by() == Off {
		return s, nil
	}
	s.cpus = s.placed()
	return s, s.takeOver()
}

func (s *Spread) by() By { return By(s.t.Settings.Get(0).By) }

// Set starts, changes or ends spreading. After an error everything goes on as it was.
func (s *Spread) Set(c Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.By == Off {
		return s.end()
	}
	if err := checkCPUs(c.CPUs); err != nil {
		return err
	}
	if err := s.loadPrograms(); err != nil {
		return err
	}
	for _, cpu := range c.CPUs {
		if err := s.openQueue(s.placeOf(cpu)); err != nil {
			return err
		}
	}
	s.cpus = slices.Sorted(slices.Values(c.CPUs))
	s.t.Settings.Put(0, &abi.Spread{By: uint32(c.By), Room: Room})
	s.weak = s.raise()
	s.scatter()
	s.settle()
	if err := s.attach(s.programs.Send); err != nil {
		return fmt.Errorf("spread: %w", err)
	}
	return nil
}

func checkCPUs(cpus []int) error {
	if len(cpus) == 0 {
		return errors.New("spread: no CPU is named")
	}
	for _, cpu := range cpus {
		if cpu < 0 || cpu >= min(ebpf.MustPossibleCPU(), int(abi.SpreadPlaceSPREAD_SECOND)) {
			return fmt.Errorf("spread: CPU %d does not exist: this machine has 0 to %d", cpu, ebpf.MustPossibleCPU()-1)
		}
	}
	return nil
}

func (s *Spread) loadPrograms() (err error) {
	if s.programs.Send == nil {
		s.programs, err = s.load()
	}
	return err
}

// openQueue has a CPU's thread run this build's program, unless it does. A queue that
// is there is never written again: the kernel would begin another beside it.
func (s *Spread) openQueue(p place) error {
	if s.hasQueue(p.cpu(), p.second()) {
		return nil
	}
	v := abi.BpfCpumapVal{Qsize: Room + slack}
	v.BpfProg.Fd = int32(s.programs.Receive.FD())
	if err := s.mapOf(p.second()).Put(uint32(p.cpu()), &v); err != nil {
		return fmt.Errorf("spread: begin a queue on CPU %d: %w", p.cpu(), err)
	}
	return nil
}

func (s *Spread) hasQueue(cpu int, second bool) bool {
	var there abi.BpfCpumapVal
	return s.mapOf(second).Lookup(uint32(cpu), &there) == nil && there.Qsize != 0
}

func (s *Spread) mapOf(second bool) *ebpf.Map {
	if second {
		return s.t.CPU2
	}
	return s.t.CPU
}

// placed are the CPUs that buckets are on.
func (s *Spread) placed() []int {
	cpus := map[int]bool{}
	for i := range s.t.Buckets.Len {
		if p := s.next(i); p.queued() {
			cpus[p.cpu()] = true
		}
	}
	list := []int{}
	for cpu := range cpus {
		list = append(list, cpu)
	}
	slices.Sort(list)
	return list
}

// takeOver lets this build's program handle what CPUs get from now on: in the map that
// no bucket uses.
func (s *Spread) takeOver() error {
	used := [2]bool{}
	for i := range s.t.Buckets.Len {
		for _, p := range []place{s.at(i), s.next(i)} {
			if p.queued() {
				used[index(p.second())] = true
			}
		}
	}
	if used[0] && used[1] { // an earlier daemon ended while it did this
		s.finish(time.Second)
	}
	s.second = !s.placedSecond()
	if err := s.loadPrograms(); err != nil {
		return err
	}
	for _, cpu := range s.cpus {
		if err := s.reopen(s.placeOf(cpu)); err != nil {
			return err
		}
	}
	for i := range s.t.Buckets.Len {
		if p := s.next(i); p.queued() {
			s.aim(i, s.placeOf(p.cpu()))
		}
	}
	s.weak = s.raise()
	s.settle()
	return s.attach(s.programs.Send)
}

// Weak says why the queues' threads do not run before ordinary tasks: queues may overflow
// while the machine is busy. Nil: they do.
func (s *Spread) Weak() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.weak
}

// reopen is openQueue where an earlier build's queue may be left, which is empty.
func (s *Spread) reopen(p place) error {
	if err := s.closeQueue(p); err != nil {
		return err
	}
	return s.openQueue(p)
}

func (s *Spread) closeQueue(p place) error {
	if err := s.mapOf(p.second()).Delete(uint32(p.cpu())); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("spread: end the queue of CPU %d: %w", p.cpu(), err)
	}
	return nil
}

// placedSecond says which of the maps buckets are in.
func (s *Spread) placedSecond() bool {
	for i := range s.t.Buckets.Len {
		if p := s.next(i); p.queued() {
			return p.second()
		}
	}
	return s.second
}

func index(second bool) int {
	if second {
		return 1
	}
	return 0
}

// end has packets handled where they are received.
func (s *Spread) end() error {
	if s.by() == Off {
		return nil
	}
	for i := range s.t.Buckets.Len {
		s.aim(i, here)
	}
	s.finish(time.Second)
	if err := s.attach(nil); err != nil {
		return fmt.Errorf("spread: %w", err)
	}
	s.t.Settings.Put(0, &abi.Spread{By: uint32(Off), Room: Room})
	s.cpus = nil
	return s.reap()
}

// finish settles until no bucket moves, or d is over.
func (s *Spread) finish(d time.Duration) {
	for end := time.Now().Add(d); s.settle() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Close lets go of the programs. Spreading goes on.
func (s *Spread) Close() error {
	if s == nil || s.programs.Send == nil {
		return nil
	}
	return errors.Join(s.programs.Send.Close(), s.programs.Receive.Close())
}
