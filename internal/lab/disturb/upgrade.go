package disturb

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// upgrade replaces the daemon by one with another build of the data path.
func upgrade(ctx context.Context, a action) error {
	r, n := a.Runner, a.node
	if n.Kind == topology.Kubelet {
		return upgradeCluster(ctx, r, a.o)
	}
	to, err := otherBinary(r)
	if err != nil {
		return err
	}
	before, err := daemon.Status(ctx, r.Instance, n)
	if err != nil {
		return err
	}
	if err := daemon.RestartCulvert(ctx, r.Instance, n, unix.SIGTERM, 0, to); err != nil {
		return err
	}
	after, err := daemon.Status(ctx, r.Instance, n)
	if err != nil {
		return err
	}
	a.o.Say("data path %.8s to %.8s", before.DataPath, after.DataPath)
	if before.DataPath == after.DataPath {
		return fmt.Errorf("%s holds the same build of the data path as %s: give --upgrade-to a binary of another build", to, r.Culvert)
	}
	return nil
}

// otherBinary is what --upgrade-to says, or else a copy of the running binary
// that holds another build of the data path.
func otherBinary(r *Runner) (string, error) {
	if r.UpgradeTo != "" {
		return r.UpgradeTo, nil
	}
	data, err := os.ReadFile(r.Culvert)
	if err != nil {
		return "", err
	}
	if Rebuild(data) == 0 {
		return "", fmt.Errorf("%s holds no eBPF object: give --upgrade-to a binary of another build", r.Culvert)
	}
	to := filepath.Join(r.Dir(), "culvert-upgraded")
	return to, os.WriteFile(to, data, 0o755)
}

// Rebuild makes the eBPF objects that a program holds other builds of
// themselves: it flips a bit of the padding in their ELF identification, at
// which no reader looks. It returns how many there were.
func Rebuild(program []byte) (n int) {
	const machine = elf.EI_NIDENT + 2 // offset of e_machine
	const lastPadding = elf.EI_NIDENT - 1
	for at := 0; ; at++ {
		next := bytes.Index(program[at:], []byte(elf.ELFMAG))
		if next < 0 {
			return n
		}
		at += next
		object := program[at:]
		if len(object) > machine+2 && elf.Machine(binary.LittleEndian.Uint16(object[machine:])) == elf.EM_BPF {
			object[lastPadding] ^= 1
			n++
		}
	}
}
