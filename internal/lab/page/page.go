package page

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Limits of a walk: what the daemon may use of a core while a view is open, and for how long
// that is measured.
const (
	mostCPU  = 1.0 // percent
	measured = time.Minute
	patience = time.Minute // for a view to show something
)

// Walk is one through the page of a node.
type Walk struct {
	Culvert  string // the program
	Socket   string // of the daemon
	PID      int    // of the daemon
	UE       string // address of the one that sends
	Pictures string // directory for screenshots; empty: none
	// Ask asks the command line, which answers in JSON.
	Ask func(into any, command ...string) error
	// Quiet ends the traffic, so that figures stand still.
	Quiet func() error
}

// Run walks the page, and returns what it measured in words.
func (w *Walk) Run(ctx context.Context) (said []string, err error) {
	address, end, err := w.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	b, closed, err := open(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("chromium (tools/need.sh e2e installs it): %w", err)
	}
	defer func() { err = errors.Join(err, closed()) }()
	seid, err := w.find(b)
	if err != nil {
		return said, err
	}
	if said, err = w.measure(ctx, b, seid); err != nil {
		return said, err
	}
	if err := w.pictures(b, seid); err != nil {
		return said, err
	}
	if err := w.compare(b, seid); err != nil {
		return said, err
	}
	if len(b.done()) > 0 {
		return said, fmt.Errorf("the page did what it should not: %q", b.done())
	}
	return said, nil
}

// measure measures what views cost the daemon, beside what it does without a viewer.
func (w *Walk) measure(ctx context.Context, b *browser, seid string) (said []string, err error) {
	views := []string{"topology", "sessions", "sessions/" + seid, "why", "paths"}
	used := map[string]float64{}
	for _, view := range append(views, "") {
		address, ready := b.own+"/#/"+view, shown[strings.SplitN(view, "/", 2)[0]]
		switch {
		case view == "":
			address, ready = "about:blank", "true"
		case strings.Contains(view, "/"):
			ready = shown["one"]
		}
		if err := b.visit(address, desktop, false); err != nil {
			return said, err
		}
		if err := b.wait(ready); err != nil {
			return said, fmt.Errorf("%s: %w", view, err)
		}
		if used[view], err = w.cpu(ctx, measured); err != nil {
			return said, err
		}
	}
	said = append(said, fmt.Sprintf("CPU of the daemon, in percent of a core over %v: %.2f without a viewer", measured, used[""]))
	for _, view := range views {
		said = append(said, fmt.Sprintf("%.2f with %s", used[view], strings.ReplaceAll(view, seid, "one")))
		if costs := used[view] - used[""]; costs > mostCPU {
			err = errors.Join(err, fmt.Errorf("%s costs %.2f %% of a core: at most %.0f %% are meant", view, costs, mostCPU))
		}
	}
	return said, err
}

// serve runs culvert ui, and returns the address of its page with the secret.
func (w *Walk) serve(ctx context.Context) (address string, end func() error, err error) {
	cmd := exec.CommandContext(ctx, w.Culvert, "ui", "--socket", w.Socket)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = patience
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("culvert ui printed no address: %w", err), cmd.Wait())
	}
	return strings.TrimSpace(line), func() error {
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("culvert ui does not end cleanly: %w", err)
		}
		return nil
	}, nil
}

// cpu is the part of a core that the daemon uses, in percent, as pidstat counts it: user and
// system time of all its threads.
func (w *Walk) cpu(ctx context.Context, over time.Duration) (float64, error) {
	used := func() (float64, error) {
		p, err := procfs.NewProc(w.PID)
		if err != nil {
			return 0, err
		}
		s, err := p.Stat()
		return s.CPUTime(), err
	}
	before, err := used()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(over):
	}
	after, err := used()
	return 100 * (after - before) / time.Since(start).Seconds(), err
}

// shown is what each view shows of a live UPF: expressions.
var shown = map[string]string{
	"topology": `document.querySelectorAll(".box").length >= 8 && [...document.querySelectorAll(".box.port .rates")].some(e => /in [1-9]/.test(e.textContent))`,
	"sessions": `document.querySelectorAll("tbody tr").length === 25 && !/–/.test(document.querySelector("tbody tr").children[5].textContent)`,
	"one":      `document.querySelector(".chart polyline")?.points.length > 1 && /uplink, TEID/.test(document.body.innerText)`,
	"why":      `[...document.querySelectorAll("tbody td")].some(e => e.textContent === "ue_to_ue") && [...document.querySelectorAll("tbody button")].length > 0`,
	"paths":    `/factory-up/.test(document.querySelector(".policy")?.innerText)`,
	"cluster":  `/no member of a cluster/.test(document.querySelector(".empty")?.innerText)`,
}

