package kube

import (
	"fmt"
	"maps"
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
	begins := lineStarts(text)
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

// lineStarts are where the lines of a text begin.
func lineStarts(text string) []int {
	starts := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// next reads what of a text is another than r's. It says whether it could: else the
// text is to be read whole.
func (r *reading) next(text, node string) (*reading, bool) {
	if r == nil || len(r.starts) == 0 {
		return nil, false
	}
	same := commonStart(r.text, text)
	first, found := slices.BinarySearch(r.starts, same)
	if !found {
		first-- // it is the end of one that changes
	}
	if first < 0 {
		return nil, false
	}
	rest := commonEnd(r.text[r.starts[first]:], text[r.starts[first]:])
	last, _ := slices.BinarySearch(r.starts, len(r.text)-rest)
	begin, end, moved := r.starts[first], len(text), len(text)-len(r.text)
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
	return next, next.distinct()
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

// distinct says that no two entries have one name.
func (r *reading) distinct() bool {
	names := make(map[string]bool, len(r.entries))
	for _, e := range r.entries {
		names[e.name] = true
	}
	return len(names) == len(r.entries)
}

// commonStart is how many bytes two texts begin with alike.
func commonStart(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// commonEnd is how many they end with.
func commonEnd(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[len(a)-1-i] != b[len(b)-1-i] {
			return i
		}
	}
	return n
}

// wholeText is all that a ConfigMap says.
func wholeText(data map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(data)) {
		b.WriteString(key + "\n" + data[key] + "\x00")
	}
	return b.String()
}
