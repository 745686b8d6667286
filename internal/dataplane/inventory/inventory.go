// Package inventory lists the pinned programs and maps of the data path, for people:
// names, sizes and memory. It reads what the kernel says of them, and no entry.
package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/pin"
	"golang.org/x/sys/unix"
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

// Read lists what is pinned below a directory, which must be in a bpffs. After an error it
// goes on with the next object.
func Read(pinPath string) ([]Object, error) {
	objects := []Object{}
	var at unix.Statfs_t
	if err := unix.Statfs(pinPath, &at); err != nil {
		return objects, fmt.Errorf("%s: %w", pinPath, err)
	}
	if at.Type != unix.BPF_FS_MAGIC {
		return objects, fmt.Errorf("%s is on no bpffs", pinPath)
	}
	var failed error
	err := filepath.WalkDir(pinPath, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() { // the records of layouts are symbolic links
			return err
		}
		o, ok, err := read(path)
		failed = errors.Join(failed, err)
		if ok {
			o.Path = strings.TrimPrefix(path, filepath.Clean(pinPath)+"/")
			objects = append(objects, o)
		}
		return nil
	})
	return objects, errors.Join(failed, err)
}

// read describes a pin; ok is false for a link.
func read(path string) (o Object, ok bool, err error) {
	object, err := pin.Load(path, nil)
	if err != nil {
		return o, false, fmt.Errorf("%s: %w", path, err)
	}
	o, ok, err = describe(object)
	return o, ok, errors.Join(err, object.Close())
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
