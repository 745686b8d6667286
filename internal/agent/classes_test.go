package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/kube"
)

func asked(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A class takes its policy while that is valid, and best effort or nothing otherwise; what
// is shown says which. Rows, classifiers and counters come and go with it.
func TestTrafficClasses(t *testing.T) {
	ctx := context.Background()
	text := strings.Replace(gateway, "  - name: south\n", `  - {name: fast, color: 100, endpoint: 'fc00:3::1', segment_lists: [{segments: ['fc00:b::1']}]}
  - name: south
    color: 1
    endpoint: fc00:3::1
`, 1)
	text = strings.Replace(text, "gtpu:\n", "traffic_classes:\n  - {name: voice, color: 100, match: {dscp: [46]}}\ngtpu:\n", 1)
	d := prepare(t, t.TempDir(), text, newFake()).start(t, towards("fc00:2::/32", "fc00:4::/32", "fc00:b::/32"))
	const key = "10.1.0.0/16"
	column := d.dp.ports[1].Classifier[46]
	way := func() class.Way {
		if row := d.dp.rows[key]; row != nil {
			return row[column]
		}
		return class.Way{}
	}
	if column == 0 || d.dp.ports[1].Classifier[0] != 0 || way() != (class.Way{Policy: "fast", Class: "voice"}) || d.dp.rows[key][0].Policy != "south" {
		t.Fatalf("column %d, row %v", column, d.dp.rows[key])
	}
	shown := func(problem string, without int) {
		t.Helper()
		all, err := d.Classes()
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		s := all[0]
		if !strings.Contains(s.Problem, problem) || (problem == "") != (s.Problem == "") || len(s.Without) != without || s.Counter.Packets != 7 || s.Policies[0] != "fast" {
			t.Errorf("class %+v, want problem %q", s, problem)
		}
	}
	shown("", 0)
	d.change(t, towards("fc00:2::/32", "fc00:4::/32"), "without a route best effort is all there is", func() bool { return way() == class.Way{} })
	shown("no valid policy of color 100 leads to 1 of its endpoints: there its packets take best effort", 1)

	// A strict class is dropped instead.
	strict, err := d.Add(ctx, asked(t, "traffic_classes: [{name: sealed, color: 100, priority: 1, strict: true, match: {dscp: [10], destinations: [10.1.7.0/24]}}]"))
	if err != nil || len(strict) != 1 || strict[0].Kind != desired.KindClass {
		t.Fatal(strict, err)
	}
	column = d.dp.ports[1].Classifier[10]
	if row := d.dp.rows["10.1.7.0/24"]; row == nil || row[column] != (class.Way{Class: "sealed"}) || d.dp.rows[key] != nil {
		t.Errorf("column %d, row %v", column, row)
	}
	_, err = d.Add(ctx, asked(t, "traffic_classes: [{name: other, color: 7, match: {dscp: [46]}}]"))
	if !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), `DSCP 46 are in class "voice" too`) {
		t.Errorf("a class that meets another: %v", err)
	}
	if _, err := d.Delete(ctx, []desired.Ref{{Kind: desired.KindClass, Key: "sealed"}}); err != nil {
		t.Fatal(err)
	}
	if _, there := d.dp.steering["10.1.7.0/24"]; there || d.dp.ports[1].Classifier[10] != 0 || len(d.dp.classes) != 1 {
		t.Errorf("what is left of a deleted class: %v, %v", d.dp.steering, d.dp.classes)
	}
	d.change(t, towards("fc00:2::/32", "fc00:4::/32", "fc00:b::/32"), "its policy is back", func() bool {
		column = d.dp.ports[1].Classifier[46]
		return way().Policy == "fast"
	})
}

