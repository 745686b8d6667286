package config

import (
	"fmt"

	"k8s.io/utils/cpuset"
)

// Spread has packets handled by several CPUs, though one interface's queue brings them
// all: a gNB sends the packets of all its UEs from one address and port.
type Spread struct {
	// By is what stays in order on one CPU: ue, the packets of a UE in each direction;
	// flow, those of a flow inside the tunnel. Default: off.
	By string `json:"by,omitempty" jsonschema:"enum=off,enum=ue,enum=flow"`
	// CPUs handle the packets, such as "2-7" or "0,2-3". Default: all that are
	// online and that the daemon may use.
	CPUs CPUs `json:"cpus,omitempty"`
	// Method is who spreads: xdp, the data path; card, the card of each interface, which
	// has to hash the TEID of G-PDUs and have queues that interrupt these CPUs; auto, the
	// cards where all of them can, otherwise the data path. Default: auto.
	Method string `json:"method,omitempty" jsonschema:"enum=xdp,enum=card,enum=auto"`
}

// The values of Spread.By.
const (
	SpreadOff  = "off"
	SpreadUE   = "ue"
	SpreadFlow = "flow"
)

// The values of Spread.Method.
const (
	SpreadXDP  = "xdp"
	SpreadCard = "card"
	SpreadAuto = "auto"
)

// IsSet says whether packets are spread.
func (s *Spread) IsSet() bool { return s.By != "" && s.By != SpreadOff }

// CPUs are the numbers of CPUs, rising. In files they are a text as the kernel writes
// it, such as "0,2-3".
type CPUs []int

// UnmarshalText reads "0,2-3".
func (c *CPUs) UnmarshalText(text []byte) error {
	set, err := cpuset.Parse(string(text))
	if err != nil || set.IsEmpty() {
		return fmt.Errorf("%q are not numbers of CPUs: want for example 2-7 or 0,2-3", text)
	}
	*c = set.List()
	return nil
}

// MarshalText writes "0,2-3".
func (c CPUs) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String is "0,2-3".
func (c CPUs) String() string { return cpuset.New(c...).String() }

func checkSpread(v *validator) {
	s := &v.Spread
	v.oneOf("spread.by", s.By, SpreadOff, SpreadUE, SpreadFlow)
	v.oneOf("spread.method", s.Method, SpreadXDP, SpreadCard, SpreadAuto)
	v.refuse(s.Method != "" && !s.IsSet(), "spread.by", "say by: ue, or take method out", "spread.method says who, and nothing what to spread")
	v.refuse(s.Method == SpreadCard && s.By == SpreadFlow, "spread.method", "say by: ue, or method: xdp", "a card does not see flows inside of tunnels")
	v.refuse(len(s.CPUs) > 0 && !s.IsSet(), "spread.by", "say by: ue, or take cpus out", "spread.cpus says where, and nothing what to spread")
	v.refuse(s.IsSet() && len(v.Interfaces) == 0, "spread.by", "list the interfaces whose packets to spread under interfaces", "there is no interface whose packets could be spread")
}
