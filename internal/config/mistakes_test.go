package config_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/tools/txtar"

	"github.com/culvert-net/culvert/internal/config"
)

var update = flag.Bool("update", false, "write the errors of testdata/mistakes.txtar from what is found now")

const mistakes = "testdata/mistakes.txtar"

// fewestMistakes are in the table at least, so that nobody empties it.
const fewestMistakes = 160

// errorsOf returns what is wrong with a file that must be refused.
func errorsOf(t *testing.T, text string) config.Errors {
	t.Helper()
	_, err := config.Parse([]byte(text))
	list, ok := errors.AsType[config.Errors](err)
	if !ok {
		t.Fatalf("%v is no list of errors", err)
	}
	return list
}

// Each mistake is reported with its line, its field and a fix, and nothing else is.
func TestMistakes(t *testing.T) {
	archive, err := txtar.ParseFile(mistakes)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := 0; i+1 < len(archive.Files); i += 2 {
		file, golden := archive.Files[i], &archive.Files[i+1]
		t.Run(file.Name, func(t *testing.T) {
			list := errorsOf(t, string(file.Data))
			n += len(list)
			for _, e := range list {
				if e.Line == 0 {
					t.Errorf("%v: without a line", e)
				}
				if e.Fix == "" {
					t.Errorf("%v: without a fix", e)
				}
			}
			got := list.Error() + "\n"
			if *update {
				golden.Data = []byte(got)
			} else if got != string(golden.Data) {
				t.Errorf("got:\n%s\nwant:\n%s", got, golden.Data)
			}
		})
	}
	if n < fewestMistakes {
		t.Errorf("only %d mistakes", n)
	}
	if *update {
		if err := os.WriteFile(mistakes, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// literal matches fixes that say what to write, and nothing else.
var literal = regexp.MustCompile(`^(?:did you mean "([^"]*)"\?|write ([^ ,]+|\[.*\]|\{[^{}]*\}|behavior: .*)(?:, in [a-z/]+)?|quote it: (.*)|write (\S+) without quotes)$`)

// wrong finds in the problem of an error what its fix replaces.
var wrong = []*regexp.Regexp{
	regexp.MustCompile(`"([^"]+)"`), // as in: "x" is not a y, is the text "x"
	regexp.MustCompile(`the (?:number|truth value) (\S+)$`),
	regexp.MustCompile(`^(\S+) has bits`),
	regexp.MustCompile(`no commas, is (\S+)$`),
}

// apply makes the change that a fix says in the line that the error names. It returns
// false for fixes that are a person's to make.
func apply(text string, e config.Error) (string, bool) {
	groups := literal.FindStringSubmatch(e.Fix)
	if groups == nil {
		return "", false
	}
	i := slices.IndexFunc(groups[1:], func(g string) bool { return g != "" })
	right := groups[1:][i]
	var old []string
	if e.Problem == "unknown field" {
		old = []string{e.Field[strings.LastIndex(e.Field, ".")+1:] + ":"}
		right += ":"
	}
	for _, r := range wrong {
		if m := r.FindStringSubmatch(e.Problem); m != nil && old == nil {
			old = []string{`"` + m[1] + `"`, m[1]} // as it is written in the file
			if strings.HasPrefix(right, "behavior:") {
				old = []string{"behavior: " + m[1]}
			}
		}
	}
	lines := strings.SplitAfter(text, "\n")
	line := &lines[e.Line-1]
	for _, o := range old {
		if strings.Contains(*line, o) {
			*line = strings.Replace(*line, o, right, 1)
			return strings.Join(lines, ""), true
		}
	}
	return "", false
}

// A fix that is a literal replacement makes the error go away that it is of, and adds no
// other one in that field.
func TestFixesWork(t *testing.T) {
	archive, err := txtar.ParseFile(mistakes)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for i := 0; i+1 < len(archive.Files); i += 2 {
		text := string(archive.Files[i].Data)
		for _, e := range errorsOf(t, text) {
			fixed, ok := apply(text, e)
			if !ok {
				if literal.MatchString(e.Fix) && !strings.HasSuffix(e.Problem, "is a list") {
					t.Errorf("%s: %v: the line has nothing to replace", archive.Files[i].Name, e)
				}
				continue
			}
			tried++
			_, err := config.Parse([]byte(fixed))
			after, _ := errors.AsType[config.Errors](err)
			if slices.ContainsFunc(after, func(a config.Error) bool { return a.Line == e.Line && a.Field == e.Field && a.Problem == e.Problem }) {
				t.Errorf("%s: %v: the fix is not taken:\n%s\n%v", archive.Files[i].Name, e, fixed, after)
			}
		}
	}
	const fewest = 30
	if tried < fewest {
		t.Errorf("only %d fixes were tried", tried)
	}
}

// What is no text at all is said so, with the line. A UTF-16 file and one of Windows are read.
func TestNoText(t *testing.T) {
	const good = "interfaces:\n  - {name: a, roles: [any]}\nlog: {level: info}\n"
	for text, want := range map[string]string{
		"log: {level: info}\n# caf\xe9\n":        "line 2: is not UTF-8",
		"log: {level: info}\n\x00":               "line 2: has the control character U+0000",
		"log: {level: info}\n\nlog: \x1b[1m{}\n": "line 3: has the control character U+001B",
	} {
		list := errorsOf(t, text)
		if len(list) != 1 || !strings.HasPrefix(list.Error(), want) || list[0].Fix == "" {
			t.Errorf("%q: %v, want %q and a fix", text, list, want)
		}
	}
	wide := []byte{0xff, 0xfe}
	for _, r := range utf16.Encode([]rune(good)) {
		wide = binary.LittleEndian.AppendUint16(wide, r)
	}
	for _, text := range []string{"\ufeff" + good, strings.ReplaceAll(good, "\n", "\r\n"), string(wide)} {
		if _, err := config.Parse([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
