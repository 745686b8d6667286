package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

const outer = netdev.HashSource | netdev.HashDestination

// fakeCard has two queues, which interrupt CPUs 0 and 1. It knows the flows in hash.
type fakeCard struct {
	name   string
	hash   map[netdev.FlowType]netdev.HashFields
	table  []uint32
	refuse error // of a new table
	feign  bool  // a hash is accepted, and nothing changes
	writes int
}

func (c *fakeCard) GTPUHash() (map[netdev.FlowType]netdev.HashFields, error) {
	return maps.Clone(c.hash), nil
}

func (c *fakeCard) SetGTPUHash(flow netdev.FlowType, fields netdev.HashFields) error {
	if c.feign {
		return nil
	}
	if _, there := c.hash[flow]; !there || fields == 0 {
		return &netdev.NotSupportedError{Device: c.name, Driver: "old", What: "a hash of " + string(flow)}
	}
	c.hash[flow] = fields
	c.writes++
	return nil
}

func (c *fakeCard) Table() ([]uint32, error) { return slices.Clone(c.table), nil }

func (c *fakeCard) SetTable(table []uint32) error {
	if c.refuse != nil && len(table) > 0 && !slices.Equal(table, c.table) {
		return c.refuse
	}
	if len(table) == 0 {
		table = []uint32{0, 0, 0, 0}
	}
	c.table = slices.Clone(table)
	c.writes++
	return nil
}

func (c *fakeCard) String() string { return fmt.Sprint(c.name, c.hash, c.table) }

// machine has cards and a data path.
type machine struct {
	*steering
	hardware map[string]*fakeCard
	xdp      datapath.Config
	modes    map[int]attach.Mode
	fails    error // the data path
	open     int
	booked   map[string]cardState // what another daemon would read
	full     error                // the disk
}

func (m *machine) put(name string, state cardState) error {
	if m.full == nil {
		m.booked[name] = state
	}
	return m.full
}

func (m *machine) remove(name string) error {
	delete(m.booked, name)
	return nil
}

func newMachine() *machine {
	m := &machine{hardware: map[string]*fakeCard{}, booked: map[string]cardState{}}
	for _, name := range []string{"n3", "n6"} {
		m.hardware[name] = &fakeCard{name: name, table: []uint32{0, 1, 0, 1}}
	}
	m.hardware["n3"].hash = map[netdev.FlowType]netdev.HashFields{"gtpu4": outer, "gtpu4e": outer, "gtpu4u": outer, "gtpu4d": outer}
	m.start()
	return m
}

// start begins anew, as a daemon that is started again.
func (m *machine) start() {
	m.steering = newSteering(func(c datapath.Config) error {
		if m.fails == nil {
			m.xdp = c
		}
		return m.fails
	}, func() map[int]attach.Mode { return m.modes }, func(name string) (*cardPort, error) {
		c := m.hardware[name]
		if c == nil {
			return nil, unix.ENODEV
		}
		m.open++
		return &cardPort{card: c, queues: map[uint32][]int{0: {0}, 1: {1}}, close: func() { m.open-- }}, nil
	}, m, maps.Clone(m.booked))
}

// byCards spreads over cpus by the method, with an N3 and an N6.
func byCards(method string, cpus ...int) plan.Spread {
	return plan.Spread{Config: datapath.Config{By: datapath.UE, CPUs: cpus}, Method: method,
		Cards: []plan.Card{{Name: "n3", Flows: netdev.FlowsOf5G(nil)}, {Name: "n6"}}}
}

// writes are those to all cards.
func (m *machine) writes() (n int) {
	for _, c := range m.hardware {
		n += c.writes
	}
	return n
}

func (m *machine) text() string {
	return fmt.Sprint(m.hardware["n3"], m.hardware["n6"], m.xdp.By, m.cards())
}

