package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Sizes of the chart, in pixels of its width.
const (
	chartWidth, chartHeight           = 1000.0, 300.0
	left, right, above, below         = 56.0, 16.0, 26.0, 34.0
	plotWidth, plotHeight             = chartWidth - left - right, chartHeight - above - below
	series, ticks                     = 5, 6
	closest                   float64 = 16 // events that have numbers
)

// chart draws the fullest links over time.
func (p *Page) chart(w *writer) {
	n := len(p.Frames)
	if n < 2 || p.Frames[0].At.IsZero() {
		return
	}
	begin, end := p.Frames[0].At, p.Frames[n-1].At
	x := func(t time.Time) float64 {
		return left + plotWidth*float64(t.Sub(begin))/float64(max(end.Sub(begin), 1))
	}
	chosen, most := p.fullest()
	top := math.Ceil(max(1, most, p.Target)*5) / 5 // whole fifths
	y := func(u float64) float64 { return above + plotHeight*(1-u/top) }
	w.add(`<h2>The fullest links over time</h2><figure class="scroll" tabindex="0"><svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="Utilisation of the fullest links over time; the table of links has the last values.">`, chartWidth, chartHeight)
	for u := 0.0; u <= top+0.01; u += top / 5 {
		w.add(`<path class="rule" d="M%.0f %.1fH%.0f"/><text class="tick" x="%.0f" y="%.1f" text-anchor="end">%.0f %%</text>`, left, y(u), chartWidth-right, left-6, y(u)+4, 100*u)
	}
	for i := range ticks + 1 {
		t := begin.Add(end.Sub(begin) * time.Duration(i) / ticks)
		anchor := map[int]string{0: "start", ticks: "end"}[i]
		w.add(`<text class="tick" x="%.1f" y="%.0f" text-anchor="%s">%s</text>`, x(t), chartHeight-12, cmp.Or(anchor, "middle"), t.Format(time.TimeOnly))
	}
	if p.Target > 0 {
		w.add(`<path class="target" d="M%.0f %.1fH%.0f"><title>target: %.0f %%</title></path>`, left, y(p.Target), chartWidth-right, 100*p.Target)
	}
	p.marks(w, x)
	for i, link := range chosen {
		w.add(`<g class="s%d"><title>%s</title><path class="line" d="`, i, p.Links[link].Direction())
		drawn := false // whether the line goes on
		for _, f := range p.Frames {
			if u := float64(f.Used[link]); u >= 0 {
				w.add("%s%.1f %.1f", map[bool]string{true: "L", false: "M"}[drawn], x(f.At), y(u))
				drawn = true
			} else {
				drawn = false
			}
		}
		w.add(`"/></g>`)
	}
	w.add(`<path id="cursor" d="M%.0f %.0fV%.0f"/></svg></figure><p class="legend">`, chartWidth-right, above, chartHeight-below)
	for i, link := range chosen {
		w.add(`<span><i class="key s%d"></i>%s</span>`, i, p.Links[link].Direction())
	}
	if p.Target > 0 {
		w.add(`<span><i class="key target"></i>target</span>`)
	}
	w.add("</p>\n")
}

// fullest are the links with the highest peaks, and the highest of all.
func (p *Page) fullest() (links []int, most float64) {
	peaks := make([]float64, len(p.Links))
	for _, f := range p.Frames {
		for i, u := range f.Used {
			peaks[i] = max(peaks[i], float64(u))
		}
	}
	for i := range peaks {
		links = append(links, i)
		most = max(most, peaks[i])
	}
	slices.SortStableFunc(links, func(a, b int) int { return cmp.Compare(peaks[b], peaks[a]) })
	return links[:min(series, len(links))], most
}

// marks draws events as lines, with the numbers that their table has where there is room.
func (p *Page) marks(w *writer, x func(time.Time) float64) {
	last := math.Inf(-1)
	for i, e := range p.Events {
		at := x(e.At)
		if at < left || at > chartWidth-right {
			continue
		}
		w.add(`<g class="event"><title>%d: %s %s</title><path d="M%.1f %.0fV%.0f"/>`, i+1, e.At.Format(time.TimeOnly), e.What, at, above, chartHeight-below)
		if at-last >= closest {
			w.add(`<text x="%.1f" y="%.0f">%d</text>`, at, above-8, i+1)
			last = at
		}
		w.add("</g>")
	}
}

// events lists what happened, the latest first.
func (p *Page) events(w *writer) {
	if len(p.Events) == 0 {
		return
	}
	t := Table{Title: "What happened", Caption: "The numbers are those in the chart.", Head: []string{"", "time", "event"}}
	for i, e := range slices.Backward(p.Events) {
		t.Rows = append(t.Rows, []string{fmt.Sprint(i + 1), e.At.Format(time.TimeOnly), e.What})
	}
	w.table(t)
}