// find searches the UE's session as a user does, and returns its SEID.
func (w *Walk) find(b *browser) (seid string, err error) {
	if err := b.visit(b.own+"/#/sessions", desktop, false); err != nil {
		return "", err
	}
	if err := b.wait(shown["sessions"]); err != nil {
		return "", fmt.Errorf("sessions: %w", err)
	}
	if err := chromedp.Run(b.ctx, chromedp.SendKeys("#find", w.UE+"\n")); err != nil {
		return "", err
	}
	if err := b.wait(fmt.Sprintf(`document.querySelectorAll("tbody tr").length === 1 && document.querySelector("tbody tr").innerText.includes(%q)`, w.UE+"/32")); err != nil {
		return "", fmt.Errorf("sessions by UE: %w", err)
	}
	err = b.ask(`document.querySelector("tbody td").innerText`, &seid)
	return seid, err
}

// number is one of JSON, also as text.
type number uint64

// UnmarshalJSON reads a number, or a text with one.
func (n *number) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseUint(strings.Trim(string(text), `"`), 0, 64)
	*n = number(v)
	return err
}

// compare ends the traffic, and compares figures with those of the command line.
func (w *Walk) compare(b *browser, seid string) error {
	if err := w.Quiet(); err != nil {
		return err
	}
	var status struct {
		UPF struct{ Sessions number } `json:"upf"`
	}
	var session struct {
		SEID number
		PDRs []struct {
			Counter struct{ Packets, Bytes number }
		}
	}
	var drops []struct {
		Reason  string
		Packets number
	}
	if err := errors.Join(w.Ask(&status, "status"), w.Ask(&session, "session", "show", seid), w.Ask(&drops, "drops")); err != nil {
		return err
	}
	if err := b.visit(b.own+"/#/topology", desktop, false); err != nil {
		return err
	}
	if err := b.wait(fmt.Sprintf(`document.querySelector(".facts")?.innerText.includes(%q)`, grouped(uint64(status.UPF.Sessions))+" of")); err != nil {
		return fmt.Errorf("topology: culvert status has %d sessions: %w", status.UPF.Sessions, err)
	}
	if err := b.visit(b.own+"/#/sessions/"+seid, desktop, false); err != nil {
		return err
	}
	for i, p := range session.PDRs {
		if p.Counter.Packets == 0 && i == 0 {
			return errors.New("the UE's first rule has counted nothing")
		}
		row := fmt.Sprintf(`document.querySelectorAll("tbody tr")[%d]`, i)
		if err := b.wait(fmt.Sprintf(`%s === %q`, cell(row, "Packets"), grouped(uint64(p.Counter.Packets)))); err != nil {
			return fmt.Errorf("session: culvert session show has %d packets of rule %d: %w", p.Counter.Packets, i, err)
		}
	}
	if err := b.visit(b.own+"/#/why", desktop, false); err != nil {
		return err
	}
	for _, d := range drops {
		if d.Packets == 0 {
			continue
		}
		if err := b.wait(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].some(r => %s === %q && %s === %q)`, cell("r", "Reason"), d.Reason, cell("r", "Packets"), grouped(uint64(d.Packets)))); err != nil {
			return fmt.Errorf("why: culvert drops has %d packets of %s: %w", d.Packets, d.Reason, err)
		}
	}
	return nil
}

// cell is an expression: what the row of a table says in the column of a name.
func cell(row, column string) string {
	return fmt.Sprintf(`(r => r?.children[[...r.closest("table").querySelectorAll("thead th")].findIndex(e => e.textContent === %q)]?.innerText)(%s)`, column, row)
}

// grouped is a number as the page writes it: 12,345.
func grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// history is how many points of a session's chart a picture has.
const history = 25

// pictures takes one of each view: light, dark, and one of a phone.
func (w *Walk) pictures(b *browser, seid string) error {
	const choose = `document.querySelector("button.choice").click()`
	long := fmt.Sprintf(`document.querySelector(".chart polyline")?.points.length > %d`, history)
	for _, v := range []struct {
		name, view, shows, do, then string
		size                        size
		dark                        bool
	}{
		{"topology", "topology", "topology", choose, `document.querySelector(".link.lit")`, desktop, false},
		{"topology-dark", "topology", "topology", "", "true", desktop, true},
		{"phone", "topology", "topology", "", "true", phone, false},
		{"session", "sessions/" + seid, "one", "", "true", desktop, false},
		{"session-dark", "sessions/" + seid, "one", "", long, desktop, true},
		{"why", "why", "why", choose, `document.querySelector(".journey")`, desktop, false},
		{"why-dark", "why", "why", "", `document.querySelector(".journey")`, desktop, true},
		{"paths", "paths", "paths", "", "true", desktop, false},
		{"cluster", "cluster", "cluster", "", "true", desktop, false},
	} {
		if err := b.visit(b.own+"/#/"+v.view, v.size, v.dark); err != nil {
			return err
		}
		if err := b.wait(shown[v.shows]); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if err := b.ask(v.do+";true", new(bool)); err != nil {
			return err
		}
		if w.Pictures == "" {
			continue
		}
		if err := b.wait(v.then); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		png, err := b.picture()
		if err == nil {
			err = os.WriteFile(filepath.Join(w.Pictures, "ui-"+v.name+".png"), png, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
