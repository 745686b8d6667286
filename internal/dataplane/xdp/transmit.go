package xdp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// Transmitter sends frames of the node's own by XDP_REDIRECT. It needs no more
// rights than the data path has (CAP_BPF, CAP_NET_ADMIN), where a raw socket
// needs CAP_NET_RAW; the device has to be one that frames can be redirected to.
type Transmitter struct {
	mu       sync.Mutex
	programs map[int]*ebpf.Program // by ifindex: what to do with every frame
}

// Transmit sends a frame by an interface.
func (t *Transmitter) Transmit(frame []byte, ifindex int) error {
	if err := errors.Join(checkFrame(frame), port.CheckIndex(ifindex)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.programs[ifindex]
	if p == nil {
		var err error
		p, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "culvert_send", Type: ebpf.XDP, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{ // return bpf_redirect(ifindex, 0)
				asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
			},
		})
		if err != nil {
			return fmt.Errorf("interface %s: load the program that sends: %w", port.Name(ifindex), err)
		}
		if t.programs == nil {
			t.programs = map[int]*ebpf.Program{}
		}
		t.programs[ifindex] = p
	}
	if _, err := p.Run(&ebpf.RunOptions{Data: frame, Repeat: 1, Flags: LiveFrames}); err != nil {
		return fmt.Errorf("interface %s: send: %w", port.Name(ifindex), err)
	}
	return nil
}

// Close frees what Transmit made.
func (t *Transmitter) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, p := range t.programs {
		errs = append(errs, p.Close())
	}
	t.programs = nil
	return errors.Join(errs...)
}
