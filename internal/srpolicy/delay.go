package srpolicy

import (
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/srv6"
)

// DelayConstraint has a candidate path choose among its lists by the delay that probes measure
// (RFC 9256 section 5). It is a round trip: the list's way, and the way back to this node.
type DelayConstraint struct {
	// DelayBound is the longest round trip: lists above it carry nothing, and a path without a
	// list within it is not valid. Default: none.
	DelayBound Duration `json:"delay_bound,omitempty"`
	// LowestDelay has only the lists with the lowest round trip carry packets.
	LowestDelay bool `json:"lowest_delay,omitempty"`
}

// IsSet says whether there is a constraint.
func (c DelayConstraint) IsSet() bool { return c != DelayConstraint{} }

// Or is c, with what others say where c says nothing.
func (c DelayConstraint) Or(others DelayConstraint) DelayConstraint {
	if c.DelayBound == 0 {
		c.DelayBound = others.DelayBound
	}
	c.LowestDelay = c.LowestDelay || others.LowestDelay
	return c
}

// longestBound is more than any path takes: a longer bound is a slip.
const longestBound = Duration(10 * time.Second)

// Check returns what is wrong with a constraint.
func (c DelayConstraint) Check() []srv6.FieldError {
	var errs faults
	if c.DelayBound < 0 || c.DelayBound > longestBound {
		errs.add("delay_bound", fmt.Sprintf("more than 0s, and at most %s", time.Duration(longestBound)), "is %s", c.DelayBound)
	}
	return errs
}

// Duration is a time as text with its unit, such as 15ms or 800us.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration with its unit.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText fails for a number without a unit, and for 0.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v == 0 {
		return errors.New("give a time with its unit, such as 15ms or 800us")
	}
	*d = Duration(v)
	return nil
}

// Standing is what the delay of a list makes of it in its candidate path. The zero value: the list
// carries packets.
type Standing struct {
	// Above: the round trip is longer than the bound, as far as is known. If no list of a path is
	// within it, those that are not aside carry packets.
	Above bool
	// Aside says why the list carries nothing, though it is not above the bound, or no list is
	// within it. Empty: it carries packets.
	Aside string
}

// why says why a list carries nothing for its delay.
func (s Standing) why(c DelayConstraint) string {
	if s.Aside != "" {
		return s.Aside
	}
	return fmt.Sprintf("its round trip is above delay_bound %s", c.DelayBound)
}

// Standings are those of the lists of candidate paths, by PathKey, and then by SegmentList.Key.
type Standings map[string]map[string]Standing

// PathKey names a candidate path; path is empty for the policy's own lists.
func PathKey(policy, path string) string { return policy + "\x00" + path }
