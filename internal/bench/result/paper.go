package result

import (
	"fmt"
	"math"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Paper is a published measurement that an experiment repeats.
type Paper struct {
	Number   string // "000"
	Title    string
	Source   string // authors and title, as anchors name it
	Question string
	Command  string // that measures it
	Figure   string // the ID of our figure that stands beside the paper's
	Findings []Finding
}

// Finding is what a paper says of two quantities, and how ours are compared: A by B. Without B
// a measurement is compared with its own baseline.
type Finding struct {
	Says   string // "SRv6 traditional loses packets no earlier than GTP-U"
	Theirs string // the number that is published
	Ratio  string // what is divided: "highest rate delivered, compared with GTP-U's"
	Metric string
	A, B   Labels
	// Knee is the label with the rate: A and B are curves, and their knees are compared.
	Knee   string
	Expect Expectation
	// NoiseLimit is the Environment.Noise above which this says nothing; 0: the run's.
	NoiseLimit float64
	// Incomparable is why ours says nothing of it, whatever it is; empty: it does.
	Incomparable string
}

// Expectation is where a paper has the ratio.
type Expectation string

// The expectations.
const (
	More    Expectation = "more"    // above 1
	Less    Expectation = "less"    // below 1
	Same    Expectation = "same"    // 1, up to Margin
	NotLess Expectation = "notless" // 1 or more, up to Margin
)

// Verdict is what our figures say of a finding.
type Verdict string

// The verdicts.
const (
	Agrees        Verdict = "agrees"
	Contradicts   Verdict = "contradicts"
	Open          Verdict = "not shown" // by the interval, or for want of one
	NotComparable Verdict = "not comparable"
	NotMeasured   Verdict = "not measured"
)

// Criterion says how a Verdict is found, for readers.
var Criterion = fmt.Sprintf("Each finding is a ratio of two of our quantities, of the same rounds. It agrees if our whole interval is on the paper's side of 1, "+
	"or within %.0[1]f %% of 1 where the paper has no difference. It contradicts if the whole interval is on the other side, where a difference of less than %.0[1]f %% counts as none. "+
	"Otherwise, and of one round, it is not shown. What ours lacks, such as several cores, makes a finding not comparable.", 100*Margin)

// Judged is a finding with what a run says of it.
type Judged struct {
	Finding
	Ours    Estimate // of the ratio
	Verdict Verdict
	Why     string // it is not shown or not comparable, where the interval does not say
}

// Judge holds a run against a finding.
func (f Finding) Judge(run *Run) Judged {
	j := Judged{Finding: f, Ours: f.ratio(run), Verdict: NotMeasured}
	limit := run.NoiseLimit
	if f.NoiseLimit > 0 {
		limit = f.NoiseLimit
	}
	switch {
	case !j.Ours.Measured():
	case f.Incomparable != "":
		j.Verdict, j.Why = NotComparable, f.Incomparable
	case limit > 0 && run.Environment.Noise > limit:
		j.Verdict, j.Why = Open, "others used the CPU"
	case !j.Ours.HasInterval():
		j.Verdict, j.Why = Open, "one round"
	default:
		j.Verdict = f.Expect.judge(j.Ours)
	}
	return j
}

// ratio is A by B, round by round.
func (f Finding) ratio(run *Run) Estimate {
	nothing := Estimate{Value: math.NaN()}
	a := run.Select(f.Metric, f.A)
	if f.Knee != "" {
		return kneeRatio(a, run.Select(f.Metric, f.B), f.Knee)
	}
	if len(a) != 1 {
		return nothing
	}
	if f.B == nil {
		return a[0].Estimate(ToBaseline)
	}
	b := run.Select(f.Metric, f.B)
	if len(b) != 1 || len(b[0].Samples) != len(a[0].Samples) {
		return nothing
	}
	x, y := a[0].Samples, b[0].Samples
	if len(a[0].Baseline) > 0 && len(b[0].Baseline) > 0 {
		x, y = stats.Ratios(x, a[0].Baseline), stats.Ratios(y, b[0].Baseline)
	}
	e := Estimate{N: len(x)}
	e.Value, e.Low, e.High = stats.Interval(x, y)
	return e
}

// judge says whether an interval is where it is expected, elsewhere, or partly.
func (x Expectation) judge(e Estimate) Verdict {
	const least, most = 1 / (1 + Margin), 1 + Margin
	var there, elsewhere bool
	switch x {
	case More:
		there, elsewhere = e.Low > 1, e.High < most
	case Less:
		there, elsewhere = e.High < 1, e.Low > least
	case Same:
		there, elsewhere = e.Low >= least && e.High <= most, e.High < least || e.Low > most
	case NotLess:
		there, elsewhere = e.Low >= least, e.High < least
	}
	switch {
	case there:
		return Agrees
	case elsewhere:
		return Contradicts
	}
	return Open
}

// Judge holds runs against all findings of a paper: each finding against the first run that
// measures it.
func (p Paper) Judge(runs ...*Run) (list []Judged) {
	for _, f := range p.Findings {
		j := Judged{Finding: f, Ours: Estimate{Value: math.NaN()}, Verdict: NotMeasured}
		for _, run := range runs {
			if j = f.Judge(run); j.Verdict != NotMeasured {
				break
			}
		}
		list = append(list, j)
	}
	return list
}

// Measures says whether a run has anything of a paper.
func (p Paper) Measures(run *Run) bool {
	return slices.ContainsFunc(p.Judge(run), func(j Judged) bool { return j.Verdict != NotMeasured })
}

// Sum is the verdict of all findings together, and in words how many agree and contradict.
func Sum(list []Judged) (v Verdict, words string) {
	count := map[Verdict]int{}
	for _, j := range list {
		count[j.Verdict]++
	}
	yes, no, open := count[Agrees], count[Contradicts], count[Open]
	switch {
	case yes+no+open == 0 && count[NotComparable] > 0:
		return NotComparable, string(NotComparable)
	case yes+no+open == 0:
		return NotMeasured, string(NotMeasured)
	case no > 0 && yes > 0:
		return Contradicts, fmt.Sprintf("agrees in %d, contradicts in %d of %d", yes, no, yes+no+open)
	case no > 0:
		return Contradicts, fmt.Sprintf("contradicts in %d of %d", no, no+open)
	case yes > 0:
		return Agrees, fmt.Sprintf("agrees in %d of %d", yes, yes+open)
	}
	return Open, string(Open)
}
