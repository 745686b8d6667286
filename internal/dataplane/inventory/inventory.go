// Package inventory lists the pinned programs and maps of the data path, for people:
// names, sizes and memory. It reads what the kernel says of them, and no entry.
package inventory

import (
	"errors"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/pin"
)

// Object is a pinned program or map.
type Object struct {
	Path       string `json:"path"` // below the directory of the pins
	Kind       string `json:"kind"` // program, map
	Type       string `json:"type"`
	Name       string `json:"name"`
	KeySize    uint32 `json:"key_size,omitempty"`
	ValueSize  uint32 `json:"value_size,omitempty"`
	MaxEntries uint32 `json:"max_entries,omitempty"`
	Jited      uint32 `json:"jited,omitempty"`  // octets of machine code
	Memory     uint64 `json:"memory,omitempty"` // octets
}

// Read lists what is pinned below a directory, which must be in a bpffs.
func Read(pinPath string) ([]Object, error) {
	objects := []Object{}
	var failed error
	for pinned, err := range pin.WalkDir(pinPath, nil) {
		if err != nil {
			return objects, errors.Join(failed, err)
		}
		o, ok, err := describe(pinned.Object)
		failed = errors.Join(failed, err)
		if !ok {
			continue // a link, or a directory
		}
		if o.Path, err = filepath.Rel(pinPath, pinned.Path); err != nil {
			o.Path = pinned.Path
		}
		objects = append(objects, o)
	}
	return objects, failed
}

func describe(object any) (o Object, ok bool, err error) {
	switch v := object.(type) {
	case *ebpf.Program:
		info, err := v.Info()
		if err != nil {
			return o, false, err
		}
		o = Object{Kind: "program", Type: info.Type.String(), Name: info.Name}
		o.Jited, _ = info.JitedSize() // hidden from those who may not see it
		o.Memory, _ = info.Memlock()
		return o, true, nil
	case *ebpf.Map:
		info, err := v.Info()
		if err != nil {
			return o, false, err
		}
		o = Object{Kind: "map", Type: info.Type.String(), Name: info.Name, KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries}
		o.Memory, _ = info.Memlock()
		return o, true, nil
	}
	return o, false, nil
}
