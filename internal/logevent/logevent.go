// Package logevent has the names of what the daemon logs. A line at level info or above has the
// key event with one of them: alerts and tools look for the name, and texts may change.
//
// A new event is a variable in the file of its subject, with its level, what it means, and what
// an operator does about it. docs/reference/events.md is made from these. A name stays and keeps
// its meaning: testdata/published.txt holds every name that there was.
package logevent

import (
	"log/slog"
	"slices"
	"strings"
)

// Event is something that the daemon logs. Log calls have it as value of the key event:
//
//	log.Warn("BGP session is down", "event", logevent.BGPSessionDown, "peer", peer)
type Event struct {
	name    string
	level   slog.Level
	meaning string
	action  string
}

var defined []*Event

func define(name string, level slog.Level, meaning, action string) *Event {
	e := &Event{name, level, meaning, action}
	defined = append(defined, e)
	return e
}

// All returns every event in the order of their names.
func All() []*Event {
	list := slices.Clone(defined)
	slices.SortFunc(list, func(a, b *Event) int { return strings.Compare(a.name, b.name) })
	return list
}

// Name is what the key event holds: the subject, a dot, and what happened.
func (e *Event) Name() string { return e.name }

// Level is the level of the event's lines.
func (e *Event) Level() slog.Level { return e.level }

// Meaning says what has happened, and what follows.
func (e *Event) Meaning() string { return e.meaning }

// Action says what an operator does; empty: nothing.
func (e *Event) Action() string { return e.action }

// LogValue has log lines hold the name.
func (e *Event) LogValue() slog.Value { return slog.StringValue(e.name) }
