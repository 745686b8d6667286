package connectivity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Program is the path of culvert in images.
const Program = "/usr/bin/culvert"

// Options of a test.
type Options struct {
	Nodes   []string // by name; all unless set
	Most    int      // nodes; all unless set
	Image   string   // that of the agents unless set
	Ports   Ports
	Outside []netip.Addr
	Keep    bool // what was made
	// Start is how long pods may take to be ready.
	Start    time.Duration
	Progress io.Writer
}

// ErrThere says that the pods of a test exist already.
var ErrThere = errors.New("an earlier test has left its pods, or another one runs: culvert connectivity clean takes them away")

// ErrForeign says that the namespace belongs to somebody else.
var ErrForeign = errors.New("cannot be used")

// execAtOnce is the number of pods that run commands at the same time.
const execAtOnce = 16

// test is a test that runs.
type test struct {
	Options
	cluster Cluster
	nodes   []Node // that are tested
	field   *field
	report  Report
	drops   map[string]map[string]uint64 // packets, by node and reason, at the beginning
}

// Run runs the test. With an error it also returns the report so far. It removes
// what it made in any case, even after ctx has ended.
func Run(ctx context.Context, c Cluster, o Options) (report *Report, err error) {
	t := &test{Options: o, cluster: c}
	began := time.Now()
	made := false
	defer func() {
		report = &t.report
		report.Seconds = time.Since(began).Seconds()
		report.Pass = err == nil && len(report.Checks) > 0 && !slices.ContainsFunc(report.Checks, failed)
		if made && !o.Keep {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
			defer cancel()
			fmt.Fprintln(t.Progress, "taking away the pods of the test")
			if _, left := c.Clean(ctx); left != nil {
				err = errors.Join(err, fmt.Errorf("something is left, which culvert connectivity clean takes away: %w", left))
			}
		}
	}()
	if err := t.choose(ctx); err != nil {
		return nil, err
	}
	d := Deployment{Image: o.Image, Ports: o.Ports}
	for _, n := range t.nodes {
		d.Nodes = append(d.Nodes, n.Name)
	}
	err = c.Start(ctx, d)
	made = !errors.Is(err, ErrThere) && !errors.Is(err, ErrForeign)
	if err != nil {
		return nil, err
	}
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	return nil, t.checks(ctx)
}

// cleanTime limits the removal of what the test made.
const cleanTime = 2 * time.Minute

// choose finds the nodes to test, and judges the agents on them.
func (t *test) choose(ctx context.Context) error {
	all, err := t.cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b Node) int { return compareNames(a.Name, b.Name) })
	for _, name := range t.Options.Nodes {
		if !slices.ContainsFunc(all, func(n Node) bool { return n.Name == name }) {
			return fmt.Errorf("the cluster has no node %s", name)
		}
	}
	for _, n := range all {
		if len(t.Options.Nodes) > 0 && !slices.Contains(t.Options.Nodes, n.Name) || t.Most > 0 && len(t.nodes) >= t.Most {
			continue
		}
		row := Row{Check: "agent is ready", From: n.Name, To: n.Name, Result: Pass}
		if n.Problem != "" {
			row.fail("%s", n.Problem)
		} else {
			t.nodes = append(t.nodes, n)
		}
		t.report.Checks = append(t.report.Checks, row)
	}
	t.report.Nodes = len(t.nodes)
	if len(t.nodes) == 0 {
		return errors.New("no node has an agent that is ready: " + details(t.report.Checks))
	}
	return nil
}

// details are those of rows that failed.
func details(rows []Row) string {
	var list []string
	for _, r := range filter(rows, failed) {
		list = append(list, fmt.Sprintf("%s: %s", r.From, r.Detail))
	}
	return strings.Join(list, "; ")
}

