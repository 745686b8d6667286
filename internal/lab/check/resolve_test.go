package check

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

func TestResolveNames(t *testing.T) {
	in := inCluster(t)
	for _, tt := range []struct {
		check, family string
		to            string
		port          uint16
		listen        string
		source        string
	}{
		{"both", topology.IPv4, "10.244.1.3", 0, "", ""},
		{"both", topology.IPv6, "fd00:10:244:1::3", 0, "", ""},
		{"service", topology.IPv4, "10.96.0.1", 80, "10.244.1.3:8080", ""},
		{"port of a node", topology.IPv4, "10.0.0.1", 30080, "10.244.1.3:8080", ""},
		{"port of a pod", topology.IPv4, "10.0.0.1", 8080, "10.244.1.3:80", ""},
		{"there and back", topology.IPv6, "fd00:10:244:1::3", 0, "", "fd00:10:244:1::2"},
	} {
		i := slices.IndexFunc(in.Checks, func(c topology.Check) bool { return c.Name == tt.check })
		c, err := resolve(in, &in.Checks[i], tt.family)
		if err != nil {
			t.Errorf("%s: %v", tt.check, err)
			continue
		}
		listen, source := "", ""
		if c.Listen.IsValid() {
			listen = c.Listen.String()
		}
		if c.Source.IsValid() {
			source = c.Source.String()
		}
		if c.To.String() != tt.to || c.Port != tt.port || listen != tt.listen || source != tt.source {
			t.Errorf("%s: to %v port %d, %s listens, from %s", tt.check, c.To, c.Port, listen, source)
		}
		if in.Checks[i].To.IsValid() {
			t.Errorf("%s: the topology's check was changed", tt.check)
		}
	}
	_, err := in.Address("web", topology.IPv6)
	wantError(t, err, "web", "ipv6")
	_, err = in.Address("nobody", topology.IPv4)
	wantError(t, err, "nobody")
}