// Pods have the classifier of their namespace and labels: those that come later, those that
// are there when a class comes, and those that a daemon finds when it starts.
func TestPodsOfClasses(t *testing.T) {
	ctx := context.Background()
	dir, dp := t.TempDir(), newFake()
	d := startMember(t, dir, dp, 3)
	mustAdd(t, d, 0)
	_, err := d.Add(ctx, asked(t, `traffic_classes:
  - {name: default, color: 100, match: {namespaces: [default], dscp: [46]}}
  - {name: web, color: 200, priority: 1, match: {pod_labels: {app: web}}}
  - {name: other, color: 300, priority: 2, match: {namespaces: [other]}}`))
	if err != nil {
		t.Fatal(err)
	}
	mustAdd(t, d, 1)
	first, second := dp.pods[2].Classifier, dp.pods[3].Classifier
	if first[46] == 0 || first[0] != 0 || first != second {
		t.Errorf("columns %v and %v", first, second)
	}
	d.core.pods.SetLabels(func(_, name string) (map[string]string, bool) {
		return map[string]map[string]string{"pod-1": {"app": "web", "tier": "front"}}[name], true
	})
	if now := dp.pods[3].Classifier; dp.pods[2].Classifier != first || now[0] == 0 || now[46] != now[0] || now[0] == first[46] {
		t.Errorf("with labels: columns %v and %v", dp.pods[2].Classifier, now)
	}
	d.stop()
	dp.pods[2] = pod.Pod{Ifindex: 2, MAC: dp.pods[2].MAC, Addresses: dp.pods[2].Addresses}
	startMember(t, dir, dp, 3)
	if dp.pods[2].Classifier != first {
		t.Errorf("after a restart: columns %v", dp.pods[2].Classifier)
	}
}

// What the node itself sends into the overlay has the classes of its host, by its own
// addresses; what it forwards has not.
func TestClassOfTheHost(t *testing.T) {
	ctx := context.Background()
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	d.holds(t, "the overlay is there", func() bool { return d.dp.entry == fakeExit })
	if p := d.dp.ports[fakeExit]; len(p.Origins) != 0 || p.Classifier != (class.Classifier{}) {
		t.Errorf("without classes %+v", p)
	}
	_, err := d.Add(ctx, asked(t, `traffic_classes:
  - {name: own, color: 100, match: {host: true, dscp: [10]}}
  - {name: voice, color: 200, priority: 1, match: {dscp: [46]}}
  - {name: pods, color: 300, priority: 2, match: {namespaces: [default]}}`))
	if err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the classes are there", func() bool { return len(d.dp.ports[fakeExit].Origins) > 0 })
	p := d.dp.ports[fakeExit]
	if p.Roles != 0 || p.Classifier[46] == 0 || p.Classifier[10] != 0 || p.Classifier[0] != 0 {
		t.Errorf("what is forwarded: %+v", p)
	}
	own := false
	for _, o := range p.Origins {
		own = own || o.Prefix == netip.MustParsePrefix("2001:db8::1/128")
		if !o.Prefix.IsSingleIP() || o.VLAN != 0 || o.Classifier[10] == 0 || o.Classifier[0] != 0 || o.Classifier[46] != p.Classifier[46] {
			t.Errorf("origin %+v", o)
		}
	}
	if !own {
		t.Errorf("the node's own address is not among %+v", p.Origins)
	}
	if _, err := d.Delete(ctx, []desired.Ref{{Kind: desired.KindClass, Key: "own"}}); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the class is gone", func() bool { return len(d.dp.ports[fakeExit].Origins) == 0 && d.dp.ports[fakeExit].Classifier[46] != 0 })
	if _, err := d.Apply(ctx, asked(t, "log: {level: info}"), false); err != nil {
		t.Fatal(err)
	}
	d.holds(t, "the overlay is gone", func() bool { _, there := d.dp.ports[fakeExit]; return !there })
}

