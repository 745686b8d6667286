package netfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is in bit/s. In a file it has a unit, as in 10Gbit.
type Rate float64

// units are what a rate may end with, the longest first.
var units = []struct {
	name string
	bits float64
}{
	{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1},
}

// UnmarshalText reads a number with a unit; "/s" may follow.
func (r *Rate) UnmarshalText(text []byte) error {
	s := strings.TrimSuffix(string(text), "/s")
	for _, u := range units {
		number, has := strings.CutSuffix(s, u.name)
		if !has {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v >= 0 && v*u.bits <= 1e18) {
			break
		}
		*r = Rate(v * u.bits)
		return nil
	}
	return fmt.Errorf("%q is no rate: give one such as 10Gbit or 250Mbit", text)
}

// String is the rate in the largest unit that leaves a whole digit.
func (r Rate) String() string {
	for _, u := range units {
		if float64(r) >= u.bits {
			return strconv.FormatFloat(float64(r)/u.bits, 'g', 4, 64) + u.name + "/s"
		}
	}
	return "0bit/s"
}

// MarshalText is String: what is printed can be read.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Delay is in one direction. In a file it has a unit, as in 2ms.
type Delay time.Duration

// UnmarshalText reads a duration of Go.
func (d *Delay) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 || v > time.Minute {
		return fmt.Errorf("%q is no delay: give one such as 2ms or 150us", text)
	}
	*d = Delay(v)
	return nil
}

// MarshalText is the duration as Go writes it.
func (d Delay) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Period is a time from one thing to the next. In a file it has a unit, as in 10s.
type Period time.Duration

// UnmarshalText reads a duration of Go.
func (p *Period) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < time.Second || v > time.Hour {
		return fmt.Errorf("%q is no time from 1s to 1h: give one such as 10s", text)
	}
	*p = Period(v)
	return nil
}

// MarshalText is the duration as Go writes it.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// Span is a time ahead, or 0s. In a file it has a unit, as in 20s.
type Span time.Duration

// UnmarshalText reads a duration of Go.
func (s *Span) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 || v > time.Hour {
		return fmt.Errorf("%q is no time up to 1h: give one such as 20s, or 0s", text)
	}
	*s = Span(v)
	return nil
}

// MarshalText is the duration as Go writes it.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }
