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
