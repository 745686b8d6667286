package softrun

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// process is culvert-soft, and what it has in the kernel.
type process struct {
	kernel *kernel
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	log    bytes.Buffer
}

// start runs the binary in the caller's network namespace.
func start(binary, pins string, arguments ...string) (_ *process, err error) {
	p := &process{}
	if p.kernel, err = load(pins); err != nil {
		return nil, err
	}
	files, numbers, err := p.kernel.inherit()
	if err != nil {
		return nil, errors.Join(err, p.kernel.Close())
	}
	defer closeAll(files)
	p.cmd = exec.Command(binary, append(append(numbers, "--pins", pins), arguments...)...)
	p.cmd.ExtraFiles, p.cmd.Stderr = files, &p.log
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		if p.out, err = p.cmd.StdoutPipe(); err == nil {
			err = p.cmd.Start()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start culvert-soft: %w", err), p.kernel.Close())
	}
	return p, nil
}

// failed adds to an error what the process said.
func (p *process) failed(err error) error {
	if said := bytes.TrimSpace(p.log.Bytes()); err != nil && len(said) > 0 {
		return fmt.Errorf("%s: %w", said, err)
	}
	return err
}

// Close ends it: the end of its input tells it to.
func (p *process) Close() error {
	closed := p.in.Close()
	return errors.Join(closed, p.failed(p.cmd.Wait()), p.kernel.Close())
}
