package metrics

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
)

// patience is how long /healthz waits for a change of the data path to end.
const patience = 10 * time.Second

// healthy answers 200 while the daemon makes progress, else 503: start it again.
func healthy(a *agent.Agent) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if err := agent.Alive(ctx, a); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// ready answers 200 while packets are handled as configured, else 503. Each condition has a
// line.
func ready(a *agent.Agent) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		var lines strings.Builder
		status, last := http.StatusOK, "ready"
		for _, c := range agent.Conditions(a) {
			if c.Problem == "" {
				fmt.Fprintf(&lines, "[+] %s\n", c.Name)
				continue
			}
			fmt.Fprintf(&lines, "[-] %s: %s\n", c.Name, c.Problem)
			status, last = http.StatusServiceUnavailable, "not ready"
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		fmt.Fprint(w, lines.String(), last, "\n")
	}
}
