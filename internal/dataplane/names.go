package dataplane

import (
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Counter counts packets and bytes (which bytes: docs/reference/semantics.md section 1).
type Counter = counter.Counter

// FullError says that a table holds as many entries as it can.
type FullError = table.FullError
