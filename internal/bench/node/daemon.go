package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bpffs"
	"github.com/culvert-net/culvert/internal/config"
)

const (
	// StartTimeout is long: the verifier reads the programs, and others use the
	// machine too.
	StartTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
	addTimeout   = 30 * time.Minute // for four million entries, where others use the machine too
	addMost      = 1 << 20          // of each kind, in one request: two kinds are 55 MB of the 64 that it may have
)

// Daemon is the program that is measured: `culvert run`, in a namespace. Close ends
// it and takes what it pinned away.
type Daemon struct {
	Undo
	Binary, dir, pinPath string
	in                   Namespace
	Cmd                  *exec.Cmd
	log                  bytes.Buffer
	ended                chan error
	Client               culvertv1connect.CulvertClient
}

// Start runs the binary in the namespace and fills its tables. Most of
// what c holds comes by the management API: it is quicker to read than YAML.
func Start(ctx context.Context, binary, pinPath string, in Namespace, c *config.Config) (_ *Daemon, err error) {
	if strings.HasPrefix(pinPath, bpffs.Path+"/") {
		if err := bpffs.Mount(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{dir: dir, pinPath: pinPath, in: in, ended: make(chan error, 1)}
	defer d.OnError(&err)
	d.Later(func() error { return os.RemoveAll(dir) })
	d.Later(d.stop)
	base, rest := *c, config.Config{SIDs: c.SIDs, Steering: c.Steering, Tunnels: c.Tunnels} // of which there can be very many
	base.SIDs, base.Steering, base.Tunnels = nil, nil, nil
	base.API.Socket, base.Metrics.Listen, base.Log.Level = d.Socket(), "off", "warn"
	text, err := yaml.Marshal(base)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "culvert.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	if err := d.start(binary, []string{"run", "--config", file, "--pin-path", pinPath, "--state", filepath.Join(dir, "state.db")}); err != nil {
		return nil, err
	}
	d.Client = Dial(d.Socket())
	if err := d.Await(ctx); err != nil {
		return nil, err
	}
	return d, d.add(ctx, rest)
}

// Socket is where the daemon answers.
func (d *Daemon) Socket() string { return filepath.Join(d.dir, "culvert.sock") }

// Dial prepares calls to the daemon at a socket.
func Dial(socket string) culvertv1connect.CulvertClient {
	return culvertv1connect.NewCulvertClient(&http.Client{Transport: Transport(socket)}, "http://culvert")
}

// Transport goes to a socket, whatever the request's host is.
func Transport(socket string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
}

// start runs the binary in the namespace, out of reach of a Ctrl-C in the terminal:
// it is ended in its turn.
func (d *Daemon) start(binary string, args []string) error {
	d.Binary = binary
	d.Cmd = exec.Command(binary, args...)
	d.Cmd.Stdout, d.Cmd.Stderr = &d.log, &d.log
	d.Cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := d.in.Do(d.Cmd.Start); err != nil {
		d.Cmd = nil
		return fmt.Errorf("start %s run: %w", binary, err)
	}
	go func() { d.ended <- d.Cmd.Wait() }()
	return nil
}

// Await returns when the data path is on every interface.
func (d *Daemon) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	for {
		s, err := d.Client.Status(ctx, &pb.StatusRequest{})
		waits := func(i *pb.InterfaceStatus) bool { return i.Attached != "native" }
		if err == nil && len(s.Interfaces) > 0 && !slices.ContainsFunc(s.Interfaces, waits) {
			return nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("culvert run ended (%w): %s", cmp.Or(err, errUnready), d.Tail())
		case <-ctx.Done():
			return fmt.Errorf("culvert run did not become ready: %w: %s", cmp.Or(err, errUnready), d.Tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var errUnready = errors.New("not ready")

// Tail is the end of what the daemon said.
func (d *Daemon) Tail() string {
	lines := strings.Split(strings.TrimSpace(d.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}

// add fills the tables, in parts of a size that the daemon's memory is for.
func (d *Daemon) add(ctx context.Context, c config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, addTimeout)
	defer cancel()
	for len(c.SIDs)+len(c.Steering)+len(c.Tunnels) > 0 {
		var part config.Config
		part.SIDs, c.SIDs = cut(c.SIDs)
		part.Tunnels, c.Tunnels = cut(c.Tunnels)
		part.Steering, c.Steering = cut(c.Steering)
		m := &pb.Config{}
		err := message.Encode(part, m)
		if err == nil {
			_, err = d.Client.Add(ctx, &pb.AddRequest{Config: m})
		}
		if err != nil {
			return fmt.Errorf("fill the tables: %w: %s", err, d.Tail())
		}
	}
	return nil
}

func cut[T any](list []T) (now, later []T) {
	n := min(len(list), addMost)
	return list[:n], list[n:]
}

// Outcomes counts packets by how their journey ended.
func (d *Daemon) Outcomes(ctx context.Context) (map[string]uint64, error) {
	m, err := d.Client.ListOutcomes(ctx, &pb.ListOutcomesRequest{})
	if err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	out := map[string]uint64{}
	for _, o := range m.Outcomes {
		out[o.Reason] = o.Packets
	}
	return out, nil
}

// stop ends the daemon and takes what it pinned away.
func (d *Daemon) stop() error {
	if d.Cmd == nil {
		return nil
	}
	err := d.Cmd.Process.Signal(unix.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		err = fmt.Errorf("end culvert run: %w", err)
	} else if err = d.awaitEnd(context.Background()); err != nil {
		err = errors.Join(err, d.Cmd.Process.Kill())
	}
	out, unpin := exec.Command(d.Binary, "unpin", "--pin-path", d.pinPath).CombinedOutput()
	if unpin != nil {
		unpin = fmt.Errorf("culvert unpin: %w: %s", unpin, bytes.TrimSpace(out))
	}
	return errors.Join(err, unpin)
}

// awaitEnd returns when the process has ended.
func (d *Daemon) awaitEnd(ctx context.Context) error {
	select {
	case <-d.ended:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("culvert run did not end in %s", stopTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Environment is what a run says of the daemon that it measured.
func (d *Daemon) Environment(ctx context.Context) (e result.Environment, err error) {
	e.Offloads = d.in.offloads(PortIn)
	e.Version, e.DataPath, err = d.Version(ctx)
	return e, err
}

// Version says what is measured: the program, and its data path.
func (d *Daemon) Version(ctx context.Context) (version, dataPath string, err error) {
	s, err := d.Client.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return "", "", fmt.Errorf("read the status: %w", err)
	}
	return s.Version, s.DataPath, nil
}

// Again ends the daemon by a signal and starts it with what it had, from a
// binary, and returns when it is ready.
func (d *Daemon) Again(ctx context.Context, binary string, signal unix.Signal) error {
	if err := d.Replace(ctx, binary, signal); err != nil {
		return err
	}
	return d.Await(ctx)
}

// Replace does not wait until the new one is ready.
func (d *Daemon) Replace(ctx context.Context, binary string, signal unix.Signal) error {
	if err := d.Cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("end culvert run: %w", err)
	}
	if err := d.awaitEnd(ctx); err != nil {
		return err
	}
	d.log.Reset()
	return d.start(binary, d.Cmd.Args[1:])
}

// Reload changes the daemon's file, sends SIGHUP, and waits until it holds what
// was asked for.
func (d *Daemon) Reload(ctx context.Context, change func(*config.Config), done func(context.Context) (bool, error)) error {
	file := filepath.Join(d.dir, "culvert.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c config.Config
	if err := yaml.Unmarshal(text, &c); err != nil {
		return err
	}
	change(&c)
	if text, err = yaml.Marshal(c); err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if err := d.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		return err
	}
	return d.Until(ctx, done)
}

// SpreadOver has a daemon that spreads packets do so over these CPUs from now on.
func (d *Daemon) SpreadOver(ctx context.Context, cpus config.CPUs) error {
	change := func(c *config.Config) { c.Spread.CPUs = cpus }
	return d.Reload(ctx, change, func(ctx context.Context) (bool, error) {
		s, err := d.Client.Status(ctx, &pb.StatusRequest{})
		return err == nil && len(s.Spread.GetCpus()) == len(cpus), err
	})
}

// Until waits for the daemon to say that something is so.
func (d *Daemon) Until(ctx context.Context, done func(context.Context) (bool, error)) error {
	ctx, end := context.WithTimeout(ctx, stopTimeout)
	defer end()
	for {
		ok, err := done(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", err, d.Tail())
		}
		if ok {
			return nil
		}
		if err := Wait(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("the daemon did not do it: %w: %s", err, d.Tail())
		}
	}
}

// Wait returns after d, or with the error of ctx.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
