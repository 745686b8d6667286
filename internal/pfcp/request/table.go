package request

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// update says that a rule exists already: what the request does not name stays,
// and what it names with an empty value goes (TS 29.244 section 5.6.3).
type update bool

const (
	create  update = false
	changes update = true
)

// row says what is done with one IE of a group.
type row[T any] struct {
	ie   uint16 // go-pfcp's constant has the name in TS 29.244
	is   kind
	read func(_ *Builder, _ wire.IE, to T) // nil: refused with Cause 76 (service not supported)
	// clear removes what the IE sets. It is called in place of read for an
	// update with an empty value, and before the first IE of a list. nil: read
	// gets the empty value.
	clear func(to T)
}

// kind says how often an IE occurs.
type kind uint8

const (
	mandatory kind = 1 << iota // in a Create: refused with Cause 66 without it
	once                       // only the first of several counts
	list                       // several make a list, which replaces the old one
	removable                  // an update may remove it, although we never have it
)

// group is the table of a grouped IE, or of a message.
type group[T any] struct {
	rows  []row[T]
	index [maxIE]uint8 // by the IE's number: the row's index + 1
	must  seen         // rows of mandatory IEs
}

// maxIE is above the highest IE number that has a row.
const maxIE = 512

// newGroup makes a table. same are IEs with another number in an update, and
// the number of their rows.
func newGroup[T any](same map[uint16]uint16, rows ...[]row[T]) *group[T] {
	g := &group[T]{rows: slices.Concat(rows...)}
	for i, r := range g.rows {
		g.index[r.ie] = uint8(i + 1)
		if r.is&mandatory != 0 {
			g.must |= 1 << i
		}
	}
	for t, row := range same {
		g.index[t] = g.index[row]
	}
	return g
}

// refused are the rows of IEs that nobody reads.
func refused[T any](is kind, ieTypes ...uint16) (rows []row[T]) {
	for _, t := range ieTypes {
		rows = append(rows, row[T]{ie: t, is: is})
	}
	return rows
}

// seen are the rows whose IEs a group had.
type seen uint64

func (g *group[T]) has(s seen, ieType uint16) bool { return s>>(g.index[ieType]-1)&1 != 0 }

// read reads the IEs of l into to, and returns which of the rows it read.
func (g *group[T]) read(b *Builder, to T, l wire.IEs, u update) (s seen) {
	for i := range b.Each(l) {
		ieType := i.Type()
		if ieType >= maxIE || g.index[ieType] == 0 {
			continue
		}
		n := g.index[ieType] - 1
		r := &g.rows[n]
		again := s>>(n&63)&1 != 0
		s |= 1 << (n & 63)
		empty := u == changes && len(i.Value()) == 0
		switch {
		case again && (r.is&once != 0 || r.is&list != 0 && empty):
		case empty && r.clear != nil:
			r.clear(to)
		case empty && r.is&removable != 0:
		case r.read == nil:
			i.Unsupported()
		default:
			if r.is&list != 0 && !again {
				r.clear(to)
			}
			r.read(b, i, to)
		}
	}
	return s
}

// complete fails the request for the first mandatory IE that is missing.
func (g *group[T]) complete(b *Builder, s seen) {
	if missing := g.must &^ s; missing != 0 {
		b.Fail(wire.Missing(g.rows[bits.TrailingZeros64(uint64(missing))].ie))
	}
}

// ruleType says where a session has its rules of a kind, and how they are read.
type ruleType[R any, K ~uint8 | ~uint16 | ~uint32] struct {
	kind   session.RuleKind
	idIE   uint16
	octets int // of the ID
	list   func(*session.Session) *[]R
	id     func(*R) *K
	ies    *group[*R]
	// after checks a rule whose IEs are read; nil: nothing to check.
	after func(b *Builder, r *R, u update, s seen)
}

// own returns the list of rules to be changed. The first change makes a copy:
// the session as it is stays.
func (t *ruleType[R, K]) own(b *Builder) *[]R {
	rules := t.list(b.To)
	if !b.owned[t.kind] {
		*rules = slices.Clone(*rules)
		b.owned[t.kind] = true
	}
	return rules
}

// Errors that only the log shows.
var (
	errExists  = errors.New("a rule with this ID exists already")
	errUnknown = errors.New("no rule has this ID")
)

// idOf returns the ID in a rule's IEs: it may stand anywhere among them.
func (t *ruleType[R, K]) idOf(b *Builder, l wire.IEs) (id K) {
	found := false
	for i := range b.Each(l) {
		if i.Type() == t.idIE && !found {
			found = true
			id = K(i.Uint(t.octets))
		}
	}
	if !found {
		b.Fail(wire.Missing(t.idIE))
	}
	return id
}

// read reads a Create or Update of a rule.
func (t *ruleType[R, K]) read(b *Builder, l wire.IEs, u update) {
	id := t.idOf(b, l)
	rules := t.own(b)
	if b.Err != nil {
		return
	}
	at, found := session.Find(*rules, id, t.id)
	switch {
	case found && u == create:
		b.Fail(wire.FailedRule(t.kind, uint32(id), errExists))
		return
	case !found && u == changes:
		b.Fail(wire.FailedRule(t.kind, uint32(id), errUnknown))
		return
	case !found:
		var empty R
		*rules = slices.Insert(*rules, at, empty)
	}
	r := &(*rules)[at]
	*t.id(r) = id
	b.update = u
	s := t.ies.read(b, r, l, u)
	if u == create {
		t.ies.complete(b, s)
	}
	if t.after != nil {
		t.after(b, r, u, s)
	}
}

// remove reads a Remove of a rule. The SMF of SD-Core repeats it for a QER that two PDRs had.
func (t *ruleType[R, K]) remove(b *Builder, l wire.IEs) {
	rules := t.own(b)
	id := t.idOf(b, l)
	if b.Err != nil {
		return
	}
	at, found := session.Find(*rules, id, t.id)
	is := removed{t.kind, uint32(id)}
	switch {
	case found:
		*rules = slices.Delete(*rules, at, at+1)
		b.removed = append(b.removed, is)
	case !slices.Contains(b.removed, is):
		b.Fail(wire.FailedRule(t.kind, uint32(id), errUnknown))
	}
}

// The rows of a request for a type of rule.
func (t *ruleType[R, K]) created(b *Builder, i wire.IE, _ *session.Session) {
	t.read(b, i.Value(), create)
}
func (t *ruleType[R, K]) updated(b *Builder, i wire.IE, _ *session.Session) {
	t.read(b, i.Value(), changes)
}
func (t *ruleType[R, K]) removed(b *Builder, i wire.IE, _ *session.Session) { t.remove(b, i.Value()) }
