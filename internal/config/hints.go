package config

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unreadable says where data is no text.
func unreadable(data []byte) (e Error, is bool) {
	for _, order := range []string{"\xfe\xff", "\xff\xfe"} { // of UTF-16, which the YAML library reads
		if bytes.HasPrefix(data, []byte(order)) {
			return e, false
		}
	}
	const fix = "save the file as plain text in UTF-8, and check that it is the right one"
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if !utf8.Valid(text) {
			return Error{Line: line, Problem: "is not UTF-8", Fix: fix}, true
		}
		if i := bytes.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\r\n\u0085", r) }); i >= 0 {
			r, _ := utf8.DecodeRune(text[i:])
			return Error{Line: line, Problem: fmt.Sprintf("has the control character %U", r), Fix: fix}, true
		}
	}
	return e, false
}

// typographic has the characters that web pages and word processors put where a configuration has
// quotes and spaces, and what to write.
var typographic = strings.NewReplacer("“", "", "”", "", "„", "", "«", "", "»", "", "‘", "", "’", "", "‚", "",
	"\u00a0", " ", "\u2007", " ", "\u202f", " ", "\u3000", " ", "\u200b", "", "\u2060", "", "\ufeff", "")

// plain returns a text without typographic quotes and spaces, and the first of these.
func plain(text string) (out string, strange rune) {
	for _, r := range text {
		if r >= utf8.RuneSelf && typographic.Replace(string(r)) != string(r) {
			return strings.TrimSpace(typographic.Replace(text)), r
		}
	}
	return text, 0
}

// keyboardFix is the fix for a text with such a character, which is right without it. Other spaces may
// have indented it.
func keyboardFix(right string, strange rune) string {
	if isSpace(strange) {
		return "write ordinary spaces in their place"
	}
	return "write " + right
}

// ordinary is what to write for such a character where it is between values.
func ordinary(strange rune) string {
	if isSpace(strange) {
		return "write an ordinary space"
	}
	return "write an ordinary quote"
}

// isSpace says whether a character cannot be seen.
func isSpace(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }

// strangeName is what to call such a character.
func strangeName(r rune) string {
	if isSpace(r) {
		return fmt.Sprintf("a special space (%U)", r)
	}
	return fmt.Sprintf("a typographic quote, %c", r)
}

// trap is what often is wrong in a line that is no YAML.
type trap struct {
	sign *regexp.Regexp
	fix  string // $1 is what the sign has in parentheses
}

const template = "write the value: this is a template, which is not filled in"

// anywhere are the traps that are wrong in whichever line of a section they are.
var anywhere = []trap{
	{regexp.MustCompile("^ *\t"), "write spaces in place of the tab"},
	{regexp.MustCompile(`^--- +[^#\s]`), "remove this line, or write # in front of it"},
	{regexp.MustCompile(`\{\{`), template},
	{regexp.MustCompile(`\$\{?[A-Za-z_]`), "write the value: variables are not filled in"},
}

// here are the traps of the line that the YAML library names, or of the one above.
var here = []trap{
	{regexp.MustCompile(`^\s*(?:- +)?\{?([a-f0-9]*[g-z_][a-z0-9_]*):[\["'0-9a-z]`), "write a space behind the colon of $1"}, // no address
	{regexp.MustCompile(`^\s*-[^\s-]`), "write a space behind -"},
	{regexp.MustCompile(`^\s*([a-z0-9_]+)\s*=`), "write $1: in place of $1 ="},
	{regexp.MustCompile(`\s//`), "write # in front of a comment"},
	{regexp.MustCompile("[:,\\[{]\\s*([%@`])"), "quote the value that begins with $1"},
}

// hint says which line is the wrong one where the YAML library names line at, and what to write. lines
// are those of the section, the first of which is line first of the file.
func hint(lines []string, first, at int, problem string) (line int, fix string) {
	for i, text := range lines {
		if _, strange := plain(code(text)); strange != 0 {
			return first + i, ordinary(strange) + " in place of " + strangeName(strange)
		}
		if f := firstTrap(anywhere, text); f != "" {
			return first + i, f
		}
	}
	above := at - 1
	for above > first && isBlank(lines[above-first]) {
		above--
	}
	for _, n := range []int{at, above} {
		if i := n - first; i >= 0 && i < len(lines) {
			if f := firstTrap(here, lines[i]); f != "" {
				return n, f
			}
		}
	}
	if strings.HasSuffix(problem, "unexpected end of stream") {
		return at, "close the quote that begins in this line"
	}
	if i, f := misplaced(lines); f != "" {
		return first + i, f
	}
	return at, ""
}

func firstTrap(traps []trap, line string) string {
	line = code(line)
	for _, t := range traps {
		if m := t.sign.FindStringSubmatchIndex(line); m != nil {
			return string(t.sign.ExpandString(nil, t.fix, line, m))
		}
	}
	return ""
}

// code is a line without its comment.
func code(line string) string {
	if isBlank(line) {
		return ""
	}
	text, _, _ := strings.Cut(line, " #")
	return text
}

func isBlank(line string) bool {
	text := strings.TrimSpace(line)
	return text == "" || strings.HasPrefix(text, "#")
}

var (
	// entry is a line with an item of a list, with a field, or with both, and with what is behind these.
	entry = regexp.MustCompile(`^(\s*)((?:- +)?)((?:[A-Za-z_"'][^:{\[]*:(?:\s+|$))?)([^#]*)`)
	open  = regexp.MustCompile(`:\s*[|>][-+0-9]*\s*$`) // a text of several lines follows
)

// misplaced finds the first line of a section that is indented as no line around it is.
func misplaced(lines []string) (index int, fix string) {
	var around []int        // how far the lines are indented that the next may go on with
	lists := map[int]bool{} // those of them that begin with -
	isWhole := false        // the line above has a value
	for i, line := range lines {
		if isBlank(line) {
			continue
		}
		m := entry.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil || open.MatchString(line) || strings.Count(line, "[")+strings.Count(line, "{") != strings.Count(line, "]")+strings.Count(line, "}") {
			return 0, "" // a value that goes on in the next line
		}
		indent, isItem := len(m[1]), m[2] != ""
		if len(around) > 0 {
			last := around[len(around)-1]
			switch {
			case indent > last && isWhole:
				return i, fmt.Sprintf("indent it by %d spaces, as the line above: that has a value already", last)
			case indent < last && !slices.Contains(around, indent):
				return i, fmt.Sprintf("indent it by %d spaces, as the lines above", last)
			case lists[indent] && !isItem && slices.Contains(around, indent):
				return i, "indent it less, or write - in front of it: the lines above are a list"
			}
		}
		around = append(slices.DeleteFunc(around, func(n int) bool { return n >= indent }), indent)
		if lists[indent] = isItem; isItem && m[3] != "" {
			around = append(around, indent+len(m[2]))
		}
		isWhole = m[4] != ""
	}
	return 0, ""
}
