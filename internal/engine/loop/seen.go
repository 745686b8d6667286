package loop

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/engine/picture"
)

// seen is what a round has to be remembered for.
func (e *Engine) seen(r *round) picture.Seen {
	s := picture.Seen{At: r.now, Network: r.network, Target: r.in.Settings.Target, Every: r.in.Settings.Every}
	if r.applied {
		s.Network.Routing = r.state.Plan.Routing
		for _, m := range r.state.Plan.Moves {
			s.Events = append(s.Events, fmt.Sprintf("demand %s changes from %q to %q", m.Name(), m.Now, m.Then))
		}
	}
	switch p := r.state.Problem; {
	case p == e.problem:
	case p == "":
		s.Events = append(s.Events, "the problem is solved")
	default:
		s.Events = append(s.Events, "problem: "+p)
	}
	e.problem = r.state.Problem
	return s
}
