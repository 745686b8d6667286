package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/spread"
)

// steering has the data path or the cards bring packets to CPUs.
type steering struct {
	set    func(datapath.Config) error // in the data path
	open   func(name string) (*cardPort, error)
	former map[string]cardState // of the cards that were changed, before that
	used   []string             // the cards that do it
}

// cardPort is the card of an interface.
type cardPort struct {
	card
	queues map[uint32][]int // the CPUs that each queue interrupts
	close  func()
}

// card is what steering needs of *netdev.Card.
type card interface {
	GTPUHash() (map[netdev.FlowType]netdev.HashFields, error)
	SetGTPUHash(netdev.FlowType, netdev.HashFields) error
	Table() ([]uint32, error)
	SetTable([]uint32) error
}

// cardState is what of a card is changed.
type cardState struct {
	hash  map[netdev.FlowType]netdev.HashFields
	table []uint32
}

func newSteering(set func(datapath.Config) error, open func(string) (*cardPort, error)) *steering {
	return &steering{set: set, open: open, former: map[string]cardState{}}
}

func openCard(name string) (*cardPort, error) {
	interrupts, err := netdev.Interrupts("/proc", "/sys", name)
	if err != nil {
		return nil, err
	}
	inspector, err := netdev.NewInspector()
	if err != nil {
		return nil, err
	}
	c, err := inspector.Card(name)
	if err != nil {
		inspector.Close()
		return nil, err
	}
	p := &cardPort{card: c, queues: map[uint32][]int{}, close: inspector.Close}
	for queue, i := range interrupts {
		p.queues[uint32(queue)] = i.CPUs
	}
	return p, nil
}

// apply has either of them do it, as configured. After an error the cards are as they
// were.
func (s *steering) apply(c plan.Spread) error {
	if c.By == datapath.Off {
		return s.byDataPath(c.Config)
	}
	if err := fillCPUs(&c.Config); err != nil {
		return err
	}
	if c.Method == config.SpreadXDP {
		return s.byDataPath(c.Config)
	}
	undo, err := s.steer(c.Cards, c.CPUs)
	switch {
	case err == nil:
		if err = s.set(datapath.Config{}); err != nil {
			return errors.Join(err, undo())
		}
		s.used = nil
		for _, card := range c.Cards {
			s.used = append(s.used, card.Name)
		}
		return s.release(c.Cards)
	case c.Method == config.SpreadAuto:
		return s.byDataPath(c.Config)
	}
	return fmt.Errorf("spread.method card: %w: say method: xdp, or auto", err)
}

// cards are the interfaces whose cards do it.
func (s *steering) cards() []string { return s.used }

// byDataPath has the data path spread, or nobody.
func (s *steering) byDataPath(c datapath.Config) error {
	if err := s.set(c); err != nil {
		return err
	}
	s.used = nil
	return s.release(nil)
}

// fillCPUs fills in what the configuration leaves to the machine, and refuses what that
// lacks.
func fillCPUs(c *datapath.Config) error {
	online, err := config.OnlineCPUs()
	if err != nil {
		return fmt.Errorf("spread: %w", err)
	}
	if len(c.CPUs) == 0 {
		c.CPUs = online
	}
	for _, cpu := range c.CPUs {
		if !slices.Contains(online, cpu) {
			return fmt.Errorf("spread.cpus: CPU %d is not online on this machine, which has %s", cpu, online)
		}
	}
	return nil
}

// steer has all the cards bring packets to the CPUs, or changes none.
func (s *steering) steer(cards []plan.Card, cpus []int) (undo func() error, err error) {
	before := map[string]cardState{}
	undo = func() error { return s.restore(before) }
	for _, c := range cards {
		if err := s.steerOne(c, cpus, before); err != nil {
			return nil, errors.Join(err, undo())
		}
	}
	for name, state := range before {
		if _, there := s.former[name]; !there {
			s.former[name] = state
		}
	}
	return undo, nil
}

// steerOne changes a card, and remembers in before what it was.
func (s *steering) steerOne(c plan.Card, cpus []int, before map[string]cardState) error {
	p, err := s.open(c.Name)
	if err != nil {
		return err
	}
	defer p.close()
	var was cardState
	if was.table, err = p.Table(); err != nil {
		return err
	}
	table, err := spread.PlanCard(was.table, p.queues, cpus)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if was.hash, err = p.GTPUHash(); err != nil {
		return err
	}
	before[c.Name] = was
	if len(c.Flows) > 0 {
		if err := hashTEID(p, c, was.hash); err != nil {
			return err
		}
	}
	if slices.Equal(table, was.table) {
		return nil
	}
	return p.SetTable(table)
}

// hashTEID has a card hash the TEID of the flows that come, and of others that it knows.
// An error names the driver that cannot, or does not though it has said so.
func hashTEID(p card, c plan.Card, was map[netdev.FlowType]netdev.HashFields) error {
	flows := slices.AppendSeq(slices.Clone(c.Flows), maps.Keys(was))
	slices.Sort(flows)
	for _, flow := range slices.Compact(flows) {
		if was[flow]&netdev.HashTEID != 0 {
			continue
		}
		if err := p.SetGTPUHash(flow, netdev.HashSource|netdev.HashDestination|netdev.HashTEID); err != nil {
			return err
		}
	}
	is, err := p.GTPUHash()
	if err != nil {
		return err
	}
	for _, flow := range c.Flows {
		if is[flow]&netdev.HashTEID == 0 {
			return fmt.Errorf("%s: the card does not hash the TEID of %s, though its driver has accepted that", c.Name, flow)
		}
	}
	return nil
}

// release gives the cards back what they had, but those that are used.
func (s *steering) release(used []plan.Card) error {
	free := maps.Clone(s.former)
	for _, c := range used {
		delete(free, c.Name)
	}
	if err := s.restore(free); err != nil {
		return err
	}
	maps.DeleteFunc(s.former, func(name string, _ cardState) bool {
		_, is := free[name]
		return is
	})
	return nil
}

// restore sets what cards were. Those that are gone need nothing. A hash that a card did
// not have stays: drivers refuse to take it away.
func (s *steering) restore(states map[string]cardState) (err error) {
	for name, state := range states {
		p, openErr := s.open(name)
		if errors.Is(openErr, unix.ENODEV) {
			continue
		}
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		for flow, fields := range state.hash {
			err = errors.Join(err, p.SetGTPUHash(flow, fields))
		}
		tableErr := p.SetTable(state.table)
		if not := (*netdev.NotSupportedError)(nil); errors.As(tableErr, &not) { // it has other queues by now
			tableErr = p.SetTable(nil)
		}
		err = errors.Join(err, tableErr)
		p.close()
	}
	return err
}
