// Package bpffs finds tests a place for their pins.
package bpffs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bpffs"
)

// Dir is a folder that is not there yet, on a bpffs, which is mounted if it is not.
// When the test has ended remove is called with it.
func Dir(tb testing.TB, remove func(string) error) string {
	tb.Helper()
	if err := bpffs.Mount(); err != nil {
		tb.Fatal(err)
	}
	dir := filepath.Join(bpffs.Path, fmt.Sprintf("culvert-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	tb.Cleanup(func() {
		if err := remove(dir); err != nil {
			tb.Errorf("remove pins: %v", err)
		}
	})
	return dir
}
