package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent/desired"
)

// Condition is one part of being ready.
type Condition struct {
	Name    string
	Problem string // empty: it holds
}

// Conditions are what must hold for packets to be handled as configured. What other hosts do
// is not among them.
func Conditions(a *Agent) []Condition {
	c := a.core
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.isReady(); err != nil {
		problem := err.Error()
		if c.restored != nil {
			if now, of := c.restored(); of > 0 {
				problem += fmt.Sprintf(": %d of %d sessions are restored", now, of)
			}
		}
		return []Condition{{"started", problem}}
	}
	var interfaces, resources []string
	for ref, err := range c.writer.Failures {
		if ref.Kind == desired.KindInterface {
			interfaces = append(interfaces, fmt.Sprintf("%s: %v", ref.Key, err))
		} else {
			resources = append(resources, fmt.Sprintf("%s: %v", ref, err))
		}
	}
	for r := range c.goal.All() {
		name := r.Interface()
		if _, there := c.links.Link(name); r.Kind == desired.KindInterface && !there {
			interfaces = append(interfaces, name+": there is no such interface")
		}
	}
	out := []Condition{{Name: "started"}, {"interfaces", firstOf(interfaces)}, {"resources", firstOf(resources)}}
	if s := c.upf.status(); s != nil {
		out = append(out, Condition{"journal", s.Journal})
	}
	return out
}

// firstOf names a few problems, and says how many more there are.
func firstOf(problems []string) string {
	const most = 3
	slices.Sort(problems)
	if more := len(problems) - most; more > 0 {
		problems = append(problems[:most:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(problems, "; ")
}

// Alive returns once what changes the data path makes progress.
func Alive(ctx context.Context, a *Agent) error {
	done := make(chan struct{})
	go func() {
		a.core.mu.RLock()
		defer a.core.mu.RUnlock()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a change of the data path does not end: %w", ctx.Err())
	}
}
