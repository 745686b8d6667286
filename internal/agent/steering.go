package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/spread"
)

// steering has the data path or the cards bring packets to CPUs.
type steering struct {
	set    func(datapath.Config) error // in the data path
	modes  func() map[int]attach.Mode  // of interfaces by index
	open   func(name string) (*cardPort, error)
	book   book                 // what it has of former
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

// book is what steering needs of cardBook.
type book interface {
	put(name string, state cardState) error
	remove(name string) error
}

func newSteering(set func(datapath.Config) error, modes func() map[int]attach.Mode, open func(string) (*cardPort, error), b book, former map[string]cardState) *steering {
	return &steering{set: set, modes: modes, open: open, book: b, former: former}
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
		return s.byDataPath(c)
	}
	cpus, err := config.CPUs(c.CPUs).Usable()
	if err != nil {
		return err
	}
	c.CPUs = cpus
	if c.Method == config.SpreadXDP {
		return s.byDataPath(c)
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
		return s.byDataPath(c)
	}
	return fmt.Errorf("spread.method card: %w: say method: xdp, or auto", err)
}

// cards are the interfaces whose cards do it.
func (s *steering) cards() []string { return s.used }

// byDataPath has the data path spread, or nobody.
func (s *steering) byDataPath(c plan.Spread) error {
	if err := s.checkModes(c); err != nil {
		return err
	}
	if err := s.set(c.Config); err != nil {
		return err
	}
	s.used = nil
	return s.release(nil)
}

// checkModes refuses an interface whose packets the data path would not spread.
func (s *steering) checkModes(c plan.Spread) error {
	modes := s.modes()
	for _, card := range c.Cards {
		if c.By != datapath.Off && card.Users && modes[card.Index] == attach.ModeGeneric {
			return config.Errors{{
				Field: "spread.by", Problem: card.Name + " is attached in generic mode, in which packets are not spread: its driver does not support native XDP, or its mode is generic",
				Fix: "say by: off, or method: card",
			}}
		}
	}
	return nil
}

// steer has all the cards bring packets to the CPUs, or changes none.
func (s *steering) steer(cards []plan.Card, cpus []int) (undo func() error, err error) {
	before := map[string]cardState{}
	known := maps.Clone(s.former)
	undo = func() error {
		if err := s.restore(before); err != nil {
			return err
		}
		return s.forget(func(name string) bool { _, there := known[name]; return !there })
	}
	var changes []cardChange
	defer func() {
		for _, c := range changes {
			c.close()
		}
	}()
	for _, c := range cards { // all of them before any changes
		change, err := s.look(c, cpus)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	if err := s.change(changes, before); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// cardChange is what a card is, and is to be.
type cardChange struct {
	*cardPort
	plan.Card

	was   cardState
	table []uint32
}

// look only reads. The caller closes what it returns.
func (s *steering) look(c plan.Card, cpus []int) (change cardChange, err error) {
	change.Card = c
	if change.cardPort, err = s.open(c.Name); err != nil {
		return change, err
	}
	defer func() {
		if err != nil {
			change.close()
		}
	}()
	if change.was.Table, err = change.cardPort.Table(); err != nil {
		return change, err
	}
	if change.table, err = spread.PlanCard(change.was.Table, change.queues, cpus); err != nil {
		return change, fmt.Errorf("%s: %w", c.Name, err)
	}
	change.was.Hash, err = change.GTPUHash()
	return change, err
}

// change remembers in before what the cards were. Their hashes come first: that is what
// most cannot do.
func (s *steering) change(changes []cardChange, before map[string]cardState) error {
	for _, c := range changes {
		if err := s.remember(c.Name, c.was); err != nil {
			return err
		}
		before[c.Name] = c.was
		if len(c.Flows) > 0 {
			if err := hashTEID(c, c.Card, c.was.Hash); err != nil {
				return err
			}
		}
	}
	for _, c := range changes {
		if slices.Equal(c.table, c.was.Table) {
			continue
		}
		if err := c.SetTable(c.table); err != nil {
			return err
		}
	}
	return nil
}

// remember keeps what a card was before its first change: that comes after.
func (s *steering) remember(name string, was cardState) error {
	if _, there := s.former[name]; there {
		return nil
	}
	if err := s.book.put(name, was); err != nil {
		return fmt.Errorf("%s: keep the card's settings: %w", name, err)
	}
	s.former[name] = was
	return nil
}

// forget ends that for some of the cards.
func (s *steering) forget(some func(name string) bool) (err error) {
	for name := range s.former {
		if !some(name) {
			continue
		}
		if e := s.book.remove(name); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: forget the card's settings: %w", name, e))
			continue
		}
		delete(s.former, name)
	}
	return err
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
	return s.forget(func(name string) bool { _, is := free[name]; return is })
}

// restore sets what cards were. Those that are gone need nothing.
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
		err = errors.Join(err, restoreOne(p, state))
		p.close()
	}
	return err
}

// restoreOne writes nothing that is there: for a driver a table that was set is another
// thing than its own. A hash that a card did not have stays: drivers refuse to take it away.
func restoreOne(p card, state cardState) error {
	hash, err := p.GTPUHash()
	for flow, fields := range state.Hash {
		if hash[flow] != fields {
			err = errors.Join(err, p.SetGTPUHash(flow, fields))
		}
	}
	table, tableErr := p.Table()
	if tableErr == nil && !slices.Equal(table, state.Table) {
		tableErr = p.SetTable(state.Table)
	}
	if not := (*netdev.NotSupportedError)(nil); errors.As(tableErr, &not) { // it has other queues by now
		tableErr = p.SetTable(nil)
	}
	return errors.Join(err, tableErr)
}
