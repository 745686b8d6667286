package softrun

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// Frames is culvert-soft without sockets: it handles frames one by one. Close ends it.
type Frames struct {
	programs *Programs
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      io.Reader
	log      bytes.Buffer
}

// OpenFrames starts the binary on what a daemon pinned at a path, in the caller's network
// namespace.
func OpenFrames(binary, pins string) (*Frames, error) {
	programs, err := Load(pins)
	if err != nil {
		return nil, err
	}
	f := &Frames{programs: programs}
	f.cmd = exec.Command(binary, "frames", "--pins", pins, "--call", "3")
	files, err := inherited(programs.call())
	if err != nil {
		return nil, errors.Join(err, programs.Close())
	}
	defer closeAll(files)
	f.cmd.ExtraFiles, f.cmd.Stderr = files, &f.log
	if f.in, err = f.cmd.StdinPipe(); err == nil {
		if f.out, err = f.cmd.StdoutPipe(); err == nil {
			err = f.cmd.Start()
		}
	}
	if err != nil {
		return nil, errors.Join(err, programs.Close())
	}
	return f, nil
}

// frameHead is struct frame_head.
type frameHead struct{ What, Length uint32 }

// Test handles a frame as if it had come in on an interface, and returns the verdict and the
// frame as it is then. Nothing is sent, but everything is counted.
func (f *Frames) Test(frame []byte, ifindex int) (verdict uint32, out []byte, err error) {
	var head frameHead
	in, err := binary.Append(nil, binary.NativeEndian, frameHead{uint32(ifindex), uint32(len(frame))})
	if err == nil {
		_, err = f.in.Write(append(in, frame...))
	}
	if err == nil {
		err = binary.Read(f.out, binary.NativeEndian, &head)
	}
	if err == nil {
		out = make([]byte, head.Length)
		_, err = io.ReadFull(f.out, out)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("a frame of %d bytes: %w: %s", len(frame), err, f.log.String())
	}
	return head.What, out, nil
}

// Close ends the program.
func (f *Frames) Close() error {
	err := errors.Join(f.in.Close(), f.cmd.Wait(), f.programs.Close())
	if err != nil {
		return fmt.Errorf("%w: %s", err, f.log.String())
	}
	return nil
}

// inherited are files for a child, which has them from number 3 on.
func inherited(objects ...interface{ FD() int }) (files []*os.File, err error) {
	for _, o := range objects {
		fd, err := unix.FcntlInt(uintptr(o.FD()), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, os.NewFile(uintptr(fd), "bpf "+strconv.Itoa(o.FD())))
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
