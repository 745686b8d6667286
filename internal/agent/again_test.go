package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/netdev"
)

// fails has calls of the data path that begin so fail, until it is called without.
func (f *fakeDataPath) fails(prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failOn = nil
	if prefix != "" {
		f.failOn = func(call string) error {
			if strings.HasPrefix(call, prefix) {
				return errors.New("no memory")
			}
			return nil
		}
	}
}

// beyond is the underlay with a route to another prefix.
func beyond() *netdev.Snapshot {
	s := underlay()
	s.Routes = append(s.Routes, netdev.Route{Table: netdev.TableMain, Prefix: prefix("2001:db9::/64"), Type: netdev.RouteUnicast,
		Hops: []netdev.Hop{{Gateway: addr("2001:db8::9"), Ifindex: 1, Weight: 1}}})
	return s
}

// A way that the network has packets take, and that the data path would not: it is
// what it was until that succeeds.
func TestPathIsTriedAgain(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile+`
policies: [{name: near, color: 77, endpoint: '2001:db8::2', source: '2001:db8::1', segment_lists: [{segments: ['2001:db8::7', 'fc00:0:2:6::']}]}]
candidate_paths: [{name: far, policy: near, preference: 300, segment_lists: [{segments: ['2001:db9::1', 'fc00:0:2:6::']}]}]
`, newFake()).start(t, underlay())
	d.dp.fails("policy near")
	d.change(t, beyond(), "it was tried", func() bool { return d.failures[Ref{KindPolicy, "near"}] != nil })
	if first, path := d.firstOf("near"), d.tables.activePath("near"); first != "2001:db8::7" || path != "" {
		t.Errorf("the data path has %s, and the agent says that %q is active", first, path)
	}
	d.dp.fails("")
	d.retry()
	if first, path := d.firstOf("near"), d.tables.activePath("near"); first != "2001:db9::1" || path != "far" || len(d.failures) > 0 {
		t.Errorf("tried again: the data path has %s, the agent says %q, failures %v", first, path, d.failures)
	}
}
