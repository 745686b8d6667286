package report

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	r := &Report{Lab: "x", Checks: []Result{
		{Name: "good", Pass: true, Detail: "d <&>", Sent: 3, Received: 3},
		{Name: "bad", Sent: 3, Received: 1, Lost: 2, Detail: "2 of 3 lost"},
	}, Kernel: "6.6", Seconds: 2}
	var b strings.Builder
	if err := Write(&b, r, "table"); err != nil {
		t.Fatal(err)
	}
	want := `CHECK  SENT  RECEIVED  LOST  RESULT  DETAIL
good   3     3         0     pass    d <&>
bad    3     1         2     FAIL    2 of 3 lost

x: 1 of 2 checks passed in 2 s (Linux 6.6)
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
	b.Reset()
	if err := Write(&b, r, "json"); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{`"lab": "x"`, `"pass": false`, `"name": "bad"`, `"detail": "d <&>"`, `"lost": 2`} {
		if !strings.Contains(b.String(), w) {
			t.Errorf("no %s in %s", w, b.String())
		}
	}
}

// Checks of several classes of traffic have a second table.
func TestClasses(t *testing.T) {
	r := &Report{Lab: "x", Pass: true, Checks: []Result{
		{Name: "ping", Pass: true},
		{Name: "load", Pass: true, Measured: Measured{Classes: []Class{{"voice", 100, 0, 1.75}, {"bulk", 900, 12, 20}}, Busiest: 78.84, LossFor: 26.9}},
		{Name: "voice alone", Pass: true, Measured: Measured{Classes: []Class{{"voice", 100, 0, 2}}, ActedAfter: 1600}},
	}}
	var b strings.Builder
	if err := Write(&b, r, "table"); err != nil {
		t.Fatal(err)
	}
	const want = `
WHILE        VOICE LOST  99 % IN  BULK LOST  99 % IN  LOSS FOR  BUSIEST LINK  ACTED AFTER
load         0 of 100    1.8 ms   12 of 900  20.0 ms  27 ms     78.8 %        -
voice alone  0 of 100    2.0 ms   -          -        -         -             1600 ms
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
