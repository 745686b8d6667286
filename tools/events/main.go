// Events writes docs/reference/events.md: each event that a program of Culvert logs. It runs in
// its own folder.
package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/culvert-net/culvert/internal/logevent"
)

//go:generate go run .

func main() {
	log.SetFlags(0)
	var b bytes.Buffer
	write(&b)
	if err := os.WriteFile("../../docs/reference/events.md", b.Bytes(), 0o644); err != nil {
		log.Fatalf("events: %v", err)
	}
}

func write(w io.Writer) {
	fmt.Fprint(w, `# Events of the log

`+"`make generate`"+` writes this page from the programs. Each line that `+"`culvert run` or `culvert te run`"+` logs at level
info or above has the key `+"`event`"+` with a name of this table, in both formats (`+"`log.format: text` and `json`"+`):

    time=2026-11-26T12:00:00.000Z level=WARN msg="BGP session is down" event=bgp.session_down peer=192.0.2.1 reason="hold timer expired"

Names stay, and keep their meaning and level. New ones come. Texts and other keys may change: look for the name.
Lines at level debug have no name. [How to alert on one](../how-to/monitor.md#events-of-the-log).

| event | level | what has happened | what to do |
|---|---|---|---|
`)
	for _, e := range logevent.All() {
		action := e.Action()
		if action == "" {
			action = "-"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", e.Name(), strings.ToLower(e.Level().String()), e.Meaning(), action)
	}
}