// ready waits for the test's pods, and goes on with the nodes that have them all.
func (t *test) ready(ctx context.Context) error {
	begin := time.Now()
	fmt.Fprintf(t.Progress, "waiting for pods on %d nodes ... ", len(t.nodes))
	pods, err := t.await(ctx)
	if err != nil {
		fmt.Fprintln(t.Progress)
		return err
	}
	fmt.Fprintf(t.Progress, "%.1f s\n", time.Since(begin).Seconds())
	var whole []Pod
	for _, n := range t.nodes {
		row := Row{Check: "pods start", From: n.Name, To: n.Name, Result: Pass}
		of := filter(pods, func(p Pod) bool { return p.Node == n.Name })
		for _, role := range Roles() {
			if i := slices.IndexFunc(of, func(p Pod) bool { return p.Role == role }); i < 0 {
				row.fail("%s: none is made", role)
			} else if !of[i].Ready {
				row.fail("%s: %s", of[i].Container.Pod, of[i].Problem)
			}
		}
		if row.Result == Pass {
			whole = append(whole, of...)
		}
		t.report.Checks = append(t.report.Checks, row)
	}
	if len(whole) == 0 {
		return errors.New("the test's pods do not start: " + details(t.report.Checks))
	}
	service, err := t.cluster.Service(ctx)
	t.field = newField(whole, service, t.Ports)
	return err
}

// await looks at the pods until all are ready, or one never will be.
func (t *test) await(ctx context.Context) (pods []Pod, err error) {
	const look = 250 * time.Millisecond
	_, err = until(ctx, t.Start, look, func() (bool, error) {
		pods, err = t.cluster.Pods(ctx)
		ready := len(filter(pods, func(p Pod) bool { return p.Ready }))
		hopeless := len(filter(pods, func(p Pod) bool { return !p.Ready && p.Fatal }))
		all := len(t.nodes) * len(Roles())
		return ready >= all || hopeless > 0 && ready+hopeless >= all, err
	})
	return pods, err
}

