package agent

import (
	"bytes"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
)

// What the configuration names is told once when it goes and when it comes, and nothing else is.
func TestLinksComeAndGo(t *testing.T) {
	c, err := config.Parse([]byte("interfaces: [{name: n3, roles: [edge]}, {name: n6, roles: [edge]}]\n" +
		"sids: [{sid: 'fc00:1::/64', behavior: End.DX2, interface: n6}]\nencapsulation: {source: 'fc00::1'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	goal := (&plan.Goal{}).WithFile(desired.Completed(c))
	links := func(list ...netdev.Link) *netdev.Snapshot { return &netdev.Snapshot{Links: list} }
	n3, n6, other := netdev.Link{Name: "n3", Index: 3}, netdev.Link{Name: "n6", Index: 6}, netdev.Link{Name: "veth7", Index: 7}
	anew := netdev.Link{Name: "n6", Index: 9}
	for what, v := range map[string]struct {
		before, now *netdev.Snapshot
		want        []string
	}{
		"one goes":         {links(n3, n6), links(n3), []string{"WARN interface.gone n6 6"}},
		"it returns":       {links(n3), links(n3, anew), []string{"INFO interface.there n6 9"}},
		"it is made anew":  {links(n3, n6), links(n3, anew), []string{"INFO interface.there n6 9", "WARN interface.gone n6 6"}},
		"another one":      {links(n3, n6), links(n3, n6, other), nil},
		"another one goes": {links(n3, n6, other), links(n3, n6), nil},
		"nothing":          {links(n3, n6), links(n6, n3), nil},
	} {
		var out bytes.Buffer
		logLinks(slog.New(slog.NewTextHandler(&out, nil)), goal, v.before, v.now)
		var got []string
		for _, m := range regexp.MustCompile(`level=(\w+) .*event=(\S+) interface=(\S+) index=(\d+)`).FindAllStringSubmatch(out.String(), -1) {
			got = append(got, strings.Join(m[1:], " "))
		}
		slices.Sort(got)
		if !slices.Equal(got, v.want) || len(v.want) != strings.Count(out.String(), "\n") {
			t.Errorf("%s: %q, want %q\n%s", what, got, v.want, out.String())
		}
	}
}

func TestRunningDaemonLogsLinks(t *testing.T) {
	d, log := start(t), &tail{}
	d.core.mu.Lock()
	d.core.log = slog.New(slog.NewTextHandler(log, nil))
	d.core.mu.Unlock()
	d.change(t, links("eth1"), "eth0 has gone", func() bool { return strings.Contains(log.String(), "event=interface.gone interface=eth0") })
	d.change(t, links("eth0", "eth1"), "eth0 is there", func() bool { return strings.Contains(log.String(), "event=interface.there interface=eth0") })
}
