package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// inventory lists the objects that pods have on the nodes of a cluster, by node and
// kind.
type inventory map[string][]string

// settleAfter limits the time in which a kubelet cleans up after a deleted pod.
const settleAfter = 90 * time.Second

// leftovers counts the objects on the nodes before and after the check's events: the
// numbers must be equal. Names may differ, because a node that restarts gives its
// pods new ones.
func leftovers(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	before, err := settled(ctx, r, nil)
	if err != nil {
		return err
	}
	if err := disturb.Do(ctx, r, c.AllEvents(), o); err != nil {
		return err
	}
	after, err := settled(ctx, r, before)
	if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if own, ok := strings.CutPrefix(what, r.Kubelets()[0].Name+": "); ok {
			o.Say("%d %s", len(after[what]), own)
		}
	}
	return nil
}

// settled waits until the nodes have the pods that Kubernetes lists, and as many
// objects of each kind as before. It returns the inventory.
func settled(ctx context.Context, r *disturb.Runner, before inventory) (inventory, error) {
	var v inventory
	err := instance.Await(ctx, settleAfter, func() (err error) {
		if v, err = takeInventory(ctx, r); err == nil {
			err = errors.Join(wantPods(ctx, r, v), before.compare(v))
		}
		return err
	})
	return v, err
}

// wantPods checks that each node has exactly the pods that Kubernetes lists.
func wantPods(ctx context.Context, r *disturb.Runner, v inventory) error {
	out, err := cluster.Kubectl(ctx, r.Instance, nil, "get", "pods", "--all-namespaces", "-o", "json")
	var all corev1.PodList
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil {
		return err
	}
	want := inventory{}
	for _, p := range all.Items {
		if what := p.Spec.NodeName + ": pods"; !p.Spec.HostNetwork {
			want[what] = append(want[what], p.Namespace+"/"+p.Name)
		}
	}
	var errs []error
	for _, n := range r.Kubelets() {
		what := n.Name + ": pods"
		// One that is made anew under its name may be there twice for a moment.
		if there, wanted := slices.Sorted(slices.Values(v[what])), slices.Sorted(slices.Values(want[what])); !slices.Equal(there, wanted) {
			errs = append(errs, fmt.Errorf("%s: there are %v, and Kubernetes' are %v", what, there, wanted))
		}
	}
	return errors.Join(errs...)
}

// compare returns an error that lists the added and the missing objects. A nil
// inventory equals any other.
func (v inventory) compare(after inventory) error {
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(v)) {
		if len(v[what]) == len(after[what]) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %d before, %d after: came %q, went %q", what, len(v[what]), len(after[what]),
			missingFrom(v[what], after[what]), missingFrom(after[what], v[what])))
	}
	return errors.Join(errs...)
}

// missingFrom returns the elements of list that first does not have.
func missingFrom(first, list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(first, s) })
}

func takeInventory(ctx context.Context, r *disturb.Runner) (inventory, error) {
	v := inventory{}
	for _, n := range r.Kubelets() {
		if err := takeStock(ctx, r, n, v); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return v, nil
}

// takeStock takes the inventory of a node.
func takeStock(ctx context.Context, r *disturb.Runner, n *topology.Node, into inventory) error {
	of := func(what string) string { return n.Name + ": " + what }
	var pods []podView
	if err := daemon.AskJSON(ctx, r.Instance, n, &pods, "pod"); err != nil {
		return err
	}
	for _, p := range pods {
		into[of("pods")] = append(into[of("pods")], p.Namespace+"/"+p.Name)
		into[of("addresses")] = append(into[of("addresses")], p.Addresses...)
	}
	for what, command := range map[string][]string{
		"interfaces": {"ip", "-o", "link", "show"}, "neighbours": {"ip", "neighbour", "show", "nud", "permanent"},
		"routes": {"ip", "-o", "route", "show", "table", "all"}, "IPv6 routes": {"ip", "-6", "-o", "route", "show", "table", "all"},
		"IPv4 rules": {"ip", "rule"}, "IPv6 rules": {"ip", "-6", "rule"},
	} {
		out, err := r.Namespace(n).Output(command[0], command[1:]...)
		if err != nil {
			return err
		}
		into[of(what)] = strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	for what, dir := range map[string]string{
		"pins": "sys/fs/bpf", "network namespaces": "run/netns", "results of CNI": "var/lib/cni/results",
	} {
		list, err := filesBelow(r.Inside(n, dir))
		if err != nil {
			return err
		}
		into[of(what)] = list
	}
	return nil
}

// filesBelow are all files below a folder; one that goes while it is looked for is
// none.
func filesBelow(dir string) (list []string, err error) {
	// With a slash at its end: it may be a link into a process's root.
	err = filepath.WalkDir(dir+"/", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, dir))
		}
		return err
	})
	return list, err
}
