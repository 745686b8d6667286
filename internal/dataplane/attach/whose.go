package attach

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// Whose returns the name of a program that is loaded, and whether it is one of culvert's. Only who
// has CAP_SYS_ADMIN may ask.
func Whose(id uint32) (name string, ours bool, err error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return "", false, fmt.Errorf("open program %d: %w", id, err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", false, fmt.Errorf("program %d: %w", id, err)
	}
	return info.Name, strings.HasPrefix(info.Name, "culvert_"), nil
}
