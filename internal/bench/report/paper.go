package report

import (
	"strings"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// paperBox is a paper on the first page: what it asks and finds, what ours are, and one picture.
type paperBox struct {
	result.Paper
	// Verdict is of all findings, Words say it with their numbers.
	Verdict result.Verdict
	Words   string
	Rows    []result.Judged
	Drawing *drawing // nil: there is no such figure
}

// Boxes are the papers that the report is about: of many experiments all, of a single run those
// that it measures, and of a comparison none.
func (r report) Boxes() (list []paperBox) {
	if r.Parts[0].comparison != nil {
		return nil
	}
	for _, p := range r.papers {
		b := paperBox{Paper: p, Rows: p.Judge(r.runs()...)}
		b.Verdict, b.Words = result.Sum(b.Rows)
		switch measured := b.Verdict != result.NotMeasured; {
		case measured:
			b.Drawing = r.drawing(p)
		case !r.Many():
			continue
		default:
			b.Rows = nil
		}
		list = append(list, b)
	}
	return list
}

// runs are those of all parts.
func (r report) runs() (list []*result.Run) {
	for _, part := range r.Parts {
		list = append(list, part.Run())
	}
	return list
}

// drawing is a paper's picture, or nil: of the first experiment that measures something of the paper
// and has it.
func (r report) drawing(p result.Paper) *drawing {
	for _, part := range r.Parts {
		if !p.Measures(part.Run()) {
			continue
		}
		for _, c := range part.charts {
			if c.ID == p.Figure && c.HasPicture() {
				return &drawing{Chart: c, width: headlineWidth}
			}
		}
	}
	return nil
}

// Class is the verdict as the page's style has it.
func (b paperBox) Class() string { return strings.ReplaceAll(string(b.Verdict), " ", "-") }

// Heading names the paper.
func (b paperBox) Heading() string { return "Paper " + b.Number + ": " + b.Title }

// Criterion says how verdicts are found.
func (report) Criterion() string { return result.Criterion }

// Table has a row for each finding.
func (b paperBox) Table() table {
	t := table{Head: []string{"the paper finds", "the paper's figure", "ours (95 % interval)", "verdict"}, Numbers: 4}
	for _, j := range b.Rows {
		ours := "–"
		if j.Ours.Measured() {
			ours = inTimes(j.Ours.Value) + " times"
			if j.Ours.HasInterval() {
				ours += " (" + inTimes(j.Ours.Low) + " to " + inTimes(j.Ours.High) + ")"
			}
			ours += ": " + j.Ratio
		}
		verdict := string(j.Verdict)
		if j.Why != "" {
			verdict += ": " + j.Why
		}
		t.Rows = append(t.Rows, []string{j.Says, j.Theirs, ours, verdict})
	}
	return t
}

// inTimes writes a ratio with two decimals, a large one with three digits and one near 0 with two:
// an interval can go from 0.0043 to 356.
func inTimes(v float64) string {
	switch n := decimals(v); {
	case v >= 10:
		return fixed(v, n)
	case v < 0.1:
		return fixed(v, max(n-1, ratioScale.places))
	}
	return fixed(v, ratioScale.places)
}
