package netpol

import "fmt"

// MaxPrefixes is how many prefixes the ipBlocks of a namespace's policies, with their exceptions, may
// have, and MaxRules how many entries its lists may take in the data path: a quarter of each table.
const (
	MaxPrefixes = 65536
	MaxRules    = 262144
)

// What there is room for.
const (
	Prefixes = "prefixes"
	Rules    = "rules"
)

// ExceededError is that there is no room for the policies of a namespace: its pods that they isolate
// are closed, and those of others are not.
type ExceededError struct {
	Namespace   string
	What        string // Prefixes or Rules
	Need, Limit int
	// Full: the table is, and of all namespaces this one needs most.
	Full bool
}

func (e *ExceededError) Error() string {
	limit := fmt.Sprintf("a namespace may have %d", e.Limit)
	if e.Full {
		limit = fmt.Sprintf("more than others, and the table is full (%d)", e.Limit)
	}
	return fmt.Sprintf("NetworkPolicies of namespace %s need %d %s on this node, %s: its isolated pods here are closed", e.Namespace, e.Need, e.What, limit)
}

// exceeding closes the namespaces whose policies have more prefixes than one may. It returns all that are
// closed.
func (d *Desired) exceeding(s *State, policies map[string][]*Policy) map[string]bool {
	closed := map[string]bool{}
	for i := range s.Local {
		name := s.Local[i].Namespace
		if _, known := d.Prefixes[name]; known || closed[name] {
			continue
		}
		n := 0
		for _, p := range policies[name] {
			n += p.prefixes
		}
		switch {
		case s.Closed[name]:
			closed[name] = true
		case n > MaxPrefixes:
			closed[name] = true
			d.Exceeded = append(d.Exceeded, &ExceededError{Namespace: name, What: Prefixes, Need: n, Limit: MaxPrefixes})
		default:
			d.Prefixes[name] = n
		}
	}
	return closed
}
