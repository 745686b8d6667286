package softrun

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Frames is culvert-soft without sockets: it handles frames one by one. Close ends it.
type Frames struct{ *process }

// OpenFrames starts the binary on what a daemon pinned at a path, in the caller's network
// namespace.
func OpenFrames(binary, pins string) (Frames, error) {
	p, err := start(binary, pins, "frames")
	return Frames{p}, err
}

// frameHead is struct frame_head.
type frameHead struct{ What, Length uint32 }

// Test handles a frame as if it had come in on an interface, and returns the verdict and the
// frame as it is then. Nothing is sent, but everything is counted.
func (f Frames) Test(frame []byte, ifindex int) (verdict uint32, out []byte, err error) {
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
		return 0, nil, fmt.Errorf("a frame of %d bytes: %w", len(frame), err)
	}
	return head.What, out, nil
}