// until calls f until it returns true or the time is over. It returns the last result
// of f.
func until(ctx context.Context, limit, pause time.Duration, f func() (bool, error)) (bool, error) {
	for end := time.Now().Add(limit); ; {
		done, err := f()
		if done || err != nil || time.Now().After(end) {
			return done, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// These two checks distinguish a fault of the overlay from one of the underlay.
const (
	nodeToNode = "node to node"
	podToOther = "pod to pod of another node"
)

// checks runs all checks and reports their progress.
func (t *test) checks(ctx context.Context) error {
	f := t.field
	type stage struct {
		name string
		do   func(context.Context) ([]Row, error)
	}
	stages := []stage{
		{nodeToNode, t.tasks(f.small(nodeToNode, Host, Host, other))},
		{"pod to pod of the same node", t.tasks(f.podToPod("pod to pod of the same node", same))},
		{podToOther, t.tasks(f.podToPod(podToOther, other))},
		{"pod to node", t.tasks(append(f.small("pod to its node", Client, Host, same), f.small("pod to another node", Client, Host, other)...))},
		{"node to pod", t.tasks(append(f.small("node to its pod", Host, Server, same), f.small("node to another's pod", Host, Server, other)...))},
		{"ClusterIP", t.settled(t.tasks(f.clusterIP()))},
		{"NodePort", t.tasks(f.nodePort())},
		{"big packets", t.tasks(f.big())},
		{"policies", t.policies},
	}
	for _, a := range t.Outside {
		stages = append(stages, stage{"to " + a.String(), t.tasks(f.outside(a))})
	}
	t.drops = t.dropped(ctx)
	for i, s := range stages {
		began := time.Now()
		fmt.Fprintf(t.Progress, "[%2d/%d] %s ... ", i+1, len(stages), s.name)
		rows, err := s.do(ctx)
		if err == nil {
			err = ctx.Err() // what did not come to its end says nothing
		}
		if err != nil {
			fmt.Fprintln(t.Progress)
			return err
		}
		t.report.Checks = append(t.report.Checks, rows...)
		fmt.Fprintf(t.Progress, "%s (%.1f s)\n", verdict(rows), time.Since(began).Seconds())
	}
	t.hints(ctx)
	return nil
}

var serviceTime = 10 * time.Second // none in tests

// settled repeats the checks until all pass, or until serviceTime is over: kube-proxy
// may need a moment to learn of the Service.
func (t *test) settled(do func(context.Context) ([]Row, error)) func(context.Context) ([]Row, error) {
	return func(ctx context.Context) (rows []Row, err error) {
		_, err = until(ctx, serviceTime, 0, func() (bool, error) {
			rows, err = do(ctx)
			return !slices.ContainsFunc(rows, failed), err
		})
		return rows, err
	}
}

func verdict(rows []Row) string {
	bad := filter(rows, failed)
	switch {
	case len(rows) == 0:
		return "nothing to try"
	case len(bad) > 0:
		return fmt.Sprintf("FAILED: %d of %d, first %s to %s: %s", len(bad), len(rows), bad[0].From, bad[0].To, bad[0].Detail)
	case len(filter(rows, func(r Row) bool { return r.Result == LeftOut })) == len(rows):
		return "left out: " + rows[0].Detail
	}
	return "ok"
}

// tasks runs the tasks and sends each pod only one request.
func (t *test) tasks(list []task) func(context.Context) ([]Row, error) {
	return func(ctx context.Context) ([]Row, error) {
		rows := make([]Row, len(list))
		of := map[Container][]int{}
		for i, k := range list {
			rows[i] = k.row
			of[k.pod.Container] = append(of[k.pod.Container], i)
		}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(execAtOnce)
		for _, places := range of {
			g.Go(func() error {
				var probes []Probe
				for _, i := range places {
					probes = append(probes, list[i].probe)
				}
				answers, err := t.ask(ctx, list[places[0]].pod, probes, nil)
				for n, i := range places {
					if err != nil {
						rows[i].fail("%s could not be asked: %v", list[i].pod.Container.Pod, err)
						continue
					}
					list[i].judge(&rows[i], answers[n])
				}
				return ctx.Err()
			})
		}
		err := g.Wait()
		return rows, err
	}
}

// ask has a pod send. Endless probes end when enough is closed.
func (t *test) ask(ctx context.Context, pod Pod, probes []Probe, enough io.Reader) (answers []Answer, err error) {
	line, err := json.Marshal(probes)
	if err != nil {
		return nil, err
	}
	var input io.Reader = bytes.NewReader(append(line, '\n'))
	if enough != nil {
		input = io.MultiReader(input, enough)
	}
	out, err := t.cluster.Exec(ctx, pod.Container, input, Program, "connectivity", "probe")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(probes) {
		return nil, fmt.Errorf("it answered %q", out)
	}
	return answers, nil
}

// see asks the agent of a node.
func (t *test) see(ctx context.Context, node Node, v any, command ...string) error {
	out, err := t.cluster.Exec(ctx, node.Agent, nil, append(append([]string{Program}, command...), "--output", "json")...)
	if err != nil {
		return fmt.Errorf("agent of %s: %w", node.Name, err)
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("agent of %s: culvert %s: %w", node.Name, strings.Join(command, " "), err)
	}
	return nil
}

// dropped asks all agents what they have dropped. Of those that do not answer
// nothing is known.
func (t *test) dropped(ctx context.Context) map[string]map[string]uint64 {
	all := map[string]map[string]uint64{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(execAtOnce)
	for _, n := range t.nodes {
		g.Go(func() error {
			var list []struct {
				Text    string `json:"text"`
				Packets uint64 `json:"packets"`
			}
			if err := t.see(ctx, n, &list, "drops"); err != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all[n.Name] = map[string]uint64{}
			for _, d := range list {
				all[n.Name][d.Text] = d.Packets
			}
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	return all
}

// hints say what helps to find the reason, if something failed.
func (t *test) hints(ctx context.Context) {
	t.report.Hints = common(t.report.Checks)
	if !slices.ContainsFunc(t.report.Checks, failed) {
		return
	}
	// A node that others reach while they do not reach its SIDs.
	for _, n := range t.nodes {
		to := func(check string, result Result) []Row {
			return filter(t.report.Checks, func(r Row) bool { return strings.HasPrefix(r.Check, check) && r.To == n.Name && r.Result == result })
		}
		if n.Overlay != nil && len(to(nodeToNode, Fail)) == 0 && len(to(nodeToNode, Pass)) > 0 && len(to(podToOther, Pass)) == 0 && len(to(podToOther, Fail)) > 0 {
			t.report.Hints = append(t.report.Hints, fmt.Sprintf("%s is reached, its pods are not: does the network between nodes route its locator %v to it? With sids: double it need not",
				n.Name, n.Overlay.Locator))
		}
	}
	now := t.dropped(ctx)
	for _, n := range t.nodes {
		if now[n.Name] == nil {
			t.report.Hints = append(t.report.Hints, fmt.Sprintf("the agent of %s does not answer", n.Name))
			continue
		}
		for _, text := range slices.Sorted(maps.Keys(now[n.Name])) {
			if more := now[n.Name][text] - t.drops[n.Name][text]; more > 0 {
				t.report.Hints = append(t.report.Hints, fmt.Sprintf("the data path of %s dropped %d packets meanwhile: %s", n.Name, more, text))
			}
		}
	}
}
