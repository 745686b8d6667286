package loop

import (
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

	Demands []te.Demand  `json:"demands"`
	Plan    *engine.Plan `json:"plan,omitempty"`
	// Unknown are demands whose rate is not measured now, and Held those that keep their lists.
	Unknown []te.Key `json:"unknown,omitempty"`
	Held    []Held   `json:"held,omitempty"`
	// LeftOut are parts of the network and policies that are not used, and why.
	LeftOut []string `json:"left_out,omitempty"`
	// Failed are headends that do not answer, and why.
	Failed []string `json:"failed,omitempty"`

	every time.Duration
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
