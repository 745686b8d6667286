package agent

import (
	"bytes"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

// A link that goes down, loses its carrier or is up again is told once.
func TestLinkStates(t *testing.T) {
	c, err := config.Parse([]byte("interfaces: [{name: n3, roles: [edge]}, {name: n6, roles: [edge]}]\n" +
		"sids: [{sid: 'fc00:1::/64', behavior: End.DX2, interface: ac}]\nencapsulation: {source: 'fc00::1'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	goal := (&plan.Goal{}).WithFile(desired.Completed(c))
	up := func(name string) netdev.Link { return netdev.Link{Name: name, Up: true, Carrier: true} }
	down := func(name string) netdev.Link { return netdev.Link{Name: name} }
	dark := func(name string) netdev.Link { return netdev.Link{Name: name, Up: true} }
	links := func(list ...netdev.Link) *netdev.Snapshot { return &netdev.Snapshot{Links: list} }
	for what, v := range map[string]struct {
		before, now *netdev.Snapshot
		want        []string
	}{
		"down":                      {links(up("n3"), up("n6")), links(down("n3"), up("n6")), []string{"WARN interface.down n3 down"}},
		"no carrier":                {links(up("n3"), up("n6")), links(dark("n3"), up("n6")), []string{"WARN interface.down n3 no_carrier"}},
		"up without carrier":        {links(down("n3")), links(dark("n3")), []string{"WARN interface.down n3 no_carrier"}},
		"two":                       {links(up("n3"), up("n6")), links(dark("n3"), down("n6")), []string{"WARN interface.down n3 no_carrier", "WARN interface.down n6 down"}},
		"up again":                  {links(down("n3"), dark("n6")), links(up("n3"), up("n6")), []string{"INFO interface.up n3 ", "INFO interface.up n6 "}},
		"it comes, down":            {links(up("n3")), links(up("n3"), down("n6")), []string{"WARN interface.down n6 down"}},
		"it comes, up":              {links(up("n3")), links(up("n3"), up("n6")), nil},
		"it goes":                   {links(up("n3"), down("n6")), links(up("n3")), nil},
		"still down":                {links(down("n3")), links(down("n3")), nil},
		"a SID's, which is no port": {links(up("ac")), links(down("ac")), nil},
		"an uplink":                 {links(up("eth0")), links(dark("eth0")), []string{"WARN interface.down eth0 no_carrier"}},
		"another":                   {links(up("eth1")), links(dark("eth1")), nil},
	} {
		var out bytes.Buffer
		logLinkStates(slog.New(slog.NewTextHandler(&out, nil)), goal, []string{"eth0", "n3"}, v.before, v.now)
		var got []string
		for _, m := range regexp.MustCompile(`level=(\w+) .*event=(\S+) interface=(\S+)(?: link=(\S+))?\n`).FindAllStringSubmatch(out.String(), -1) {
			got = append(got, strings.Join(m[1:], " "))
		}
		if slices.Sort(got); !slices.Equal(got, v.want) || len(v.want) != strings.Count(out.String(), "\n") {
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

// A daemon logs what becomes of both ends of its veths, also of one that is down when it starts.
func TestDaemonLogsLinkStates(t *testing.T) {
	s := newSite(t)
	s.node.IP(t, "link set d1 down")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := s.daemon(t, binary)
	logged := func(what, want string) { // last of such events
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			text := d.log.String()
			if strings.HasPrefix(text[max(0, strings.LastIndex(text, "event=interface.")):], want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no %q in\n%s", what, want, text)
			}
		}
	}
	logged("at the start", "event=interface.down interface=d1 link=down\n")
	s.node.IP(t, "link set d1 up")
	logged("up", "event=interface.up interface=d1\n")
	s.node.IP(t, "link set d0 down")
	logged("its own end is down", "event=interface.down interface=d0 link=down\n")
	s.node.IP(t, "link set d0 up")
	logged("its own end is up", "event=interface.up interface=d0\n")
	s.left.IP(t, "link set l0 down")
	logged("the other end is down", "event=interface.down interface=d0 link=no_carrier\n")
	s.left.IP(t, "link set l0 up")
	logged("the other end is up", "event=interface.up interface=d0\n")
}
