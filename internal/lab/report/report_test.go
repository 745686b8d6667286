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
