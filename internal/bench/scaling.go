package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/culvert-net/culvert/internal/bench/stats"
)

// scalingReport is what `culvert bench scaling` says.
type scalingReport struct {
	Bench       string       `json:"bench"`
	Rows        []scalingRow `json:"rows"`
	Environment environment  `json:"environment"`
}

// scalingRow is one function. Ratio is 2 * OneNS / TwoNS: how many times as
// many packets two cores forward as one, by CPU time. WallRatio is by the
// clock on the wall, which holds on an idle machine only.
type scalingRow struct {
	Name      string  `json:"name"`
	Entries   uint32  `json:"entries"`
	OneNS     float64 `json:"one_ns"`
	TwoNS     float64 `json:"two_ns"`
	Ratio     float64 `json:"ratio"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	WallRatio float64 `json:"wall_ratio"`
}

// pace is what one run took: CPU ns of a packet, and ns until all were out.
type pace struct{ cpu, wall float64 }

func runScaling(ctx context.Context, o *options, p plan, stderr io.Writer) (_ *scalingReport, err error) {
	pair, err := twoCPUs()
	if err != nil {
		return nil, err
	}
	b, err := setUp(ctx, o, p, pair[1]+1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	out := &scalingReport{Bench: "scaling"}
	if out.Environment, err = b.environment(ctx); err != nil {
		return nil, err
	}
	rows := b.rows()
	one, two := make([][]pace, len(rows)), make([][]pace, len(rows))
	bar := progress(stderr, len(rows)*b.repeat, "measuring")
	for range b.repeat {
		for i, r := range rows {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for cores, samples := range map[int]*[]pace{1: &one[i], 2: &two[i]} {
				s, err := b.together(r, pair[2-cores:])
				if err != nil {
					return nil, fmt.Errorf("%s on %d cores: %w", r.name, cores, err)
				}
				*samples = append(*samples, s)
			}
			_ = bar.Add(1)
		}
	}
	_ = bar.Finish()
	for i, r := range rows {
		out.Rows = append(out.Rows, scalingOf(r, one[i], two[i]))
	}
	return out, nil
}

// twoCPUs are the last two that the process may run on.
func twoCPUs() ([]int, error) {
	cpus, err := allowedCPUs()
	if err == nil && len(cpus) < 2 {
		err = errors.New("two cores over one need two CPUs, and this process may use one")
	}
	if err != nil {
		return nil, err
	}
	return cpus[len(cpus)-2:], nil
}

func scalingOf(r *row, one, two []pace) scalingRow {
	var ones, twos, wallOnes, wallTwos []float64
	for i := range one {
		ones, twos = append(ones, 2*one[i].cpu), append(twos, two[i].cpu)
		wallOnes, wallTwos = append(wallOnes, 2*one[i].wall), append(wallTwos, two[i].wall)
	}
	ratio, low, high := stats.Interval(ones, twos)
	return scalingRow{
		Name: r.name, Entries: r.entries, OneNS: stats.Median(ones) / 2, TwoNS: stats.Median(twos),
		Ratio: ratio, Low: low, High: high, WallRatio: stats.Median(wallOnes) / stats.Median(wallTwos),
	}
}

// together sends a row's frames on all of some CPUs at once, as many on each.
func (b *bench) together(r *row, cpus []int) (pace, error) {
	l := load{r.portName(), r.frame(r.entries, b.tables()), b.program, r.want}
	if r.name == baselineName {
		l.program = b.l2
	}
	if err := b.node.bench.Prepare(l.frame, l.program); err != nil {
		return pace{}, err
	}
	if err := b.node.bench.ResetSinks(); err != nil {
		return pace{}, err
	}
	var ready, done sync.WaitGroup
	var mu sync.Mutex
	var sum pace
	var errs []error
	ready.Add(len(cpus))
	for _, cpu := range cpus {
		done.Go(func() {
			arrive := sync.OnceFunc(ready.Done)
			defer arrive() // or the others would wait for one that failed
			err := b.node.onCPU(cpu, func(c clock) error {
				arrive()
				ready.Wait()
				begin := time.Now()
				spent, err := c.during(func() error { return b.node.bench.RunLive(l.frame, b.node.index[l.port], b.packets) })
				mu.Lock()
				defer mu.Unlock()
				sum.cpu += float64(spent) / float64(b.packets) / float64(len(cpus))
				sum.wall = max(sum.wall, float64(time.Since(begin).Nanoseconds()))
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	done.Wait()
	if err := errors.Join(errs...); err != nil {
		return pace{}, err
	}
	return sum, b.node.sunk(uint64(len(cpus))*uint64(b.packets), l.want)
}

func (r *scalingReport) writeJSON(w io.Writer) error { return writeJSON(w, r) }

func (r *scalingReport) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "function\tentries\tone core, ns\ttwo cores, ns\tratio\t95 %\tby the wall\t")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.1f\t%.2f\t%.2f to %.2f\t%.2f\t\n",
			row.Name, row.Entries, row.OneNS, row.TwoNS, row.Ratio, row.Low, row.High, row.WallRatio)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nns: CPU time of a packet; ratio: twice one by two, median and 95 %% interval of %d rounds; by the wall: holds on an idle machine\n%s\n",
		r.Environment.Rounds, r.Environment)
	return err
}
