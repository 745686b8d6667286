package loop

import (
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/engine"
	"github.com/culvert-net/culvert/internal/te"
)

// State is what a round found and did.
type State struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took"`
	// Apply says whether the engine may change headends.
	Apply bool `json:"apply"`
	// Word says what changes, or why nothing does; Problem is what somebody should fix.
	Word    string `json:"word"`
	Problem string `json:"problem,omitempty"`
	Counts  Counts `json:"counts"`
	// Lease is nil where the engine needs none.
	Lease *LeaseState `json:"lease,omitempty"`

	Demands []te.Demand  `json:"demands"`
	Plan    *engine.Plan `json:"plan,omitempty"`
	// Unknown are demands whose rate is not measured now, and Held those that keep their lists.
	Unknown []te.Key `json:"unknown,omitempty"`
	Held    []Held   `json:"held,omitempty"`
	// Unprotected are demands without a repair list for their link at the headend, or without the standby
	// that their class asks for, and why.
	Unprotected []Held `json:"unprotected,omitempty"`
	// LeftOut are parts of the network and policies that are not used, and why.
	LeftOut []string `json:"left_out,omitempty"`
	// Failed are headends that do not answer, and why.
	Failed []string `json:"failed,omitempty"`

	every time.Duration
}

// LeaseState is who has a lease.
type LeaseState struct {
	Lease  string `json:"lease"`
	Self   string `json:"self"`
	Holder string `json:"holder,omitempty"` // the last one that was seen
	Held   bool   `json:"held"`             // by this engine
	// Since is when the holder was first seen.
	Since   time.Time `json:"since,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

// Whose says in words who changes headends.
func (l LeaseState) Whose() string {
	switch {
	case l.Held:
		return "this engine holds lease " + l.Lease
	case l.Problem != "":
		return fmt.Sprintf("lease %s is not held: %s", l.Lease, l.Problem)
	case l.Holder == "" || l.Holder == l.Self:
		return "nobody holds lease " + l.Lease + " yet"
	}
	return fmt.Sprintf("%s holds lease %s", l.Holder, l.Lease)
}

// Held is a demand that keeps its lists, and why.
type Held struct {
	te.Key
	Why string `json:"why"`
}

// Counts are since the engine began.
type Counts struct {
	Rounds  uint64 `json:"rounds"`
	Failed  uint64 `json:"failed"`  // rounds that ended with an error
	Changes uint64 `json:"changes"` // of demands' lists
}
