package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
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

// Daemon is the program that is measured: `culvert run`, in a namespace.
type Daemon struct {
	Binary, dir, pinPath string
	Cmd                  *exec.Cmd
	log                  bytes.Buffer
	ended                chan error
	Client               culvertv1connect.CulvertClient
}

// Start runs the binary in the namespace and fills its tables. Most of
// what c holds comes by the management API: it is quicker to read than YAML.
func Start(ctx context.Context, binary, pinPath string, in Namespace, c *config.Config) (_ *Daemon, err error) {
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{Binary: binary, dir: dir, pinPath: pinPath, ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Stop())
		}
	}()
	socket := filepath.Join(dir, "culvert.sock")
	base, rest := split(c)
	base.API.Socket, base.Metrics.Listen, base.Log.Level = socket, "off", "warn"
	text, err := yaml.Marshal(base)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "culvert.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	if err := d.start(in, binary, []string{"run", "--config", file, "--pin-path", pinPath, "--state", filepath.Join(dir, "state.db")}); err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	d.Client = culvertv1connect.NewCulvertClient(&http.Client{Transport: transport}, "http://culvert")
	if err := d.Await(ctx); err != nil {
		return nil, err
	}
	return d, d.add(ctx, rest)
}

// start runs the binary in the namespace, out of reach of a Ctrl-C in the terminal:
// it is ended in its turn.
func (d *Daemon) start(in Namespace, binary string, args []string) error {
	d.Binary = binary
	d.Cmd = exec.Command(binary, args...)
	d.Cmd.Stdout, d.Cmd.Stderr = &d.log, &d.log
	d.Cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := in.Do(d.Cmd.Start); err != nil {
		d.Cmd = nil
		return fmt.Errorf("start %s run: %w", binary, err)
	}
	go func() { d.ended <- d.Cmd.Wait() }()
	return nil
}

// split separates what there can be very many of.
func split(c *config.Config) (base, rest config.Config) {
	base = *c
	base.SIDs, base.Steering, base.Tunnels = nil, nil, nil
	return base, config.Config{SIDs: c.SIDs, Steering: c.Steering, Tunnels: c.Tunnels}
}

// Await returns when the data path is on every interface.
func (d *Daemon) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	for {
		s, err := d.Client.Status(ctx, &pb.StatusRequest{})
		if err == nil && attached(s) {
			return nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("culvert run ended (%w): %s", errOr(err), d.Tail())
		case <-ctx.Done():
			return fmt.Errorf("culvert run did not become ready: %w: %s", errOr(err), d.Tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var errUnready = errors.New("not ready")

func errOr(err error) error {
	if err == nil {
		return errUnready
	}
	return err
}

func attached(s *pb.StatusResponse) bool {
	for _, i := range s.Interfaces {
		if i.Attached != "native" {
			return false
		}
	}
	return len(s.Interfaces) > 0
}

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
		part := &pb.Config{}
		part.Sids, c.SIDs = cut(c.SIDs, pbSID)
		part.Tunnels, c.Tunnels = cut(c.Tunnels, pbTunnel)
		part.Steering, c.Steering = cut(c.Steering, pbSteering)
		if _, err := d.Client.Add(ctx, &pb.AddRequest{Config: part}); err != nil {
			return fmt.Errorf("fill the tables: %w: %s", err, d.Tail())
		}
	}
	return nil
}

func cut[T, M any](list []T, message func(T) M) (now []M, later []T) {
	n := min(len(list), addMost)
	for _, v := range list[:n] {
		now = append(now, message(v))
	}
	return now, list[n:]
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

// Stop ends the daemon and takes what it pinned away.
func (d *Daemon) Stop() error {
	var errs []error
	if d.Cmd != nil {
		errs = append(errs, d.end())
		if out, err := exec.Command(d.Binary, "unpin", "--pin-path", d.pinPath).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("culvert unpin: %w: %s", err, bytes.TrimSpace(out)))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

func (d *Daemon) end() error {
	if err := d.Cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end culvert run: %w", err)
	}
	select {
	case <-d.ended:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("culvert run did not end in %s", stopTimeout), d.Cmd.Process.Kill())
	}
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
func (d *Daemon) Again(ctx context.Context, in Namespace, binary string, signal unix.Signal) error {
	if err := d.Replace(ctx, in, binary, signal); err != nil {
		return err
	}
	return d.Await(ctx)
}

// Replace does not wait until the new one is ready.
func (d *Daemon) Replace(ctx context.Context, in Namespace, binary string, signal unix.Signal) error {
	if err := d.Cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("end culvert run: %w", err)
	}
	select {
	case <-d.ended:
	case <-time.After(stopTimeout):
		return fmt.Errorf("culvert run did not end in %s", stopTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
	d.log.Reset()
	return d.start(in, binary, d.Cmd.Args[1:])
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
