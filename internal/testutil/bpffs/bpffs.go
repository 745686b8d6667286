// Package bpffs finds tests a place for their pins.
package bpffs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is a folder that is not there yet, on a bpffs, which is mounted if it is not.
// When the test has ended remove is called with it.
func Dir(tb testing.TB, remove func(string) error) string {
	tb.Helper()
	const mounted = "/sys/fs/bpf"
	var fs unix.Statfs_t
	if err := unix.Statfs(mounted, &fs); err != nil || fs.Type != unix.BPF_FS_MAGIC {
		if err := unix.Mount("bpf", mounted, "bpf", 0, ""); err != nil {
			tb.Fatalf("mount bpffs at %s: %v", mounted, err)
		}
	}
	dir := filepath.Join(mounted, fmt.Sprintf("culvert-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	tb.Cleanup(func() {
		if err := remove(dir); err != nil {
			tb.Errorf("remove pins: %v", err)
		}
	})
	return dir
}
