package softrun

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Programs are the kernel's side of culvert-soft, on the tables of a daemon. Close unloads
// them.
type Programs struct {
	collection *ebpf.Collection
}

// Load loads them on top of what a daemon pinned at a path.
func Load(pins string) (*Programs, error) {
	spec, err := loadSoft()
	if err != nil {
		return nil, err
	}
	used := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range used {
			m.Close()
		}
	}()
	for name := range spec.Maps {
		switch name {
		case "soft_sockets", "soft_first", "soft_before":
			continue
		case "outcomes", "sid_counter", "list_counter", "slice_counter", "slow_path", "session_events", "trace_events":
			m, err := ebpf.LoadPinnedMap(filepath.Join(pins, "maps", name), nil)
			if err != nil {
				return nil, fmt.Errorf("open pinned map %s: %w", name, err)
			}
			used[name] = m
			spec.Maps[name].MaxEntries, spec.Maps[name].Flags = m.MaxEntries(), m.Flags()
		default:
			delete(spec.Maps, name)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: used})
	if err != nil {
		return nil, fmt.Errorf("load the programs of culvert-soft: %w", err)
	}
	return &Programs{c}, nil
}

// Close unloads the programs.
func (p *Programs) Close() error {
	p.collection.Close()
	return nil
}

func (p *Programs) call() *ebpf.Program { return p.collection.Programs["soft_call"] }
