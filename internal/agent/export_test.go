package agent

import (
	"fmt"
	"testing"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/desired"
)

// This file is what tests of package agent_test use of the other tests.

// scraped is what Prometheus reads. Package metrics, which knows it, imports this one.
var scraped func(tb testing.TB, a *Agent) string

// SetScraped is called before any test.
func SetScraped(f func(tb testing.TB, a *Agent) string) { scraped = f }

// StartTest runs a gateway on fakes, and PrepareTest makes one.
func StartTest(tb testing.TB) *Agent { return start(tb).Agent }

func PrepareTest(tb testing.TB) *Agent { return prepare(tb, tb.TempDir(), gateway, newFake()).Agent }

// AddTunnels has the goal hold tunnels, and not the data path.
func (a *Agent) AddTunnels(n int) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	many := *a.core.goal
	for i := range n {
		name := fmt.Sprintf("t%d", i)
		many.Desired.API = append(many.Desired.API, desired.Resource{Ref: desired.Ref{Kind: desired.KindTunnel, Key: name}, Origin: desired.OriginAPI, Value: gtpu.Tunnel{Name: name}})
	}
	a.core.goal = &many
}
