package kube

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
)

// reading is a listing's text with what was read of it.
//
// A large listing changes in few of its entries, and to read all of it takes longer
// than everything else that comes of the change. So what has changed of the text is
// read by itself where the entries are lines of their own ("- egress_node: ..."),
// and is put among the entries that were read before. What is not certainly the
// same, or has a fault, is read whole.
type reading struct {
	text    string
	sids    LocalSIDs
	entries []entry
	// indent comes before the dash of each entry, and starts are where these lines
	// begin in text; without starts it is not such a listing.
	indent string
	starts []int
}

// newReading notes where the entries are.
func newReading(text string, sids LocalSIDs, entries []entry, lines config.Lines) *reading {
	r := &reading{text: text, sids: sids, entries: entries}
	if strings.ContainsAny(text, otherBreaks) {
		return r
	}
	begins := []int{0} // of the lines
	for i := range len(text) {
		if text[i] == '\n' {
			begins = append(begins, i+1)
		}
	}
	starts := make([]int, 0, len(entries))
	for i := range entries {
		at := begins[lines[fmt.Sprintf("policies[%d]", i)]-1]
		dash := strings.IndexByte(text[at:], '-')
		if dash < 0 || i > 0 && dash != len(r.indent) {
			return r
		}
		if r.indent = text[at : at+dash]; strings.Trim(r.indent, " ") != "" || !strings.HasPrefix(text[at+dash:], "- ") || at == 0 {
			return r
		}
		starts = append(starts, at)
	}
	r.starts = starts
	return r
}

// otherBreaks end lines in YAML, too.
const otherBreaks = "\r\u0085\u2028\u2029"

// next reads what of a text is another than r's. It says whether it could: else the
// text is to be read whole.
func (r *reading) next(text, node string) (*reading, bool) {
	if r == nil || len(r.starts) == 0 {
		return nil, false
	}
	same := 0 // bytes that both begin with
	for same < min(len(r.text), len(text)) && r.text[same] == text[same] {
		same++
	}
	first, found := slices.BinarySearch(r.starts, same)
	if !found {
		first-- // it is the end of one that changes
	}
	if first < 0 {
		return nil, false
	}
	begin, end, moved := r.starts[first], len(text), len(text)-len(r.text)
	rest := 0 // bytes behind begin that both end with
	for rest < min(len(r.text), len(text))-begin && r.text[len(r.text)-1-rest] == text[len(text)-1-rest] {
		rest++
	}
	last, _ := slices.BinarySearch(r.starts, len(r.text)-rest)
	if last < len(r.starts) {
		end = r.starts[last] + moved
	}
	if end < begin || end < len(text) && text[end-1] != '\n' || !r.onlyEntries(text[begin:end]) {
		return nil, false
	}
	changed, err := parseListing("node: "+node+"\npolicies:\n"+text[begin:end], node)
	if err != nil || len(changed.starts) != len(changed.entries) || changed.sids != (LocalSIDs{}) {
		return nil, false
	}
	next := &reading{text: text, sids: r.sids, indent: r.indent, entries: slices.Concat(r.entries[:first], changed.entries, r.entries[last:])}
	next.starts = slices.Clone(r.starts[:first])
	for _, at := range changed.starts {
		next.starts = append(next.starts, at-changed.starts[0]+begin)
	}
	for _, at := range r.starts[last:] {
		next.starts = append(next.starts, at+moved)
	}
	names := make(map[string]bool, len(next.entries))
	for _, e := range next.entries {
		names[e.name] = true
	}
	return next, len(names) == len(next.entries) // no two entries have one name
}

// onlyEntries: each line is an entry's, so that they are the same wherever else
// entries stand before and behind them.
func (r *reading) onlyEntries(part string) bool {
	for line := range strings.Lines(part) {
		rest, deep := strings.CutPrefix(line, r.indent)
		if !deep || !strings.HasPrefix(rest, "- ") && !strings.HasPrefix(rest, " ") {
			return false
		}
	}
	return part == "" || strings.HasPrefix(part, r.indent+"- ")
}
