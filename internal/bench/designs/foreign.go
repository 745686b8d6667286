package designs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/smf"
)

// firstCPTEID is behind the sessions' other TEIDs: SMFs choose all TEIDs, as they do for a UPF
// without the feature FTUP, since the generator must know them.
const firstCPTEID = catalog.FirstTEID + mostSessions

// foreignName is what a foreign UPF may be called: namespaces and charts use the name.
var foreignName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,15}$`)

// split cuts NAME=COMMAND.
func split(text string) (name, command string, ok bool) {
	name, command, _ = strings.Cut(text, "=")
	command = strings.TrimSpace(command)
	return name, command, foreignName.MatchString(name) && command != ""
}

// against are foreign UPFs, each as NAME=COMMAND.
type against []string

// check wants each to have a name of its own and a command.
func (a against) check(want func(right bool, field, fix, format string, args ...any)) {
	taken := Names()
	for i, text := range a {
		at := fmt.Sprintf("against[%d]", i)
		name, _, ok := split(text)
		want(ok, at, "NAME=COMMAND, with a name of up to 16 lower-case letters, digits, - and _", "%q is none", text)
		want(!ok || !slices.Contains(taken, name), at, "choose another name", "the name %q is taken", name)
		taken = append(taken, name)
	}
}

// foreign are these UPFs.
func (a against) foreign() (list []design) {
	for _, text := range a {
		name, command, _ := split(text)
		list = append(list, design{name: name, paper: name, title: "a UPF that was started by: " + command, command: command})
	}
	return list
}

// chosen are all that is measured: designs in their order, then foreign UPFs.
func chosen(e *Experiment) (list []design) {
	for _, d := range designs {
		if slices.Contains(e.Designs, d.name) {
			list = append(list, d)
		}
	}
	return append(list, e.Against.foreign()...)
}

// chosenAs is a chosen design by its name.
func chosenAs(e *Experiment, name string) design {
	list := chosen(e)
	return list[slices.IndexFunc(list, func(d design) bool { return d.name == name })]
}

// program is a foreign UPF that runs.
type program struct {
	cmd   *exec.Cmd
	log   string // file with what it wrote
	ended chan error
}

// surroundings gives a command /sys of its network namespace and a bpffs of its own, which go
// with its processes: two of the same kind may pin the same names.
const surroundings = `mount -t sysfs sysfs /sys && mount -t bpf bpf /sys/fs/bpf && exec sh -c "$0"`

// run starts a shell's command in a namespace, on one CPU, out of reach of a terminal's Ctrl-C.
func run(in node.Namespace, cpu int, command, log string) (*program, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &program{cmd: exec.Command("sh", "-c", surroundings, command), log: log, ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Unshareflags: unix.CLONE_NEWNS}
	err = in.Do(func() error {
		if err := proc.Pin(cpu); err != nil {
			return err
		}
		return p.cmd.Start()
	})
	if err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, nil
}

// foreignStop is how long a foreign UPF may take to end.
const foreignStop = 10 * time.Second

// stop ends all processes of the command.
func (p *program) stop() error {
	group := -p.cmd.Process.Pid
	err := unix.Kill(group, unix.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(foreignStop):
	}
	err = errors.Join(err, unix.Kill(group, unix.SIGKILL)) // those that are left
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// tail is the end of what the program wrote.
func (p *program) tail() string {
	const most = 1000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = text[max(0, len(text)-most):]
	return strings.Join(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// wrote adds what the program wrote to an error.
func (p *program) wrote(err error) error {
	if p == nil || err == nil {
		return err
	}
	return fmt.Errorf("%w; it wrote: %s", err, p.tail())
}

// startForeign runs a UPF's command, and returns when it has accepted an association.
func (u *upf) startForeign(ctx context.Context, cpu int, command string) error {
	for _, port := range []string{node.PortN3, signalling.PortN4} { // they are received by threads
		if err := receive(u.Net.Node, port); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return err
	}
	u.Later(func() error { return os.RemoveAll(dir) })
	p, err := run(u.Net.Node, cpu, command, filepath.Join(dir, "log"))
	if err != nil {
		return fmt.Errorf("start %s: %w", command, err)
	}
	u.Later(p.stop)
	u.foreign = p
	return p.wrote(p.await(ctx, u.Net.Around.Path()))
}

// await asks for an association until the UPF accepts one.
func (p *program) await(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, node.StartTimeout)
	defer cancel()
	to, from := signalling.Addresses(1)
	var c *smf.Client
	err := proc.Inside(namespace, func() (err error) {
		c, err = signalling.DialSMF(smf.Options{UPF: to, Local: from[0], Attempts: 1})
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		_, err := c.Associate(ctx)
		select {
		case ended := <-p.ended:
			p.ended <- ended
			return fmt.Errorf("the command ended before it answered PFCP at %s (%s)", to, p.cmd.ProcessState)
		default:
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("no answer to PFCP at %s in %s: it must listen there, in its network namespace: %w", to, node.StartTimeout, ctx.Err())
		case !errors.Is(err, smf.ErrUnanswered):
			return err
		}
	}
}

// compared are the measures by which ours stand against foreign UPFs.
var compared = []struct {
	metric, says string
	where        result.Labels
}{
	{metricPackets, "packets/s", result.Labels{}},
	{metricCPU, "CPU time of a packet", result.Labels{}},
	{metricP99, "latency at half of PDR, P99", half},
	{signalling.PerSecond, "handovers/s", alone},
	{signalling.P99, "latency of a handover's answer, P99", alone},
}

// claims hold our designs against each foreign UPF of the same run.
func (a against) claims(r *result.Run, ours []string) (claims []string) {
	for _, f := range a.foreign() {
		for _, c := range compared {
			for _, theirs := range r.Select(c.metric, c.where.With(labelDesign, f.paper)) {
				for _, name := range ours {
					own := r.Select(c.metric, theirs.Labels.With(labelDesign, Labels(name)[labelDesign]))
					if len(own) != 1 || len(own[0].Samples) != len(theirs.Samples) || len(theirs.Samples) < fewestRounds {
						continue
					}
					times, low, high := stats.Interval(own[0].Samples, theirs.Samples)
					where := ""
					if size := theirs.Labels["size"]; size != "" {
						where = ", frames of " + size
					}
					claims = append(claims, fmt.Sprintf("%s%s: %s has %.2f times %s's (%.2f to %.2f).",
						c.says, where, own[0].Labels[labelDesign], times, f.paper, low, high))
				}
			}
		}
	}
	return claims
}

// heldAgainst is openUPF's error about a design: a foreign UPF's says what it must do.
func heldAgainst(d design, err error) error {
	if d.command == "" {
		return fmt.Errorf("design %s: %w", d.name, err)
	}
	return fmt.Errorf("--against %s: %w (docs/how-to/measure.md says what a UPF finds)", d.name, err)
}
