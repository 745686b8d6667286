// Package feature probes what the data path needs of the kernel. It leaves nothing
// behind.
package feature

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// XDP tries what the data path needs of the kernel, and returns for each
// what is wrong with it, nil if nothing. It attaches nothing and leaves nothing
// behind. (XDP links cannot be tried without attaching one; kernels that have
// live frames have them.)
func XDP() map[string]error {
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
		"helpers": haveHelpers(ebpf.XDP, asm.FnXdpAdjustHead, asm.FnXdpAdjustTail, asm.FnXdpLoadBytes,
			asm.FnXdpStoreBytes, asm.FnRedirectMap, asm.FnFibLookup, asm.FnRingbufReserve, asm.FnKtimeGetNs),
		"xdp live frames": haveLiveFrames(),
	}
}

// Pods probes the kernel for what the programs for pods take beside that.
func Pods() map[string]error {
	return map[string]error{
		"pods: tc programs": features.HaveProgramType(ebpf.SchedCLS),
		"pods: tcx":         haveTCX(),
		"pods: helpers": haveHelpers(ebpf.SchedCLS, asm.FnSkbAdjustRoom, asm.FnRedirect, asm.FnRedirectPeer, asm.FnRedirectNeigh,
			asm.FnFibLookup, asm.FnSkbPullData, asm.FnSkbStoreBytes, asm.FnCsumUpdate, asm.FnSkbVlanPush, asm.FnSkbVlanPop, asm.FnKtimeGetCoarseNs),
		"pods: conntrack": haveConntrack(),
	}
}

// loopback is its ifindex in every network namespace.
const loopback = 1

// haveTCX asks what is attached there (Linux 6.6).
func haveTCX() error {
	if _, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress}); err != nil {
		return fmt.Errorf("ask for the programs at tcx: %w", err)
	}
	return nil
}

// haveConntrack: without its functions pods' programs run, but do not know which
// flows the kernel translates, so that answers of Services miss their way.
func haveConntrack() error {
	const function = "bpf_skb_ct_lookup"
	var found *btf.Func
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	if kernel.TypeByName(function, &found) == nil {
		return nil
	}
	module, err := btf.LoadKernelModuleSpec("nf_conntrack")
	if err == nil {
		err = module.TypeByName(function, &found)
	}
	if err != nil {
		return fmt.Errorf("no %s: load the module nf_conntrack (modprobe nf_conntrack) before culvert starts: %w", function, err)
	}
	return nil
}

func haveHelpers(of ebpf.ProgramType, helpers ...asm.BuiltinFunc) error {
	var errs []error
	for _, h := range helpers {
		if err := features.HaveProgramHelper(of, h); err != nil {
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
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdp.VerdictDrop), asm.Return()},
	})
	if err != nil {
		return fmt.Errorf("load a program: %w", err)
	}
	defer prog.Close()
	if _, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: 1, Flags: xdp.LiveFrames}); err != nil {
		return fmt.Errorf("run a program on live frames: %w", err)
	}
	return nil
}
