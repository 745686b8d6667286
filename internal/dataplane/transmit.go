package dataplane

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Transmitter sends whole frames out of interfaces, as the data path does. It
// takes no more rights than the data path itself, where a packet socket would
// take CAP_NET_RAW.
type Transmitter struct{ prog *ebpf.Program }

// NewTransmitter loads the program, which returns XDP_TX: run on a live frame,
// the kernel sends that out of the interface that the frame is said to have
// come in on.
func NewTransmitter() (*Transmitter, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "culvert_send", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, VerdictTX), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load the program that sends frames: %w", err)
	}
	return &Transmitter{prog}, nil
}

// Transmit sends a frame. Whether the interface took it, the kernel does not
// say: one that cannot be redirected to drops it.
func (t *Transmitter) Transmit(frame []byte, ifindex int) error {
	if err := checkFrame(frame); err != nil {
		return err
	}
	_, err := t.prog.Run(&ebpf.RunOptions{
		Data: frame, Repeat: 1, Flags: liveFrames,
		Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	})
	if err != nil {
		return fmt.Errorf("send a frame of %d bytes out of %s: %w", len(frame), interfaceName(ifindex), err)
	}
	return nil
}

// Close unloads the program.
func (t *Transmitter) Close() error { return t.prog.Close() }
