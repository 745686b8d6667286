package agent

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// delayedPath puts an SRv6Policy with a delay bound, and returns what the agent says of it.
func delayedPath(d *daemon, bound time.Duration) func() kube.Verdict {
	k := d.sources.Kubernetes()
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	k.PutPath(kube.Path{Name: "srv6policy:fast", Origin: "srv6policy fast", DelayConstraint: srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(bound)},
		Advertised: srpolicy.Advertised{Color: 100, Endpoint: addr("2001:db8::2"), Preference: 200,
			SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{addr("2001:db8::7"), addr("fc00:0:2:4::")}}}}})
	return func() (v kube.Verdict) {
		for _, o := range d.kubeVerdicts() {
			if o.Path == "srv6policy:fast" {
				v = o
			}
		}
		return v
	}
}

// A bound of an SRv6Policy is one of the candidate path; a daemon started again has it too.
func TestDelayByKubernetes(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	text := strings.ReplaceAll(kubeFile, "/nowhere", kubeconfig(t)) + "liveness: {enabled: true}\n"
	d := prepare(t, dir, text, dp).start(t, underlay())
	verdict := delayedPath(d, 15*time.Millisecond)
	bounded := func(d *daemon) bool {
		var all []plan.Choice
		err := d.core.read(func() error {
			all = d.core.goal.Choices()
			return nil
		})
		return err == nil && len(all) == 1 && all[0].DelayBound == srpolicy.Duration(15*time.Millisecond) && len(all[0].Lists) == 1
	}
	waits(t, "it is judged", func() bool { return verdict() != kube.Verdict{} })
	waits(t, "its lists are chosen by delay", func() bool { return bounded(d) })
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	again := prepare(t, dir, text, dp).start(t, underlay())
	waits(t, "after a restart too", func() bool { return bounded(again) })
}

// Where nothing measures delays the path is refused, with the reason.
func TestDelayByKubernetesIsNotMeasured(t *testing.T) {
	d, _ := byKube(t, t.TempDir(), newFake())
	verdict := delayedPath(d, 15*time.Millisecond)
	waits(t, "it is refused", func() bool { return strings.Contains(verdict().Why, "nothing measures delays: liveness is off") })
	if v := verdict(); v.Valid || v.Active {
		t.Errorf("verdict %+v", v)
	}
}