// Classes of Kubernetes find room beside those of the file and each other, in their rank; of
// those that do not, the API says why. They stay over a restart, as labels of pods do.
func TestClassesOfKubernetes(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	start := func() *daemon {
		text := strings.ReplaceAll(kubeFile, "/nowhere", kubeconfig(t)) + `
traffic_classes: [{name: voice, color: 100, match: {dscp: [46]}}]
policies: [{name: far, color: 200, endpoint: '2001:db8::2', source: '2001:db8::1', segment_lists: [{segments: ['2001:db8::7', 'fc00:0:2:4::']}]}]
`
		links := underlay()
		links.Links = append(links.Links, link(2, "culv0"))
		return prepare(t, dir, text, dp).start(t, links)
	}
	d := start()
	k := d.sources.Kubernetes()
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	k.PutNode(nodeOf(2))
	all := map[string]kube.Class{}
	put := func(name string, rank int, color uint32, priority int, m class.Match) {
		all[name] = kube.Class{Class: class.Class{Name: name, Color: color, Priority: priority, Match: m}, Rank: rank}
	}
	put("kube:b", 0, 200, 1, class.Match{PodLabels: map[string]string{"app": "web"}})
	put("kube:a:late", 1, 200, 1, class.Match{Namespaces: []string{"default"}})
	put("kube:ef", 0, 200, 0, class.Match{DSCP: []uint16{46}})
	put("kube:poor", 0, 300, 2, class.Match{DSCP: []uint16{10}})
	put("kube:six", 0, 6, 3, class.Match{DSCP: []uint16{20}})
	k.SetClasses(all)
	verdicts := func(d *daemon) string {
		d.core.mu.RLock()
		defer d.core.mu.RUnlock()
		var out []string
		for _, v := range d.core.classVerdicts() {
			out = append(out, fmt.Sprintf("%s %t %s", v.Path, v.Valid, v.Why))
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	const want = `kube:a:late false packets of pods of namespace default are in class "kube:b" too, which has the same priority: give one of the two a higher priority
kube:b true 
kube:ef false packets of any source with DSCP 46 are in class "voice" too, which has the same priority: give one of the two a higher priority
kube:poor false no policy has color 300: its packets take best effort
kube:six false color: 6 is reserved: policies of this color carry IPv6 between pods: give a color of your own, such as 1000, and policies of it`
	waits(t, "all are judged", func() bool {
		return strings.Count(verdicts(d), "\n") == 4 && strings.Contains(verdicts(d), "kube:b true")
	})
	if got := verdicts(d); got != want {
		t.Errorf("verdicts\n%s\nwant\n%s", got, want)
	}
	shown, err := d.Classes()
	if err != nil || len(shown) != 3 || shown[1].Name != "kube:b" || shown[1].Origin != desired.OriginKube {
		t.Errorf("classes %+v, %v", shown, err)
	}
	mustAdd(t, d, 0)
	if dp.pods[2].Classifier[0] != 0 {
		t.Errorf("without labels: %v", dp.pods[2].Classifier)
	}
	d.core.pods.SetLabels(func(string, string) (map[string]string, bool) { return map[string]string{"app": "web"}, true })
	column := dp.pods[2].Classifier[0]
	if column == 0 {
		t.Error("a pod with the label is not in the class")
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	delete(dp.pods, 2)
	d = start()
	if got := dp.pods[2].Classifier[0]; got == 0 || verdicts(d) != want {
		t.Errorf("after a restart: column %d, verdicts\n%s", got, verdicts(d))
	}
	d.sources.Kubernetes().SetClasses(nil)
	waits(t, "no class is left", func() bool { return verdicts(d) == "" })
}

// A class's policy to a member carries what the member takes where the policy ends: one family, one
// network. What is shown says what it does not carry.
func TestClassByLastSegment(t *testing.T) {
	text := strings.Replace(clusterFile, "  nodes:\n", "  tenants: [{name: red, id: 7, namespaces: [shop], pools: [10.244.0.0/16]}]\n  nodes:\n", 1) + `
traffic_classes: [{name: voice, color: 100, match: {dscp: [46]}}]
policies: [{name: fast, color: 100, endpoint: '2001:db8::2', source: '2001:db8::1', segment_lists: [{segments: ['2001:db8::7', 'END']}]}]
`
	const four, six, red = "10.244.2.0/24", "fd00:2::/64", "10.244.2.0/24@tenant/7"
	for _, tt := range []struct{ end, takes, problem string }{
		{"fc00:0:2:4::", four, "to 10.244.2.0/24@tenant/7 and 2 other destinations its packets take best effort"},
		{"fc00:0:2:6::", six, "policy fast: it ends at fc00:0:2:6::, where node-2 takes IPv6 only: to 10.244.2.0/24 and 1 other destination its packets"},
		{"fc00:0:2:107::", red, "policy fast: it ends at fc00:0:2:107::, where node-2 takes no packets of the cluster's pods: to 10.244.2.0/24 and 2 other"},
		{"fc00:0:2:99::", "", "no valid policy of color 100 leads to 1 of its endpoints"},
	} {
		d := prepare(t, t.TempDir(), strings.Replace(text, "END", tt.end, 1), newFake()).start(t, underlay())
		d.holds(t, "the overlay is there", func() bool { return d.dp.entry == fakeExit })
		for _, key := range []string{four, six, red} {
			takes := d.dp.rows[key] != nil
			if _, steered := d.dp.steering[key]; !steered || takes != (key == tt.takes) {
				t.Errorf("to %s: %s is steered: %t, takes the class's policy: %t", tt.end, key, steered, takes)
			}
		}
		if all, err := d.Classes(); err != nil || len(all) != 1 || !strings.Contains(all[0].Problem, tt.problem) {
			t.Errorf("to %s: %+v, %v, want problem %q", tt.end, all, err, tt.problem)
		}
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
	}
}