// TestCardsSpread: the cards hash the TEID, tables follow the CPUs live, and the end gives
// the cards back what they had.
func TestCardsSpread(t *testing.T) {
	m := newMachine()
	before := m.text()
	m.xdp.By = datapath.Flow // of an earlier configuration
	for _, step := range []struct {
		cpus  []int
		table []uint32
	}{{[]int{0, 1}, []uint32{0, 1, 0, 1}}, {[]int{1}, []uint32{1, 1, 1, 1}}, {[]int{0, 1}, []uint32{1, 1, 0, 0}}} {
		if err := m.apply(byCards(config.SpreadCard, step.cpus...)); err != nil {
			t.Fatal(err)
		}
		for name, c := range m.hardware {
			if !slices.Equal(c.table, step.table) {
				t.Errorf("CPUs %v: %s has %v, want %v", step.cpus, name, c.table, step.table)
			}
		}
		for flow, fields := range m.hardware["n3"].hash {
			if fields != outer|netdev.HashTEID {
				t.Errorf("CPUs %v: %s has %#x", step.cpus, flow, fields)
			}
		}
		if !slices.Equal(m.cards(), []string{"n3", "n6"}) {
			t.Errorf("CPUs %v: %v do it", step.cpus, m.cards())
		}
		if m.xdp.By != datapath.Off {
			t.Errorf("CPUs %v: the data path spreads by %s, too", step.cpus, m.xdp.By)
		}
	}
	writes := m.hardware["n3"].writes
	if err := m.apply(byCards(config.SpreadCard, 0, 1)); err != nil || m.hardware["n3"].writes != writes {
		t.Errorf("the same again: %v, %d writes", err, m.hardware["n3"].writes-writes)
	}
	only := byCards(config.SpreadCard, 1)
	only.Cards = only.Cards[:1]
	if err := m.apply(only); err != nil || !slices.Equal(m.hardware["n6"].table, []uint32{0, 1, 0, 1}) || !slices.Equal(m.hardware["n3"].table, []uint32{1, 1, 1, 1}) {
		t.Errorf("without N6: %v, %s", err, m.text())
	}
	if m.start(); len(m.former) != 1 { // N6 is given back already
		t.Fatalf("after a restart: %v", m.former)
	}
	if err := m.apply(byCards(config.SpreadCard, 1)); err != nil {
		t.Fatal(err)
	}
	m.start()
	if err := m.apply(plan.Spread{}); err != nil || m.text() != before || m.open != 0 || len(m.booked) > 0 {
		t.Errorf("the end: %v\n%s, want\n%s; %d left open", err, m.text(), before, m.open)
	}
}

// TestCardsThatCannot: an error names what to do, and no card has changed; with auto the
// data path does it.
func TestCardsThatCannot(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(m *machine)
		cpus    []int
		want    string
		rest    bool // no card can change that
	}{
		"no GTP-U":         {func(m *machine) { m.hardware["n3"].hash = nil }, []int{1}, "n3: driver old does not support a hash of gtpu4d: say method: xdp, or auto", false},
		"no 5G":            {func(m *machine) { delete(m.hardware["n3"].hash, "gtpu4u") }, []int{1}, "n3: driver old does not support a hash of gtpu4u", false},
		"it only says so":  {func(m *machine) { m.hardware["n3"].feign = true }, []int{1}, "n3: the card does not hash the TEID of gtpu4e, though its driver has accepted that", false},
		"the second card":  {func(m *machine) { m.hardware["n6"].refuse = unix.EBUSY }, []int{1}, "device or resource busy", false},
		"none there":       {func(m *machine) { delete(m.hardware, "n6") }, []int{1}, "no such device", false},
		"the disk is full": {func(m *machine) { m.full = unix.ENOSPC }, []int{1}, "n3: keep the card's settings: no space left on device", false},
		"no such CPU":      {func(*machine) {}, []int{4000}, "spread.cpus: CPU 4000 does not exist", true},
	} {
		m := newMachine()
		row.prepare(m)
		before := m.text()
		if err := m.apply(byCards(config.SpreadCard, row.cpus...)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
		if m.text() != before || m.open != 0 || len(m.booked) > 0 {
			t.Errorf("%s: %s, want as before: %s; %d left open", name, m.text(), before, m.open)
		}
		err := m.apply(byCards(config.SpreadAuto, row.cpus...))
		if (err != nil) != row.rest || m.xdp.By == datapath.UE == row.rest {
			t.Errorf("%s: auto: %v, by %s", name, err, m.xdp.By)
		}
		if n := m.writes(); n > 0 && m.hardware["n3"].hash == nil {
			t.Errorf("%s: %d writes to cards that cannot do it", name, n)
		}
	}
	m := newMachine()
	before := m.text()
	m.fails = errors.New("the data path fails")
	if err := m.apply(byCards(config.SpreadAuto, 1)); !errors.Is(err, m.fails) || m.text() != before {
		t.Errorf("%v, %s", err, m.text())
	}
}

// TestAutoTakesTheCard, and a card that goes away meanwhile is no error.
func TestAutoTakesTheCard(t *testing.T) {
	m := newMachine()
	if err := m.apply(byCards(config.SpreadAuto, 1)); err != nil || m.xdp.By != datapath.Off || m.hardware["n3"].table[0] != 1 {
		t.Errorf("%v, %s", err, m.text())
	}
	delete(m.hardware, "n6")
	if err := m.apply(byCards(config.SpreadXDP, 1)); err != nil || m.xdp.By != datapath.UE || m.hardware["n3"].table[0] != 0 || len(m.former) > 0 {
		t.Errorf("%v, %s", err, m.text())
	}
}

