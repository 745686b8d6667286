package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

func injection(color uint32, endpoint string, nodes ...string) Injection {
	return Injection{Nodes: nodes, Advertised: srpolicy.Advertised{Color: color, Endpoint: addr(endpoint),
		SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{addr("fcff:3::1"), addr("fcdd::1")}}}}}
}

func sayEvents(events []Event) string {
	var out []string
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s for %s", e.Op, e.Path.Name, e.Node))
	}
	return strings.Join(out, ", ")
}

// What an injector writes, in either form, is what a watcher observes; and only
// what differs is written.
func TestInject(t *testing.T) {
	for _, form := range []Form{FormConfigMap, FormSRv6Policy} {
		t.Run(string(form), func(t *testing.T) {
			c := newCluster(t)
			_, h, _ := c.starts(Known{})
			in := &Injector{InjectorConfig{Namespace: namespace, Form: form}, c.connection()}
			set := func(want string, list ...Injection) {
				t.Helper()
				events, err := in.Set(t.Context(), list)
				if got := sayEvents(events); err != nil || got != want {
					t.Errorf("%s, %v; want %s", got, err, want)
				}
			}
			observes := func(what string, f func(Path) bool, n int) {
				t.Helper()
				waits(t, what, func() bool {
					return h.has(func(h *observed) bool {
						return len(h.paths) == n && (n == 0 || slices.ContainsFunc(slices.Collect(maps.Values(h.paths)), f))
					})
				})
			}
			six, four := injection(overlay.ColorIPv6, "fd11::1000", me, "node-7"), injection(overlay.ColorIPv4, "fd11::1000", me)
			set("add ipv6:fd11::1000 for node-1, add ipv6:fd11::1000 for node-7", six)
			observes("the first", func(p Path) bool {
				return p.Endpoint == six.Endpoint && p.Preference == DefaultPreference && !p.IsSet()
			}, 1)
			set("", six)
			if got := in.Absent(t.Context(), []Injection{six, four, six}); !slices.Equal(got, []string{"node-7"}) {
				t.Errorf("the cluster does not have %q, want node-7", got)
			}
			six.Preference, six.BindingSID = 300, addr("cafe::1")
			set("add ipv4:fd11::1000 for node-1, replace ipv6:fd11::1000 for node-1, replace ipv6:fd11::1000 for node-7", six, four)
			observes("what was replaced", func(p Path) bool { return p.Preference == 300 && p.BindingSID == six.BindingSID }, 2)
			four.DelayConstraint = srpolicy.DelayConstraint{DelayBound: srpolicy.Duration(1500 * time.Microsecond), LowestDelay: true}
			set("replace ipv4:fd11::1000 for node-1", six, four)
			observes("the constraint of delays", func(p Path) bool { return p.DelayConstraint == four.DelayConstraint && p.Color == four.Color }, 2)
			set("", six, four)
			second := six
			second.Distinguisher, second.Nodes = 2, []string{me}
			set("add ipv6:fd11::1000-2 for node-1, withdraw ipv4:fd11::1000 for node-1", six, second)
			set("withdraw ipv6:fd11::1000 for node-1, withdraw ipv6:fd11::1000-2 for node-1, withdraw ipv6:fd11::1000 for node-7")
			observes("nothing", nil, 0)
			for _, r := range []schema.GroupVersionResource{configMapResource, policyResource} {
				list, err := c.objects.Resource(r).List(t.Context(), metav1.ListOptions{LabelSelector: managerLabel})
				if err != nil || len(list.Items) != 0 {
					t.Errorf("%s: %d are left, %v", r, len(list.Items), err)
				}
			}
		})
	}
}

// What a person said of the node's local SIDs stays.
func TestInjectKeepsLocalSIDs(t *testing.T) {
	c := newCluster(t)
	c.listing(listing)
	in := &Injector{InjectorConfig{Namespace: namespace, Form: FormConfigMap}, c.connection()}
	if _, err := in.Set(t.Context(), []Injection{injection(overlay.ColorIPv6, "fd11::2000", me)}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Set(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	o, err := c.objects.Tracker().Get(configMapResource, namespace, ListingName(me))
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedStringMap(o.(*unstructured.Unstructured).Object, "data")
	r, err := readListing(data, me, nil)
	if err != nil || len(r.entries) != 0 || r.sids.DT4 != addr("fcdd::aa:34b8:247c:36da:db44") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCheckInjections(t *testing.T) {
	for words, change := range map[string]func(*Injection){
		"[1].color: 7 is none of a cluster's":                                   func(v *Injection) { v.Color = 7 },
		"[1].headends: is missing":                                              func(v *Injection) { v.Nodes = nil },
		`[1].headends[0]: "Node" is no node's name`:                             func(v *Injection) { v.Nodes = []string{"Node"} },
		"[1].delay_bound: is 11s":                                               func(v *Injection) { v.DelayBound = srpolicy.Duration(11 * time.Second) },
		"[1].segment_lists: is missing":                                         func(v *Injection) { v.SegmentLists = nil },
		`[1].name: "a b" cannot have`:                                           func(v *Injection) { v.Name = "a b" },
		`[1].name: "ipv6:fd11::1" is too like that of [0], for node node-1 too`: func(v *Injection) { v.Endpoint = addr("fd11::1") },
	} {
		list := []Injection{injection(overlay.ColorIPv6, "fd11::1", me), injection(overlay.ColorIPv6, "fd11::2", me)}
		if errs := CheckInjections(list); len(errs) != 0 {
			t.Fatalf("a sound list: %v", errs)
		}
		change(&list[1])
		if errs := CheckInjections(list); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), words) {
			t.Errorf("%v, want %s", errs, words)
		}
		if _, err := (&Injector{}).Set(t.Context(), list); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %s", err, words)
		}
	}
}
