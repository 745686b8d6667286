// Package bpffs mounts the BPF file system for what runs the daemon on machines where
// nobody has: laboratories, measurements and tests.
package bpffs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Path is where a BPF file system is mounted by custom.
const Path = "/sys/fs/bpf"

// Mount mounts a BPF file system at Path unless one is there.
func Mount() error {
	var st unix.Statfs_t
	if err := unix.Statfs(Path, &st); err == nil && st.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", Path, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system at %s: %w", Path, err)
	}
	return nil
}