// TestSpreadInGenericMode: what the data path would not spread is refused, and nothing has
// changed. An interface of PFCP only does not matter.
func TestSpreadInGenericMode(t *testing.T) {
	for name, row := range map[string]struct {
		modes  map[int]attach.Mode
		method string
		refuse bool
	}{
		"native":              {map[int]attach.Mode{3: attach.ModeNative, 4: attach.ModeNative}, config.SpreadXDP, false},
		"N3 is generic":       {map[int]attach.Mode{3: attach.ModeGeneric, 4: attach.ModeNative}, config.SpreadXDP, true},
		"and its card cannot": {map[int]attach.Mode{3: attach.ModeGeneric}, config.SpreadAuto, true},
		"N4 is generic":       {map[int]attach.Mode{3: attach.ModeNative, 4: attach.ModeGeneric}, config.SpreadXDP, false},
	} {
		m := newMachine()
		m.hardware["n3"].hash = nil
		m.modes = row.modes
		before := m.text()
		c := byCards(row.method, 1)
		c.Cards = []plan.Card{{Name: "n3", Index: 3, Users: true, Flows: netdev.FlowsOf5G(nil)}, {Name: "n4", Index: 4}}
		err := m.apply(c)
		if row.refuse && (err == nil || !strings.Contains(err.Error(), "spread.by: n3 is attached in generic mode") || m.text() != before) {
			t.Errorf("%s: %v, %s", name, err, m.text())
		}
		if !row.refuse && (err != nil || m.xdp.By != datapath.UE) {
			t.Errorf("%s: %v, %s", name, err, m.text())
		}
		if err := m.apply(plan.Spread{}); err != nil {
			t.Errorf("%s: off: %v", name, err)
		}
	}
}

// TestCardWithFewerQueues: a card that no longer takes its former table gets its driver's.
func TestCardWithFewerQueues(t *testing.T) {
	m := newMachine()
	if err := m.apply(byCards(config.SpreadCard, 1)); err != nil {
		t.Fatal(err)
	}
	m.hardware["n6"].refuse = &netdev.NotSupportedError{Device: "n6", Driver: "old", What: "this indirection table"}
	if err := m.apply(plan.Spread{}); err != nil || !slices.Equal(m.hardware["n6"].table, []uint32{0, 0, 0, 0}) || len(m.former) > 0 {
		t.Errorf("%v, %s", err, m.text())
	}
	m = newMachine()
	if err := m.apply(byCards(config.SpreadCard, 1)); err != nil {
		t.Fatal(err)
	}
	m.hardware["n6"].refuse = unix.EBUSY
	if err := m.apply(plan.Spread{}); !errors.Is(err, unix.EBUSY) || m.hardware["n3"].table[0] != 0 {
		t.Errorf("a busy card: %v, %s", err, m.text())
	}
	m.hardware["n6"].refuse = nil
	if err := m.apply(plan.Spread{}); err != nil || m.hardware["n6"].table[0] != 0 || len(m.former) > 0 {
		t.Errorf("the same again: %v, %s", err, m.text())
	}
}

// TestCardOfThisMachine: a veth's driver is named.
func TestCardOfThisMachine(t *testing.T) {
	ns := netns.New(t)
	netns.Veth(t, ns, "n3", ns, "v1")
	ns.Do(t, func() {
		s := newSteering(func(datapath.Config) error { return errors.New("the data path is asked") }, func() map[int]attach.Mode { return nil }, openCard, nil, map[string]cardState{})
		c := byCards(config.SpreadCard)
		if err := s.apply(c); err == nil || !strings.Contains(err.Error(), "n3: driver veth does not support an indirection table: say method: xdp") {
			t.Error(err)
		}
		c.Cards = []plan.Card{{Name: "none"}}
		if err := s.apply(c); !errors.Is(err, unix.ENODEV) {
			t.Errorf("a card that is not there: %v", err)
		}
		by := datapath.Off // what auto falls to, without an error
		s.set = func(c datapath.Config) error { by = c.By; return nil }
		if err := s.apply(byCards(config.SpreadAuto)); err != nil || by != datapath.UE || len(s.cards()) > 0 {
			t.Errorf("auto: %v, by %s, cards %v", err, by, s.cards())
		}
	})
}
