package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Injection is a candidate path for some headends.
type Injection struct {
	srpolicy.Advertised
	// Headends are the router IDs of the headends that it is for; none: every peer.
	Headends []netip.Addr
}

// Event is a change of what an Injector advertises.
type Event struct {
	Op   string // add, replace, withdraw
	Path srpolicy.Advertised
}

// Injector advertises a list of candidate paths: a central speaker for headends.
type Injector struct {
	speaker *Speaker
	now     map[key]Injection
}

// NewInjector returns an Injector that advertises nothing yet.
func NewInjector(s *Speaker) *Injector { return &Injector{s, map[key]Injection{}} }

// mostHeadends is how many headends an update names at most: with the longest policy
// they fit a message of 65,535 octets (RFC 8654). About 200 fit one of 4,096.
const mostHeadends = 7000

// CheckInjections returns the errors of a list by field, such as "[2].color".
func CheckInjections(list []Injection) []srv6.FieldError {
	var errs []srv6.FieldError
	first := map[key]int{}
	for i, v := range list {
		add := func(field, problem, fix string) {
			errs = append(errs, srv6.FieldError{Field: fmt.Sprintf("[%d].%s", i, field), Problem: problem, Fix: fix})
		}
		for _, e := range v.Validate() {
			add(e.Field, e.Problem, e.Fix)
		}
		if j, twice := first[keyOf(v.Advertised)]; twice {
			add("distinguisher", fmt.Sprintf("color, endpoint and distinguisher are those of [%d]", j), "give each candidate path its own distinguisher")
		}
		first[keyOf(v.Advertised)] = i
		for _, f := range [][2]string{{"name", v.Name}, {"policy_name", v.PolicyName}} {
			switch kept := nameOf(f[1]); {
			case kept == f[1]:
			case kept == "":
				add(f[0], "has characters that BGP cannot carry", "give printable characters of ASCII")
			default:
				add(f[0], fmt.Sprintf("has %d characters", len(f[1])), fmt.Sprintf("give at most %d", maxName))
			}
		}
		for j, id := range v.Headends {
			if !id.Is4() {
				add(fmt.Sprintf("headends[%d]", j), fmt.Sprintf("%s is no router ID", id), "give the headend's bgp.router_id, an IPv4 address")
			}
		}
		if n := len(v.Headends); n > mostHeadends {
			add("headends", fmt.Sprintf("has %d", n), fmt.Sprintf("give at most %d, and the rest with another distinguisher", mostHeadends))
		}
	}
	return errs
}

// Set advertises exactly a list: it adds new paths, replaces changed ones and
// withdraws missing ones. A list with errors changes nothing.
func (in *Injector) Set(list []Injection) ([]Event, error) {
	if errs := CheckInjections(list); len(errs) > 0 {
		all := make([]error, len(errs))
		for i, e := range errs {
			all[i] = e
		}
		return nil, errors.Join(all...)
	}
	var events []Event
	next := map[key]Injection{}
	for _, v := range list {
		k := keyOf(v.Advertised)
		next[k] = v
		old, there := in.now[k]
		if there && reflect.DeepEqual(old, v) {
			continue
		}
		if err := in.speaker.Advertise(v.Advertised, v.Headends); err != nil {
			return events, err
		}
		in.now[k] = v
		op := "add"
		if there {
			op = "replace"
		}
		events = append(events, Event{op, v.Advertised})
	}
	byPolicy := func(a, b key) int {
		return cmp.Or(cmp.Compare(a.color, b.color), a.endpoint.Compare(b.endpoint), cmp.Compare(a.distinguisher, b.distinguisher))
	}
	for _, k := range slices.SortedFunc(maps.Keys(in.now), byPolicy) {
		if _, stays := next[k]; stays {
			continue
		}
		old := in.now[k]
		if err := in.speaker.Withdraw(old.Advertised); err != nil {
			return events, err
		}
		delete(in.now, k)
		events = append(events, Event{"withdraw", old.Advertised})
	}
	return events, nil
}
