package dataplane

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// Features tries what the data path needs of the kernel, and returns for each
// what is wrong with it, nil if nothing. It attaches nothing and leaves nothing
// behind. (XDP links cannot be tried without attaching one; kernels that have
// live frames have them.)
func Features() map[string]error {
	return map[string]error{
		"xdp programs":  features.HaveProgramType(ebpf.XDP),
		"bounded loops": features.HaveBoundedLoops(),
		"isa v3":        features.HaveV3ISA(),
		"kernel btf":    haveKernelBTF(),
		"ring buffers":  features.HaveMapType(ebpf.RingBuf),
		"maps": errors.Join(
			features.HaveMapType(ebpf.Array), features.HaveMapType(ebpf.PerCPUArray),
			features.HaveMapType(ebpf.Hash), features.HaveMapType(ebpf.LRUHash),
			features.HaveMapType(ebpf.LPMTrie), features.HaveMapType(ebpf.DevMap)),
		"helpers": haveHelpers(asm.FnXdpAdjustHead, asm.FnXdpAdjustTail, asm.FnXdpLoadBytes,
			asm.FnXdpStoreBytes, asm.FnRedirectMap, asm.FnFibLookup, asm.FnRingbufReserve, asm.FnKtimeGetNs),
		"xdp live frames": haveLiveFrames(),
	}
}

func haveHelpers(helpers ...asm.BuiltinFunc) error {
	var errs []error
	for _, h := range helpers {
		if err := features.HaveProgramHelper(ebpf.XDP, h); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h, err))
		}
	}
	return errors.Join(errs...)
}

// haveKernelBTF: the program names kernel types.
func haveKernelBTF() error {
	if _, err := btf.LoadKernelSpec(); err != nil {
		return fmt.Errorf("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	return nil
}

// haveLiveFrames sends one frame through a program that drops it: the slow path
// returns frames in this way (Linux 5.18).
func haveLiveFrames() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "culvert_probe", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, VerdictDrop), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program: %w", err)
	}
	defer prog.Close()
	if _, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 1, Flags: liveFrames}); err != nil {
		return fmt.Errorf("run a program on live frames: %w", err)
	}
	return nil
}
