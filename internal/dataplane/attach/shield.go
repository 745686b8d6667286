package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// tcDrop is TC_ACT_SHOT of linux/pkt_cls.h.
const tcDrop = 2

// shield keeps all frames of an interface from the kernel until it is closed. It is not
// pinned: it ends with the process.
func shield(ifindex int) (link.Link, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "culvert_shield", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcDrop), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("interface %s: load a program that drops: %w", port.Name(ifindex), err)
	}
	defer prog.Close() // the link keeps it
	l, err := link.AttachTCX(link.TCXOptions{Program: prog, Interface: ifindex, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("interface %s: keep frames from the kernel: %w", port.Name(ifindex), err)
	}
	return l, nil
}
