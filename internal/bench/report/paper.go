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
		b := paperBox{Paper: p, Verdict: result.NotMeasured, Words: string(result.NotMeasured)}
		for _, part := range r.Parts {
			if b.Rows == nil && p.Measures(part.Run()) {
				b.fill(part)
			}
		}
		if b.Rows != nil || r.Many() {
			list = append(list, b)
		}
	}
	return list
}

// fill holds a part's run against the paper.
func (b *paperBox) fill(of part) {
	b.Rows = b.Judge(of.Run())
	b.Verdict, b.Words = result.Sum(b.Rows)
	for _, c := range of.charts {
		if c.ID == b.Figure && c.HasPicture() {
			b.Drawing = &drawing{Chart: c, width: headlineWidth}
			return
		}
	}
}

// Class is the verdict as the page's style has it.
func (b paperBox) Class() string { return strings.ReplaceAll(string(b.Verdict), " ", "-") }

// Heading names the paper.
func (b paperBox) Heading() string { return "Paper " + b.Number + ": " + b.Title }

// Criterion says how verdicts are found.
func (report) Criterion() string { return result.Criterion }

// Table has a row for each finding.
func (b paperBox) Table() table {
	t := table{Head: []string{"the paper finds", "the paper's figure", "ours", "verdict"}, Numbers: 4}
	for _, j := range b.Rows {
		ours := "–"
		if j.Ours.Measured() {
			value, interval := ratioScale.words(j.Ours)
			ours = value + " times"
			if j.Ours.HasInterval() {
				ours += " (" + interval + ")"
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
