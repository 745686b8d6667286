package softrun

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Options says what culvert-soft is to take over.
type Options struct {
	Binary     string   // culvert-soft
	Pins       string   // of the daemon
	Interfaces []string // to which the daemon is attached
	Workers    int      // 0: as many as each of them has queues
	Spin       bool     // never sleep: all of a CPU for each worker
	Copy       bool     // no zero-copy, even where a driver can
}

// Queue is a receive queue, and who serves it.
type Queue struct {
	Interface string `json:"interface"`
	Queue     int    `json:"queue"`
	Worker    int    `json:"worker"`
	ZeroCopy  bool   `json:"zero_copy"`
}

// Result is what became of packets.
type Result struct {
	Received    uint64 `json:"received"`
	Sent        uint64 `json:"sent"`
	Passed      uint64 `json:"passed"`        // to the kernel
	Dropped     uint64 `json:"dropped"`       // or handed up to the daemon
	NoRoom      uint64 `json:"no_room"`       // in the queue that they were to leave by
	NotPassed   uint64 `json:"not_passed"`    // the kernel did not take them
	NotHandedUp uint64 `json:"not_handed_up"` // the daemon's queue was full
	NotReceived uint64 `json:"not_received"`  // the kernel had no frame or no room for them
}

// Soft is culvert-soft, which forwards in place of the daemon's program.
type Soft struct {
	*process
	options Options
	out     *bufio.Reader
	queues  []Queue
}

// Start starts it on a running node, in the caller's network namespace, and waits until it
// forwards.
func Start(o Options) (*Soft, error) {
	arguments := []string{"--workers", strconv.Itoa(o.Workers)}
	if o.Spin {
		arguments = append(arguments, "--spin")
	}
	if o.Copy {
		arguments = append(arguments, "--copy")
	}
	p, err := start(o.Binary, o.Pins, append(append(arguments, "run"), o.Interfaces...)...)
	if err != nil {
		return nil, err
	}
	s := &Soft{process: p, options: o, out: bufio.NewReader(p.out)}
	var ready struct {
		Queues []Queue `json:"queues"`
	}
	if err := s.read(&ready); err != nil {
		_, ended := s.Stop()
		return nil, errors.Join(err, ended)
	}
	s.queues = ready.Queues
	return s, nil
}

// Queues are those that it serves.
func (s *Soft) Queues() []Queue { return s.queues }

// PID is the process, whose CPU time may be of interest.
func (s *Soft) PID() int { return s.cmd.Process.Pid }

// read is one line of what the process says.
func (s *Soft) read(to any) error {
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("culvert-soft said nothing: %w", err)
	}
	return json.Unmarshal(line, to)
}

// Stop ends it. The interfaces run again what they ran, even if the process died.
func (s *Soft) Stop() (r Result, err error) {
	if err = s.cmd.Process.Signal(unix.SIGTERM); err == nil {
		err = s.read(&r)
	}
	restored := s.restore()
	return r, errors.Join(s.failed(err), restored, s.Close())
}

// restore gives interfaces back that the process did not give back.
func (s *Soft) restore() error {
	var errs []error
	for i, name := range s.options.Interfaces {
		var before *ebpf.Program
		if s.kernel.Before.Lookup(uint32(i), &before) != nil {
			continue // it was not attached
		}
		if err := s.restoreLink(name, before); err != nil {
			errs = append(errs, fmt.Errorf("interface %s: %w", name, err))
		}
		before.Close()
	}
	return errors.Join(errs...)
}

func (s *Soft) restoreLink(name string, before *ebpf.Program) error {
	port, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(s.options.Pins, "links", fmt.Sprintf("xdp_%d_*", port.Index)))
	if err != nil {
		return err
	}
	for _, path := range paths {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return fmt.Errorf("open its link: %w", err)
		}
		err = replace(l, before, s.kernel.Receive)
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
	}
	return nil
}

// replace has a link run a program, if it still runs another one of ours.
func replace(l link.Link, to, from *ebpf.Program) error {
	running, err := l.Info()
	if err != nil {
		return err
	}
	ours, err := from.Info()
	if err != nil {
		return err
	}
	if id, _ := ours.ID(); running.Program != id {
		return nil
	}
	return l.Update(to)
}
