package report

import (
	"bytes"
	"fmt"
	"strings"
)

// lead says in a sentence or two what the report is of.
func (r report) lead() string {
	if p := r.parts[0]; p.comparison != nil {
		return fmt.Sprintf("The same experiments, measured more than once. Every run is compared with %s; ratios are of medians.", p.comparison.Runs[0])
	}
	if len(r.parts) == 1 {
		return r.parts[0].firstOf().Summary
	}
	return "Each tunnel is set beside plain forwarding of the same packets, measured in turns on the same cores: what it costs is what it takes more."
}

// summary is the report as text, with its pictures if there are any.
func (r report) summary(pictures bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s\n\n%s\n", r.title, r.lead(), strings.Join(r.machines(), "\\\n"))
	list(&b, "Before you use these figures", r.warnings())
	for _, o := range r.overviews() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", o.Title, o.Caption, o.Table.markdown())
	}
	list(&b, "What the figures bear out", r.claims())
	for _, p := range r.parts {
		if len(r.parts) > 1 {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", p.firstOf().Title, p.firstOf().Summary)
		}
		for _, d := range p.drawings() {
			d.summary(&b, pictures)
		}
		for _, s := range p.sources {
			name := "Where it was measured"
			if s.label != "" {
				name += ": " + s.label
			}
			fmt.Fprintf(&b, "\n### %s\n\n    %s\n\n", name, s.run.Command)
			for _, f := range facts(s.run, rawOf(p, s)) {
				fmt.Fprintf(&b, "- %s: %s\n", f.Name, f.Text)
			}
		}
	}
	return b.Bytes()
}

func list(b *bytes.Buffer, head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n**%s**\n\n", head)
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", l)
	}
}

func (d drawing) summary(b *bytes.Buffer, pictures bool) {
	c := d.chart
	fmt.Fprintf(b, "\n### %s\n\n", c.Title)
	if pictures && c.hasPicture() {
		fmt.Fprintf(b, "![%s](figures/%s.png)\n\n", strings.NewReplacer("[", "(", "]", ")").Replace(c.Title), c.file())
	}
	fmt.Fprintf(b, "%s\n", c.Caption)
	for _, n := range c.notes {
		fmt.Fprintf(b, "\n%s\n", n)
	}
	for _, a := range c.anchors {
		fmt.Fprintf(b, "\n- Others' figure: %s: %s", a.Label, a.words())
	}
	if len(c.anchors) > 0 {
		b.WriteByte('\n')
	}
	if len(d.table.Rows) > 0 {
		fmt.Fprintf(b, "\n%s", d.table.markdown())
	}
}
