package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// programTime is how long a program of others may take to come up, and how long to end.
const programTime = 30 * time.Second

// HavePrograms wants the programs of others that a lab runs to be in the folder, or
// installed. Its error names all that are missing.
func HavePrograms(t *topology.Topology, folder string) error {
	if !topology.OfOthers(t) {
		if folder != "" {
			return fmt.Errorf("--core: lab %s runs no programs of others", t.Name)
		}
		return nil
	}
	if info, err := os.Stat(folder); folder != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("--core: %s is no folder", folder)
	}
	var missing []string
	for _, n := range t.Nodes {
		for _, p := range n.Programs {
			if _, err := programCommand(p, folder); err != nil && !slices.Contains(missing, err.Error()) {
				missing = append(missing, err.Error())
			}
		}
	}
	if len(missing) > 0 && folder == "" {
		return fmt.Errorf("lab %s runs programs of others, and %s is not installed: install it (tools/need.sh test), or give the folder that it is in with --core", t.Name, strings.Join(missing, ", "))
	}
	if len(missing) > 0 {
		return fmt.Errorf("--core: %s has no %s, and neither has PATH: build or install them as their own instructions say", folder, strings.Join(missing, ", no "))
	}
	return nil
}

// programDepth is how far below the folder programs are looked for: free5gc/webconsole/bin/webconsole.
const programDepth = 4

// findProgram returns where an executable file of that name is in a folder, if there is one,
// or else in PATH.
func findProgram(folder, name string) (found string) {
	if folder == "" {
		found, _ = exec.LookPath(name)
		return found
	}
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error { // what cannot be read has none
		relative, _ := filepath.Rel(folder, path)
		switch {
		case err != nil:
			return fs.SkipDir
		case d.IsDir() && path != folder && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || strings.Count(relative, "/") >= programDepth-1):
			return fs.SkipDir
		case d.IsDir() || d.Name() != name:
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	if found == "" {
		found, _ = exec.LookPath(name)
	}
	return found
}

// programCommand is the first of a program's commands that is there.
func programCommand(p *topology.Program, folder string) ([]string, error) {
	var names []string
	for _, c := range p.Commands {
		if path := findProgram(folder, c[0]); path != "" {
			return append([]string{path}, c[1:]...), nil
		}
		names = append(names, c[0])
	}
	return nil, errors.New(strings.Join(names, " or "))
}

// StartPrograms writes the files of a node, starts its programs one after another, and
// tells the core of its subscribers.
func StartPrograms(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	for name, value := range n.Files {
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte(topology.DirWord), []byte(filepath.Join(in.Dir(), n.Name)))
		if err := os.WriteFile(in.File(n, name), text, 0o600); err != nil {
			return err
		}
	}
	for _, p := range n.Programs {
		if p.Later {
			continue
		}
		if err := StartProgram(ctx, in, p); err != nil {
			return err
		}
	}
	if n.Subscribers == nil {
		return nil
	}
	return subscribe(ctx, n.Subscribers, func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = in.Namespace(n).Do(func() (err error) {
			c, err = net.Dial(network, address)
			return err
		})
		return c, err
	})
}

// StartProgram starts a program of others, and waits until it is ready. Its log begins anew.
func StartProgram(ctx context.Context, in *instance.Instance, p *topology.Program) error {
	if running, ok := in.Process(p.Node, p.Name); ok && running.Alive() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	args, err := programCommand(p, in.Core)
	if err != nil {
		return fmt.Errorf("%w: there is none", err)
	}
	dir := filepath.Join(in.Dir(), p.Node.Name)
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, topology.DirWord, dir)
	}
	for try := 1; ; try++ {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		err := tryProgram(ctx, in, p, cmd)
		if err == nil || try >= p.Tries || ctx.Err() != nil {
			return err
		}
		if running, ok := in.Process(p.Node, p.Name); ok && running.Alive() {
			if err := EndProgram(in, p, unix.SIGINT); err != nil {
				return err
			}
		}
	}
}

// tryProgram starts a program once.
func tryProgram(ctx context.Context, in *instance.Instance, p *topology.Program, cmd *exec.Cmd) error {
	if err := os.RemoveAll(programLog(in, p)); err != nil {
		return err
	}
	if p.Once {
		return runOnce(ctx, in, p, cmd)
	}
	if err := in.StartCommand(p.Node, p.Name, cmd); err != nil {
		return err
	}
	return in.AwaitProcess(ctx, p.Node, p.Name, programTime, func() error { return isReady(in, p) })
}

// runOnce wants a program to end well.
func runOnce(ctx context.Context, in *instance.Instance, p *topology.Program, cmd *exec.Cmd) error {
	log, err := os.Create(programLog(in, p))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := in.Namespace(p.Node).Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	limited, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	defer context.AfterFunc(limited, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.Name, errors.Join(limited.Err(), err), instance.Tail(programLog(in, p)))
	}
	return nil
}

func programLog(in *instance.Instance, p *topology.Program) string {
	return in.File(p.Node, p.Name+".log")
}

func isReady(in *instance.Instance, p *topology.Program) error {
	if p.Says != "" {
		if err := Says(in, p.Node, p.Name, p.Says, max(1, p.Times)); err != nil {
			return err
		}
	}
	if !p.Listens.IsValid() {
		return nil
	}
	return in.Namespace(p.Node).Do(func() error {
		c, err := net.DialTimeout("tcp", p.Listens.String(), time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// EndProgram ends a program of others by a signal: SIGINT is what a terminal sends.
func EndProgram(in *instance.Instance, p *topology.Program, signal unix.Signal) error {
	running, ok := in.Process(p.Node, p.Name)
	if !ok || !running.Alive() {
		return fmt.Errorf("%s does not run", p.Name)
	}
	err := running.Stop(signal, programTime)
	in.Forget(p.Node, p.Name)
	return errors.Join(err, in.Save())
}

// Says wants a program, or Culvert, to have written a text so often since it was started.
func Says(in *instance.Instance, n *topology.Node, name, text string, times int) error {
	log, err := os.ReadFile(in.File(n, name+".log"))
	if err != nil {
		return err
	}
	if got := bytes.Count(log, []byte(text)); got < times {
		return fmt.Errorf("%s said %q %d times: want %d", name, text, got, times)
	}
	return nil
}
